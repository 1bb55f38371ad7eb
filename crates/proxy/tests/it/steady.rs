//! A steady stream of good requests during bad ones: none of the good requests may fail.

use crate::client::Client;
use crate::proxy::Proxy;
use http::{StatusCode, Version};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Far more than a response takes on a busy machine. A request that waits for a stalled one takes longer.
const RESPONSE_DEADLINE: Duration = Duration::from_secs(20);

/// One client on a connection of its own, one request after the other.
pub(crate) struct Steady {
    stop: oneshot::Sender<()>,
    responded: watch::Receiver<usize>,
    running: JoinHandle<()>,
}

impl Steady {
    pub(crate) async fn start(proxy: &Proxy, version: Version) -> Self {
        Self::start_at(proxy.address(), version).await
    }

    pub(crate) async fn start_at(proxy: SocketAddr, version: Version) -> Self {
        let mut client = Client::connect(proxy, version).await;
        let (stop, mut stopped) = oneshot::channel();
        let (counts, responded) = watch::channel(0);
        let running = tokio::spawn(async move {
            let mut responded = 0;
            while stopped.try_recv().is_err() {
                let response = tokio::time::timeout(RESPONSE_DEADLINE, client.get("/steady")).await;
                let Ok(response) = response else {
                    panic!("no response after {RESPONSE_DEADLINE:?}, after {responded} in time")
                };
                assert_eq!(response.status, StatusCode::OK, "after {responded}: {response:?}");
                responded += 1;
                counts.send_replace(responded);
            }
        });
        Self { stop, responded, running }
    }

    /// Waits for this many further responses.
    pub(crate) async fn progress(&self, count: usize) {
        let mut responded = self.responded.clone();
        let from = *responded.borrow();
        let done = responded.wait_for(|now| *now >= from + count).await;
        done.expect("no request has failed");
    }

    /// Stops; every request must have succeeded, and there must have been some.
    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("no request has failed so far");
        self.running.await.expect("no request has failed");
        assert!(*self.responded.borrow() > 0, "no request was sent meanwhile");
    }
}
