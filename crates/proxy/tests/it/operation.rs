//! Running the proxy: it stops without losing a request, takes new configurations whole or not at all, and
//! its journal says exactly what it decided.

mod certificates;
mod command;
mod drain;
pub(crate) mod journal;
mod listeners;
mod profiles;
mod reload;
mod restart;

use crate::client::{Client, FullResponse};
use crate::replica::{Replica, Speaks, ok};
use http::Version;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// A replica that responds with `name` when the test lets it.
struct Gated {
    replica: Replica,
    /// One permit for each response.
    gate: Arc<Semaphore>,
}

impl Gated {
    async fn start(speaks: Speaks, name: &'static str) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let opens = Arc::clone(&gate);
        let replica = Replica::start(speaks, move |_| {
            let opens = Arc::clone(&opens);
            async move {
                opens.acquire().await.expect("never closed").forget();
                ok(name)
            }
        })
        .await;
        Self { replica, gate }
    }

    /// Sends a request that stays in flight until the gate opens.
    async fn ask(&self, proxy: SocketAddr, version: Version) -> JoinHandle<FullResponse> {
        let before = self.replica.record().count();
        let mut client = Client::connect(proxy, version).await;
        let asking = tokio::spawn(async move { client.get("/").await });
        self.replica.record().until(|record| record.count() > before).await;
        asking
    }
}
