//! HTTP/2 with servers ([`Http2Connection`]) and with clients ([`serve`]), on a codec of our own.
//!
//! One task drives a connection: it reads frames into the state of the connection ([`state`]) and writes what the state
//! has to send. Requests and responses go through the state, under one short lock, without channels. Headers are decoded
//! into the text form of [`crate::head`] and encoded from it.
//!
//! **Flow control**: the credit of a connection returns when bytes arrive, and that of a stream when its body is read:
//! no stream waits for a stalled stream.
//! **Source**: RFC 9113 (HTTP/2), RFC 7541 (HPACK).

mod client;
mod driver;
mod duplex;
mod error;
mod frame;
mod handle;
mod hpack;
mod message;
mod server;
mod state;

pub(crate) use client::{ConnectBody, Http2Connection, ResponseBody, StreamLease};
pub use duplex::DuplexStream;
pub use error::{ConnectionError, Error, ErrorCode};
pub use handle::Http2Body as RequestBody;
pub use server::{Http2Limits, InterimSink, serve};

use curtail_units::Bytes as ByteSize;

/// The largest flow-control window (RFC 9113, section 6.9.1).
pub const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// Converts a size to an HTTP/2 flow-control window; a larger size becomes the largest window.
#[must_use]
pub fn flow_control_window(bytes: ByteSize) -> u32 {
    u32::try_from(bytes.get()).unwrap_or(u32::MAX).min(WINDOW_BYTES_MAX)
}
