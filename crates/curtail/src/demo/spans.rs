//! A server, as `curtail server` starts it, that stores the spans of the demo's proxies in a temporary folder.

use crate::query::request::{self, QueryRequest, QueryResult};
use crate::server_access::ServerAccessArgs;
use anyhow::Context as _;
use curtail_generator::Stop;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The interval of searches for a span. Proxies send spans each second, and the demo waits for at most `WAIT_MAX`.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The minimum ratio of the duration of a read's span to the latency that the client measured.
const SPAN_OF_LATENCY: f64 = 0.9;

/// A running server.
#[derive(Debug)]
pub(crate) struct SpanStore {
    folder: PathBuf,
    server: curtail_server::Running,
}

/// The trace of a read in the store.
#[derive(Debug)]
pub(crate) struct ReadTrace {
    /// The name of the arm.
    pub(crate) service: String,
    trace_id: String,
    pub(crate) latency: curtail_units::Duration,
}

impl SpanStore {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("curtail-demo-{}", std::process::id()));
        let server = curtail_server::start(curtail_server::Config::on_loopback(folder.clone()))
            .context("the server of the demo's spans")?;
        Ok(Self { folder, server })
    }

    /// The address of the OTLP receiver.
    pub(crate) fn otlp(&self) -> SocketAddr {
        self.server.otlp()[0]
    }

    /// Waits for the span of the slowest read since `start_ns` (Unix time), which took `latency` at the client.
    pub(crate) fn slowest_read(
        &self,
        start_ns: u64,
        latency: curtail_units::Duration,
        stop: &Stop,
    ) -> Option<ReadTrace> {
        let expected = latency.mul_f64(SPAN_OF_LATENCY);
        let began = Instant::now();
        loop {
            let slowest = self.search_slowest(start_ns);
            let is_expected = slowest.as_ref().is_some_and(|read| read.latency >= expected);
            if is_expected || began.elapsed() >= WAIT_MAX || stop.is_stopped() {
                return slowest;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Returns the read with the longest span so far; [`None`] if there is no span, or the server does not respond.
    fn search_slowest(&self, start_ns: u64) -> Option<ReadTrace> {
        let query = QueryRequest::new("/api/search")
            .with("q", "{ kind = server }")
            .with("order", "slowest")
            .with("limit", "1")
            .with("start", &start_ns.to_string());
        let result = request::send(&self.url(), &ServerAccessArgs::default(), &query).ok()?;
        let QueryResult::Json { json, .. } = result else { return None };
        let trace = &json["traces"][0];
        let nanos = &trace["spanSets"][0]["spans"][0]["durationNanos"];
        Some(ReadTrace {
            service: trace["rootServiceName"].as_str()?.to_owned(),
            trace_id: trace["traceID"].as_str()?.to_owned(),
            latency: curtail_units::Duration::from_ns(nanos.as_str()?.parse().ok()?),
        })
    }

    /// Returns the command that shows a read, in two lines of fewer than 80 columns.
    pub(crate) fn command(&self, read: &ReadTrace) -> [String; 2] {
        let query = format!("{} query trace \\", program());
        [query, format!("    {} --server {}", read.trace_id, self.url())]
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.api())
    }

    /// Stops the server and deletes its folder.
    pub(crate) fn stop(self) {
        if let Err(error) = self.server.stop() {
            tracing::error!("the server of the demo's spans: {error}");
        }
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!("{} is left: {error}", self.folder.display());
        }
    }
}

/// Returns the path with which this program was called, so that the command works without an installation.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let fits = (1..=60).contains(&called.len()) && called.bytes().all(is_plain);
    if fits { called } else { "curtail".to_owned() }
}
