//! A server, as `curtail server` starts it, that stores the spans of the demo's proxies in a temporary folder.

use crate::query::request::{self, QueryRequest, QueryResult};
use crate::server_access::ServerAccessArgs;
use anyhow::Context as _;
use curtail_generator::Stop;
use serde_json::Value;
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

    /// Waits for the spans of `reads` reads of `service` since `start`.
    pub(crate) fn wait_for_reads(&self, service: &str, start: &str, reads: u64, stop: &Stop) {
        let began = Instant::now();
        let is_late = || began.elapsed() >= WAIT_MAX || stop.is_stopped();
        while self.count_reads(service, start).is_none_or(|count| count < reads as f64)
            && !is_late()
        {
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// [`None`] if there are none, or the server does not respond.
    fn count_reads(&self, service: &str, start: &str) -> Option<f64> {
        let query = format!(
            "{{ resource.service.name = \"{service}\" && kind = server }} | count_over_time()"
        );
        let query = QueryRequest::new("/api/metrics/query").with("q", &query).with("start", start);
        let json = self.ask(&query).ok()?;
        json["series"][0]["value"].as_f64()
    }

    /// Sends a question about the reads of `service` to `/api/v1/…`, and returns the result or the reason why there is
    /// none.
    pub(crate) fn question(
        &self,
        path: &str,
        service: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Value, String> {
        let mut query = QueryRequest::new(path).with("service", service);
        for (name, value) in parameters {
            query = query.with(name, value);
        }
        self.ask(&query)
    }

    fn ask(&self, query: &QueryRequest) -> Result<Value, String> {
        match request::send(&self.url(), &ServerAccessArgs::default(), query) {
            Ok(QueryResult::Json { json, .. }) => Ok(json),
            Ok(QueryResult::NotFound(why)) => Err(why),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    /// Waits for the span of the slowest read of `service` since `start_ns` (Unix time), which took `latency` at the
    /// client.
    pub(crate) fn slowest_read(
        &self,
        (service, start_ns): (&str, u64),
        latency: curtail_units::Duration,
        stop: &Stop,
    ) -> Option<ReadTrace> {
        let expected = latency.mul_f64(SPAN_OF_LATENCY);
        let began = Instant::now();
        loop {
            let slowest = self.search_slowest(service, start_ns);
            let is_expected = slowest.as_ref().is_some_and(|read| read.latency >= expected);
            if is_expected || began.elapsed() >= WAIT_MAX || stop.is_stopped() {
                return slowest;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Returns the read with the longest span so far; [`None`] if there is no span, or the server does not respond.
    fn search_slowest(&self, service: &str, start_ns: u64) -> Option<ReadTrace> {
        let spans = format!("{{ resource.service.name = \"{service}\" && kind = server }}");
        let query = QueryRequest::new("/api/search")
            .with("q", &spans)
            .with("order", "slowest")
            .with("limit", "1")
            .with("start", &start_ns.to_string());
        let json = self.ask(&query).ok()?;
        let trace = &json["traces"][0];
        let nanos = &trace["spanSets"][0]["spans"][0]["durationNanos"];
        Some(ReadTrace {
            trace_id: trace["traceID"].as_str()?.to_owned(),
            latency: curtail_units::Duration::from_ns(nanos.as_str()?.parse().ok()?),
        })
    }

    /// Returns the command that shows a read, in two lines of fewer than 80 columns.
    pub(crate) fn command(&self, read: &ReadTrace) -> [String; 2] {
        let query = format!("{} query trace \\", program());
        [query, format!("    {} --server {}", read.trace_id, self.url())]
    }

    /// The URL of the query API.
    pub(crate) fn url(&self) -> String {
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
