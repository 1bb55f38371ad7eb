//! Detects the version of HTTP that a client uses in clear text.
//!
//! HTTP/2 with prior knowledge begins with a preface (RFC 9113, section 3.4), whose first three bytes no HTTP/1.1
//! request has. Usually a peek returns all three bytes. If only the start of the preface has arrived, the bytes are
//! read, because another peek would not wait for more, and are kept for the protocol.

use bytes::BytesMut;
use std::io;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The bytes that identify HTTP/2.
const PREFACE: &[u8; 3] = b"PRI";

/// Waits for the first bytes; returns the bytes that had to be read, and whether the first bytes are those of
/// HTTP/2.
///
/// # Errors
/// When the connection breaks.
pub async fn begin(stream: &mut TcpStream) -> io::Result<(BytesMut, bool)> {
    let mut seen = [0; PREFACE.len()];
    let seen_len = stream.peek(&mut seen).await?;
    let mut read = BytesMut::new();
    if seen_len == 0 || seen[..seen_len] != PREFACE[..seen_len] {
        return Ok((read, false));
    }
    while read.len() < PREFACE.len() && seen_len < PREFACE.len() {
        let left = PREFACE.len() - read.len();
        let count = stream.read_buf(&mut bytes::BufMut::limit(&mut read, left)).await?;
        if count == 0 || *read != PREFACE[..read.len()] {
            return Ok((read, false));
        }
    }
    Ok((read, true))
}
