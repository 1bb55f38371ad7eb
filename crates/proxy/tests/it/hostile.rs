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

/// Short limits, so that a row whose peer stops takes no minute. The servers behind the proxy accept larger heads.
const LIMITS: &str = "limits: {headers: 8KiB, header_timeout: 2s, idle_timeout: 6s, body_timeout: 700ms, \
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
        if let Some(failure) = failure {
            self.failures.push(format!("{name} ({transport}): {failure}"));
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
fn each_row_has_a_name_of_its_own() {
    let names: Vec<_> = clients::names().chain(replicas::names()).chain(http1::names()).collect();
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name), "two rows have the name {name:?}");
    }
}
