//! Peers that break or abuse a protocol, as tables: clients over HTTP/1.1, over HTTP/2 in clear text and under TLS, and
//! replicas over HTTP/1.1 and HTTP/2. The hostile side writes bytes and frames by hand.
//!
//! A row has the bytes that the peer sends, how it reads, and every outcome that the RFC allows, with its section. A row
//! does not name what one HTTP/2 library does. Each row also checks three promises:
//!
//! - **Neighbors**: well-behaved clients, one for each version of HTTP, get every response meanwhile. Their requests share
//!   the one connection to an HTTP/2 replica with the hostile streams.
//! - **Memory**: the proxy is a process of its own, and its peak grows by at most [`MEMORY_BYTES_MAX`] for one peer.
//! - **Time**: a peer that stops sending or reading is cut off by one of the [`LIMITS`].
//!
//! [`FAILS_TODAY`] has the rows that the proxy fails so far. When such a row passes, its test asks to remove the entry.

mod clients;
mod http1;
mod peer;
mod process;
mod replicas;
mod script;

use crate::steady::Steady;
use http::Version;
use process::ProxyProcess;
use std::net::SocketAddr;
use std::time::Duration;

/// Rows that the proxy fails so far: the name of the row, and what the proxy does.
const FAILS_TODAY: &[(&str, &str)] = &[
    ("SETTINGS of five bytes", FRAME),
    ("an acknowledgment with settings", FRAME),
    ("a window size of 2^31", FRAME),
    ("a window update of three bytes", FRAME),
    ("RST_STREAM of three bytes", FRAME),
    ("PRIORITY of four bytes", FRAME),
    ("PING of seven bytes", FRAME),
    ("GOAWAY of seven bytes", FRAME),
    ("streams that end by a short PRIORITY", FRAME),
    ("replica: SETTINGS of five bytes", FRAME),
    ("replica: a window size of 2^31", FRAME),
    ("replica: a window update of three bytes", FRAME),
    ("replica: PING of seven bytes", FRAME),
    ("replica: RST_STREAM of three bytes", FRAME),
    ("HPACK: index 0", BLOCK),
    ("HPACK: an index beyond the table", BLOCK),
    ("HPACK: an index beyond all numbers", BLOCK),
    ("HPACK: a table larger than allowed", BLOCK),
    ("HPACK: a change of the table after a field", BLOCK),
    ("HPACK: a block that ends within a field", BLOCK),
    ("HPACK: padding longer than seven bits", BLOCK),
    ("HPACK: padding with zeros", BLOCK),
    ("HPACK: the end of string within a text", BLOCK),
    ("replica: HPACK: index 0", BLOCK),
    ("replica: HPACK: an index beyond the table", BLOCK),
    ("replica: HPACK: a table larger than allowed", BLOCK),
    ("replica: HPACK: a block that ends within a field", BLOCK),
    ("DATA after the end of a request", "ends the connection with PROTOCOL_ERROR"),
    ("streams that end by DATA after their end", "ends the connection with PROTOCOL_ERROR"),
    ("a first frame that is not SETTINGS", "serves the client"),
    ("a head of exactly the maximum size", "responds 431: h2 allows one byte less"),
    ("trailers above the maximum size", "serves the request"),
    ("replica: ENABLE_PUSH of 1", "ignores the setting"),
    ("replica: a window overflow of a stream", "ignores the overflow"),
    ("replica: a pseudo-header of a request", "forwards the response without it"),
    ("replica: a pseudo-header in trailers", "forwards the response without it"),
    ("replica: no further stream", "queues all requests on the connection until their timeout"),
];

const FRAME: &str = "ends the connection with PROTOCOL_ERROR, h2's code for most malformed frames";
const BLOCK: &str =
    "ends the connection with PROTOCOL_ERROR, h2's code for malformed header blocks";

/// Short limits, so that a row whose peer stops takes no minute.
const LIMITS: &str = "limits: {headers: 16KiB, header_timeout: 2s, idle_timeout: 6s, body_timeout: 700ms, \
                      write_timeout: 700ms, stream_idle_timeout: 700ms, http2_streams_max: 100}";

/// Limits that no row reaches: a request that waits for a stalled peer never ends.
const NO_LIMITS: &str = "limits: {header_timeout: 1h, idle_timeout: 1h, body_timeout: 1h, write_timeout: 1h, \
                         http2_streams_max: 100}";

/// Far more than any of the [`LIMITS`]: a row that is not over by then has no outcome.
const ROW_DEADLINE: Duration = Duration::from_secs(20);

/// Maximum growth of the proxy's memory for one hostile peer. The windows of its 100 streams allow 25 MiB.
const MEMORY_BYTES_MAX: u64 = 32 << 20;

