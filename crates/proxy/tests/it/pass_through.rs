//! Messages pass unchanged: the proxy changes only what concerns one connection.

mod bodies;
mod certificates;
mod cookies;
mod forwarded;
mod heads;
mod interim;
mod streams;
mod tls;
mod upgrade;

use crate::body::Body;
use crate::client::Client;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Speaks};
use http::{Request, Response, Version};
use hyper::body::Incoming;
use std::future::Future;

/// A client, the proxy and a replica.
struct Chain {
    client: Client,
    proxy: Proxy,
    replica: Replica,
}

/// The versions of HTTP before and behind the proxy: all four pairs.
const PAIRS: [(Version, Version); 4] = [
    (Version::HTTP_11, Version::HTTP_11),
    (Version::HTTP_11, Version::HTTP_2),
    (Version::HTTP_2, Version::HTTP_11),
    (Version::HTTP_2, Version::HTTP_2),
];

impl Chain {
    async fn start<A, F>((before, behind): (Version, Version), response: A) -> Self
    where
        A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        println!("{before:?} before, {behind:?} behind");
        let (speaks, connect) = match behind {
            Version::HTTP_2 => (Speaks::Http2, "connect: {protocol: http2}"),
            _ => (Speaks::Http1, ""),
        };
        let replica = Replica::start(speaks, response).await;
        let proxy = Setup::before(&[replica.address()]).upstream(connect).start();
        let client = Client::connect(proxy.address(), before).await;
        Self { client, proxy, replica }
    }
}
