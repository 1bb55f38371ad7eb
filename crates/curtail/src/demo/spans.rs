//! The spans of the demo's proxies: kept by a server as `curtail server` is one, in a folder that goes when the
//! demo ends.
//!
//! A read is one trace: all of its requests say so (`traceparent`), and whoever answers them goes on with it.
//! **Limits**: those of the server; its log and its tables are on the disk that temporary files are on.

use super::tally::Slowest;
use anyhow::Context as _;
use bytes::Bytes;
use curtail_http::client::{Client, ClientLimits};
use curtail_http::connect::{ConnectConfig, Connector};
use curtail_http::origin::ServerOrigin;
use http_body_util::Empty;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Proxies send their spans each second; the demo looks for them at most `LOOK_MAX`.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(5);

/// A trace of the demo is far smaller.
const LIMITS: ClientLimits = ClientLimits { body_bytes_max: 16 << 20, idle_max: 1 };
const TIMEOUT: curtail_units::Duration = curtail_units::Duration::from_secs(1);

/// What a span of a request to a proxy has in Tempo's JSON, and no other.
const OF_A_REQUEST: &[u8] = b"\"kind\":\"SPAN_KIND_SERVER\",";

/// A running server.
#[derive(Debug)]
pub(crate) struct SpanStore {
    folder: PathBuf,
    server: curtail_server::Running,
}

impl SpanStore {
    /// Starts it.
    ///
    /// # Errors
    /// When its folder cannot be created or the system refuses a thread.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("curtail-demo-{}", std::process::id()));
        let server = curtail_server::start(curtail_server::Config::on_loopback(folder.clone()))
            .context("the server of the demo's spans")?;
        Ok(Self { folder, server })
    }

    /// Where proxies send their spans.
    pub(crate) fn otlp(&self) -> SocketAddr {
        self.server.otlp()[0]
    }

    /// The command that shows a trace, in lines of less than 80 columns.
    pub(crate) fn command(&self, trace: &Slowest) -> [String; 2] {
        let query = format!("{} query trace \\", program());
        [query, format!("    {:032x} --server http://{}", trace.trace_id, self.server.api())]
    }

    /// Waits until the spans of all requests of a trace have come; returns whether they have.
    pub(crate) async fn has(&self, trace: &Slowest, requests: usize) -> bool {
        let connector =
            Connector::load(&ServerOrigin::from(self.server.api()), &ConnectConfig::default());
        let Ok(connector) = connector else { return false };
        let client = Client::new(connector, LIMITS);
        let looking = async {
            while count_requests(&client, trace).await < requests {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(LOOK_MAX, looking).await.is_ok()
    }

    /// Stops it and deletes its folder.
    pub(crate) fn stop(self) {
        if let Err(error) = self.server.stop() {
            tracing::error!("the server of the demo's spans: {error}");
        }
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!("{} is left: {error}", self.folder.display());
        }
    }
}

/// The spans of requests that the server has of a trace; none if it does not respond.
async fn count_requests(client: &Client<Empty<Bytes>>, trace: &Slowest) -> usize {
    let get = http::Request::get(format!("/api/traces/{:032x}", trace.trace_id));
    let get = get.body(Empty::new()).expect("a valid path");
    let is_of_a_request = |bytes: &&[u8]| *bytes == OF_A_REQUEST;
    client.send(get, TIMEOUT).await.map_or(0, |response| {
        response.body.windows(OF_A_REQUEST.len()).filter(is_of_a_request).count()
    })
}

/// This program's path as it was called, so that the command works without an installation.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let fits = (1..=60).contains(&called.len()) && called.bytes().all(is_plain);
    if fits { called } else { "curtail".to_owned() }
}
