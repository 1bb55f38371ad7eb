//! A request's body as a client sends it, through hyper and a pipe: for tests.

use super::Replay;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncWriteExt, DuplexStream};

const PIPE_BYTES: usize = 64 << 10;

/// As much as is kept of a body.
pub(crate) const KEPT_BYTES_MAX: usize = 32 << 10;

/// No test waits for it.
const PAUSE_MAX: std::time::Duration = std::time::Duration::from_secs(3_600);

/// A client sends these bytes, the head of a request and what it has of a body; the rest goes through the
/// pipe. One that drops the pipe is gone.
pub(crate) async fn sent(bytes: impl AsRef<[u8]>) -> (Arc<Replay>, DuplexStream) {
    let (mut client, server) = tokio::io::duplex(PIPE_BYTES);
    // All is there before the first look at it: hyper then gives each chunk as one piece.
    client.write_all(bytes.as_ref()).await.expect("the pipe takes so much");
    let (give, taken) = tokio::sync::oneshot::channel();
    let give = Mutex::new(Some(give));
    let service = service_fn(move |request: Request<Incoming>| {
        let give = give.lock().unwrap_or_else(PoisonError::into_inner).take();
        give.expect("one request").send(request.into_body()).expect("somebody waits for it");
        std::future::pending::<Result<Response<String>, Infallible>>()
    });
    let http1 = hyper::server::conn::http1::Builder::new();
    tokio::spawn(http1.serve_connection(TokioIo::new(server), service));
    let body = taken.await.expect("a head that hyper takes");
    (Replay::new(body, KEPT_BYTES_MAX, PAUSE_MAX), client)
}

/// A request whose body is of known length.
pub(crate) fn with_length(body: &[u8]) -> Vec<u8> {
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A request whose body comes in these pieces, with these trailers.
pub(crate) fn in_chunks(pieces: &[&[u8]], trailers: &str) -> Vec<u8> {
    let mut bytes = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for piece in pieces {
        bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    bytes
}