/// The requests of each neighbor during a row.
const NEIGHBOR_REQUESTS: usize = 3;

/// An outcome that a row allows. An error of a stream may always be treated as one of its connection (RFC 9113,
/// section 5.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    /// The peer is served: the connection goes on, and its next request gets a response.
    Serves,
    /// The request gets a response with one of these statuses, and the connection goes on or closes.
    Responds(&'static [u16]),
    /// The stream is reset with one of these codes and the connection goes on, or it ends with one of these codes.
    Resets(&'static [u32]),
    /// The connection ends with one of these codes.
    Ends(&'static [u32]),
    /// The connection closes without a reason.
    Closes,
}

/// The outcome of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Served,
    Responded(u16),
    Reset(u32),
    Ended(u32),
    Closed,
}

impl Outcome {
    fn is_allowed(self, allowed: &[Allowed]) -> bool {
        allowed.iter().any(|allowed| match (allowed, self) {
            (Allowed::Serves, Self::Served) | (Allowed::Closes, Self::Closed) => true,
            (Allowed::Responds(statuses), Self::Responded(status)) => statuses.contains(&status),
            (Allowed::Resets(codes), Self::Reset(code) | Self::Ended(code))
            | (Allowed::Ends(codes), Self::Ended(code)) => codes.contains(&code),
            _ => false,
        })
    }
}

/// How a peer reads what the proxy sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Everything; it acknowledges settings and pings.
    All,
    /// Everything, but it responds to nothing: it stops in the middle of a frame, or ignores pings.
    Deaf,
    /// Everything, and it grants one byte for each byte of DATA, at the pace of the neighbors.
    ByteByByte,
    /// One byte for each response of the neighbors.
    Slowly,
    Nothing,
}

/// Well-behaved clients beside the hostile ones.
struct Neighbors([Steady; 2]);

impl Neighbors {
    async fn start(proxy: SocketAddr) -> Self {
        Self([
            Steady::start_at(proxy, Version::HTTP_11).await,
            Steady::start_at(proxy, Version::HTTP_2).await,
        ])
    }

    /// Their client connections.
    const CONNECTIONS: u64 = 2;

    /// Waits until each has had this many further responses.
    async fn progress(&self, count: usize) {
        for steady in &self.0 {
            steady.progress(count).await;
        }
    }

    async fn stop(self) {
        for steady in self.0 {
            steady.stop().await;
        }
    }
}

/// The results of the rows of a table.
#[derive(Default)]
struct Results {
    rows: usize,
    failures: Vec<String>,
}

impl Results {
    /// Takes the failure of a row; an expected one must occur.
    fn note(&mut self, name: &str, transport: &str, failure: Option<String>) {
        self.rows += 1;
        let expected = FAILS_TODAY.iter().find(|(row, _)| *row == name);
        match (failure, expected) {
            (Some(failure), None) => self.failures.push(format!("{name} ({transport}): {failure}")),
            (None, Some((_, does))) => self.failures.push(format!(
                "{name} ({transport}): passes, so remove it from FAILS_TODAY, which says: {does}"
            )),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn finish(self) {
        let Self { rows, failures } = self;
        println!("{rows} rows");
        assert!(failures.is_empty(), "{} of {rows} rows:\n{}", failures.len(), failures.join("\n"));
    }
}

/// The section of an RFC that a row names: of this RFC, or of the one in its text.
fn section(rfc: u32, section: &str) -> String {
    if section.starts_with("RFC") { section.to_owned() } else { format!("RFC {rfc}, {section},") }
}

/// The failure of a row in which a well-behaved client fails.
fn neighbor_failure(error: tokio::task::JoinError) -> String {
    let panic = error.into_panic();
    let text = panic.downcast_ref::<String>().map_or("", |text| text);
    format!("a well-behaved client fails, see above: {text}")
}

/// Checks the proxy's peak since the start of a row, and prints it.
fn check_memory(name: &str, proxy: &ProxyProcess, before: u64) -> Option<String> {
    let grown = proxy.peak_bytes().saturating_sub(before);
    println!("{:>9} KiB  {name}", grown >> 10);
    (grown > MEMORY_BYTES_MAX).then(|| format!("the proxy's memory grew by {} MiB", grown >> 20))
}

#[test]
fn rows_that_fail_today_exist() {
    let names: Vec<_> = clients::names().chain(replicas::names()).chain(http1::names()).collect();
    for (row, _) in FAILS_TODAY {
        assert!(names.contains(row), "no row has the name {row:?}");
    }
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name), "two rows have the name {name:?}");
    }
}
