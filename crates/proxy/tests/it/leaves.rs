//! Leaves over real sockets: queues before servers, and ties between two of them.

mod queue;
mod ties;

use crate::client::{Client, FullResponse};
use crate::metrics::Metrics;
use crate::proxy::Proxy;
use crate::replica::{Replica, Speaks, ok};
use http::{HeaderName, HeaderValue, Version};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// A leaf with one slot, in a proxy of its own, before a server that responds when the test lets it.
struct Gated {
    leaf: Proxy,
    server: Replica,
    /// One permit for each response.
    gate: Arc<Semaphore>,
}

impl Gated {
    /// `keys` are further keys of the leaf; the server responds with its name.
    async fn start(name: &'static str, keys: &str) -> Self {
        Self::with_concurrency(name, 1, keys).await
    }

    async fn with_concurrency(name: &'static str, concurrency: usize, keys: &str) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let opens = Arc::clone(&gate);
        let server = Replica::start(Speaks::Http1, move |_| {
            let opens = Arc::clone(&opens);
            async move {
                opens.acquire().await.expect("never closed").forget();
                ok(name)
            }
        })
        .await;
        let leaf = Proxy::of_leaves(&[format!(
            "{{name: leaf, address: \"127.0.0.1:0\", server: \"http://{}\", concurrency: {concurrency}{keys}}}",
            server.address()
        )]);
        Self { leaf, server, gate }
    }

    fn address(&self) -> SocketAddr {
        self.leaf.listener("leaf")
    }

    /// Lets the server respond once more.
    fn respond_once(&self) {
        self.gate.add_permits(1);
    }

    /// Waits until the leaf's metrics say so.
    async fn until(&self, so: impl Fn(&Metrics) -> bool) -> Metrics {
        self.leaf.until(so).await
    }

    /// Waits until `len` requests wait.
    async fn until_queued(&self, len: u64) {
        self.until(|metrics| metrics.sum("curtail_leaf_queue_len", &[]) == len).await;
    }

    /// Keeps the one slot busy until the next [`Self::respond_once`].
    async fn keep_busy(&self) -> JoinHandle<FullResponse> {
        let before = self.server.record().count();
        let busy = ask(self.address(), "blocker", &[]).await;
        self.server.record().until(|record| record.count() == before + 1).await;
        busy
    }

    /// Serves one request that takes as long as many probes, so that later short requests are shorter.
    async fn serve_slowly(&self, prober: &mut Client) {
        let busy = self.keep_busy().await;
        for _ in 0..200 {
            prober.get("/.curtail/load").await;
        }
        self.respond_once();
        busy.await.expect("no panic");
        self.until(|metrics| metrics.sum("curtail_leaf_in_service", &[]) == 0).await;
    }
}

/// Sends a read under an id on a connection of its own.
async fn ask(
    address: SocketAddr,
    id: &str,
    fields: &[(&'static str, &str)],
) -> JoinHandle<FullResponse> {
    let mut client = Client::connect(address, Version::HTTP_11).await;
    let mut request = client.request("GET", "/");
    for (name, value) in fields.iter().chain(&[("x-request-id", id)]) {
        let value = HeaderValue::from_str(value).expect("plain text");
        request.headers_mut().insert(HeaderName::from_static(name), value);
    }
    tokio::spawn(async move { client.send(request).await })
}

/// The IDs of the requests that a server received, in their order.
fn order(server: &Replica) -> Vec<String> {
    let seen = server.record().seen();
    seen.iter().map(|seen| seen.get("x-request-id").expect("an id").to_owned()).collect()
}
