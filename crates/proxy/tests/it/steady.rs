//! A steady stream of good requests during bad ones: none of the good requests may fail.

use crate::client::Client;
use crate::proxy::Proxy;
use http::{StatusCode, Version};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// One client on a connection of its own, one request after the other.
pub(crate) struct Steady {
    stop: oneshot::Sender<()>,
    running: JoinHandle<usize>,
}

impl Steady {
    pub(crate) async fn start(proxy: &Proxy, version: Version) -> Self {
        let mut client = Client::connect(proxy.address(), version).await;
        let (stop, mut stopped) = oneshot::channel();
        let running = tokio::spawn(async move {
            let mut responded = 0;
            while stopped.try_recv().is_err() {
                let response = client.get("/steady").await;
                assert_eq!(response.status, StatusCode::OK, "after {responded}: {response:?}");
                responded += 1;
            }
            responded
        });
        Self { stop, running }
    }

    /// Stops; every request must have succeeded, and there must have been some.
    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("no request has failed so far");
        let responded = self.running.await.expect("no request has failed");
        assert!(responded > 0, "no request was sent meanwhile");
    }
}
