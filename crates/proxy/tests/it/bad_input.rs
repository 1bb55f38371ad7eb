//! What is refused, how, and that it costs nobody else anything: a steady client asks beside each bad one.

mod certificates;
mod http2;
mod limits;
mod requests;
mod responses;
mod targets;

use crate::proxy::Proxy;
use crate::steady::Steady;
use http::Version;

/// Two clients that ask good things of a proxy, over each version of HTTP, while others misbehave.
async fn beside(proxy: &Proxy, misbehave: impl Future<Output = ()>) {
    let steady =
        [Steady::start(proxy, Version::HTTP_11).await, Steady::start(proxy, Version::HTTP_2).await];
    misbehave.await;
    for steady in steady {
        steady.stop().await;
    }
}
