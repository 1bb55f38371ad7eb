//! Request bodies that a client sends over HTTP/1.1, for tests.

use super::{ClientBody, Replay};
use crate::http1::RequestBody;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// Maximum size of the kept part of a body.
pub(crate) const KEPT_BYTES_MAX: usize = 32 << 10;

/// The body timeout, which no test waits for.
const PAUSE_MAX: std::time::Duration = std::time::Duration::from_secs(3_600);

/// Starts a client that sends these bytes: the head of a request and the first part of a body. The caller sends the
/// rest over the returned connection, and disconnects by dropping the connection.
pub(crate) async fn sent(bytes: impl AsRef<[u8]>) -> (Arc<Replay>, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (mut client, server) = (client.expect("connected"), server.expect("accepted").0);
    client.write_all(bytes.as_ref()).await.expect("a connection takes so much");
    let body = ClientBody::Http1(RequestBody::on(server).await);
    (Replay::new(body, KEPT_BYTES_MAX, PAUSE_MAX), client)
}

/// Returns a request whose body has a known length.
pub(crate) fn with_length(body: &[u8]) -> Vec<u8> {
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Returns a request whose body has these chunks and these trailers.
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
