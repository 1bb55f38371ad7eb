//! Cases over HTTP/1.1: tables by topic, and the client that sends them.

mod chunks;
mod connections;
mod framing;
mod lines;
mod targets;

use super::{Received, Step};
use crate::wire::{Head, Wire};
use std::io;
use std::net::SocketAddr;

/// Name, RFC section, request and outcome.
pub(super) type Http1Case = (&'static str, &'static str, &'static str, &'static [Step]);

/// The request that follows on the same connection.
const NEXT: &str = "GET /next HTTP/1.1\r\nhost: next\r\n\r\n";

pub(super) fn tables() -> [&'static [Http1Case]; 11] {
    [
        framing::LENGTH_AND_CHUNKS,
        framing::TRANSFER_ENCODING,
        framing::CONTENT_LENGTH,
        chunks::SIZES,
        chunks::TRAILERS,
        lines::ENDINGS,
        lines::NAMES,
        targets::REQUEST_LINES,
        targets::HOSTS,
        connections::HOP_BY_HOP,
        connections::PERSISTENCE,
    ]
}

/// Sends a request and the next one at once, and reads all responses. If the request is incomplete, sends only it, and
/// closes the sending side.
pub(super) async fn exchange(
    address: SocketAddr,
    mut request: Vec<u8>,
    waits: bool,
) -> Vec<Received> {
    let mut wire = Wire::connect(address).await;
    if !waits {
        request.extend_from_slice(NEXT.as_bytes());
    }
    wire.send(request).await;
    if waits {
        wire.close_write().await;
    }
    let mut received = Vec::new();
    loop {
        let head = match read_response(&mut wire).await {
            Ok(Some(head)) => head,
            Ok(None) => {
                received.push(Received::Other("closes".to_owned()));
                return received;
            }
            Err(error) => {
                received.push(Received::Other(format!("the connection fails: {error}")));
                return received;
            }
        };
        match (head.get("x-seen"), head.get("curtail-error")) {
            (Some(seen), None) => received.push(Received::Response(seen.to_owned())),
            (_, error) => {
                let error = error.unwrap_or("no error");
                let text = format!("rejects {} {error}", head.status());
                received.push(Received::Other(text));
            }
        }
        if head.get("x-seen") == Some("GET /next") {
            break;
        }
    }
    wire.close_write().await;
    let rest = wire.read_to_close().await;
    if !rest.is_empty() {
        received.push(Received::Other(format!("further bytes {:?}", rest.escape_ascii())));
    }
    received
}

/// Reads the next response that is not an interim response; [`None`] when the connection closes.
async fn read_response(wire: &mut Wire) -> io::Result<Option<Head>> {
    loop {
        let Some(head) = wire.read_head().await? else { return Ok(None) };
        if head.status() >= 200 {
            let len = head.get("content-length").and_then(|len| len.parse().ok());
            wire.read_exact(len.unwrap_or_default()).await?;
            return Ok(Some(head));
        }
    }
}
