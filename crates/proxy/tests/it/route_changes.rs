//! What a route makes of its requests and responses: other headers, another path prefix, a redirect.

mod headers;
mod redirects;
mod rewrites;

use crate::body::Body;
use crate::client::Client;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Speaks};
use http::{Request, Response, Version};
use hyper::body::Incoming;

/// The versions of HTTP before and behind the proxy: all four pairs.
const PAIRS: [(Version, Version); 4] = [
    (Version::HTTP_11, Version::HTTP_11),
    (Version::HTTP_11, Version::HTTP_2),
    (Version::HTTP_2, Version::HTTP_11),
    (Version::HTTP_2, Version::HTTP_2),
];

/// A client before a route with these keys, and its one replica.
async fn chain(
    (before, behind): (Version, Version),
    route: &str,
    respond: fn(Request<Incoming>) -> Response<Body>,
) -> (Client, Proxy, Replica) {
    println!("{before:?} before, {behind:?} behind");
    let (speaks, protocol) = match behind {
        Version::HTTP_2 => (Speaks::Http2, "http2"),
        _ => (Speaks::Http1, "http1"),
    };
    let replica = Replica::start(speaks, move |request| std::future::ready(respond(request))).await;
    let proxy = Setup::before(&[replica.address()])
        .upstream(&format!("connect: {{protocol: {protocol}}}"))
        .route(route)
        .start();
    let client = Client::connect(proxy.address(), before).await;
    (client, proxy, replica)
}
