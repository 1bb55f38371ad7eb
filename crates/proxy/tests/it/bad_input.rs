//! What the proxy rejects, how, and that other clients do not notice: steady clients send requests meanwhile.

mod certificates;
mod http2;
mod limits;
mod requests;
mod responses;
mod targets;

use crate::proxy::Proxy;
use crate::steady::Steady;
use http::Version;

/// Runs `misbehave` while two clients, one for each version of HTTP, send good requests that must all succeed.
async fn with_steady_clients(proxy: &Proxy, misbehave: impl Future<Output = ()>) {
    let steady =
        [Steady::start(proxy, Version::HTTP_11).await, Steady::start(proxy, Version::HTTP_2).await];
    misbehave.await;
    for steady in steady {
        steady.stop().await;
    }
}
