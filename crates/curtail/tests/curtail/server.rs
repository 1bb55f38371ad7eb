//! `curtail server`: queries return all acknowledged spans, however the server ends.

use crate::command::{curtail, written};
use crate::running::Running;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two traces, made by OpenTelemetry's own classes.
pub(crate) const BATCH: &[u8] = include_bytes!("../../../otlp/tests/golden/traces.pb");
pub(crate) const TRACE: &str = "0102030405060708090a0b0c0d0e0f10";
/// The same, as Tempo's JSON has it.
const TRACE_BASE64: &str = "AQIDBAUGBwgJCgsMDQ4PEA==";

/// [`BATCH`] with another span name for each number below 4,096.
pub(crate) fn batch(nth: usize) -> Vec<u8> {
    let at = BATCH.windows(5).position(|window| window == b"GET /").expect("it has the name");
    let mut batch = BATCH.to_vec();
    batch[at..at + 5].copy_from_slice(format!("GE{nth:03x}").as_bytes());
    batch
}

/// A server on a folder of its own.
pub(crate) struct Server {
    running: Running,
    pub(crate) otlp: SocketAddr,
    pub(crate) api: SocketAddr,
}

impl Server {
    pub(crate) fn start(data: &Path) -> Self {
        Self::with(data, &[])
    }

    pub(crate) fn with(data: &Path, arguments: &[&str]) -> Self {
        Self::run_with(&mut Command::new(env!("CARGO_BIN_EXE_curtail")), data, arguments)
    }

    pub(crate) fn run(command: &mut Command, data: &Path) -> Self {
        Self::run_with(command, data, &[])
    }

    pub(crate) fn run_with(command: &mut Command, data: &Path, arguments: &[&str]) -> Self {
        let any = "127.0.0.1:0";
        command.arg("server").arg("--data").arg(data).args(["--otlp", any, "--api", any]);
        command.args(arguments);
        let mut running = Running::run(command);
        let mut address = |prefix: &str| {
            let line = running.line();
            let url = line.strip_prefix(prefix).and_then(|url| url.split(' ').next());
            let rest = url.and_then(|url| url.split_once("://")).map(|(_, address)| address);
            rest.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        };
        let (otlp, api) = (address("otlp "), address("api  "));
        Self { running, otlp, api }
    }

    /// Sends a batch to a server, which may be gone; returns whether it was acknowledged.
    pub(crate) fn sends(&self, batch: &[u8]) -> bool {
        self.post("", batch).is_ok_and(|response| response.starts_with("HTTP/1.1 200"))
    }

    /// Sends a batch with additional headers; returns the response.
    pub(crate) fn posts(&self, headers: &str, batch: &[u8]) -> String {
        self.post(headers, batch).expect("it responds")
    }

    fn post(&self, headers: &str, batch: &[u8]) -> std::io::Result<String> {
        let head = format!(
            "POST /v1/traces HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{headers}\
             content-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
            batch.len()
        );
        send_request(self.otlp, &[head.as_bytes(), batch].concat())
    }

    /// Sends a request to the receiver; returns the response.
    pub(crate) fn asks_otlp(&self, request: &str) -> String {
        send_request(self.otlp, request.as_bytes()).expect("it responds")
    }

    /// The server's process ID.
    pub(crate) fn process(&self) -> u32 {
        self.running.process()
    }

    /// The number of batches made by [`batch`] whose spans are in the trace.
    pub(crate) fn trace_count(&self) -> usize {
        self.get(&format!("/api/traces/{TRACE}")).matches("\"name\":\"GE").count()
    }

    /// The total number of spans.
    pub(crate) fn span_count(&self) -> f64 {
        let response =
            self.get("/api/metrics/query?q=%7B%7D%7Ccount_over_time()&start=0&end=2000000000");
        let (_, value) = response.rsplit_once("\"value\":").unwrap_or_else(|| panic!("{response}"));
        let value = value.split([',', '}']).next().and_then(|value| value.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{response}"))
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
        send_request(self.api, head.as_bytes()).expect("it responds")
    }

    /// Asks in SQL; the stream is that of the response.
    pub(crate) fn asks(&self, question: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.api).expect("it listens");
        let length = question.len();
        let head = format!(
            "POST /api/v1/sql HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n"
        );
        stream.write_all((head + question).as_bytes()).expect("it reads");
        stream
    }

    pub(crate) fn trace(&self) -> String {
        let response = self.get(&format!("/api/traces/{TRACE}"));
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{response}");
        body.to_owned()
    }

    pub(crate) fn signal(&self, name: &str) {
        self.running.signal(name);
    }

    pub(crate) fn ended(self, signal: &str) {
        self.running.signal(signal);
        let code = self.running.ended().code();
        // SIGKILL leaves no exit code.
        assert_eq!(code, (signal != "KILL").then_some(0), "after SIG{signal}");
    }
}

fn send_request(address: SocketAddr, request: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request)?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
    folder
}

/// The number of log segments in a folder.
fn segments(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names.filter(|name| name.to_string_lossy().starts_with("log-")).count()
}

#[test]
fn a_trace_is_found_at_once_and_after_every_end() {
    let data = folder("server-ends");
    let server = Server::start(&data);
    for path in ["/ready", "/readyz", "/healthz"] {
        assert!(server.get(path).starts_with("HTTP/1.1 200"), "{path}");
    }
    assert!(server.get(&format!("/api/traces/{TRACE}")).starts_with("HTTP/1.1 404"));
    assert!(server.sends(BATCH));
    let metrics = server.get("/metrics");
    for line in [
        "curtail_ingest_batches_total{signal=\"traces\"} 1",
        "curtail_log_write_duration_seconds_count 1",
        "curtail_queries_total{kind=\"trace\",outcome=\"rejected\"} 1",
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "no line {line} in {metrics}");
    }
    let at_once = server.trace();
    assert!(at_once.contains("\"batches\"") && at_once.contains(TRACE_BASE64), "{at_once}");
    // From the log.
    server.ended("KILL");
    let server = Server::start(&data);
    assert_eq!(server.trace(), at_once);
    // What was in memory is written, and the log is empty.
    server.ended("TERM");
    assert_eq!(segments(&data.join("log")), 0);
    let server = Server::start(&data);
    assert_eq!(server.trace(), at_once);
    let second = server.get(&format!("/api/v2/traces/{TRACE}"));
    assert!(second.contains("{\"trace\":{\"resourceSpans\""), "{second}");
    server.ended("INT");
}

#[test]
fn what_is_acknowledged_survives_being_killed_at_any_moment() {
    let data = folder("server-killed");
    let (mut acknowledged, mut sent, mut all) = (0, 0, 0);
    for round in 0..100 {
        let server = Server::start(&data);
        let stored_count = server.trace_count();
        // Batches in flight may be there without an acknowledgement.
        assert!(
            (acknowledged..=sent).contains(&stored_count),
            "{acknowledged}, {stored_count}, {sent}"
        );
        (acknowledged, sent) = (stored_count, stored_count);
        let last = round % 5;
        for nth in 0..=last {
            if nth == last {
                server.running.signal("KILL");
            }
            all += 1;
            acknowledged += usize::from(server.sends(&batch(all)));
            sent += 1;
        }
        server.running.ended();
    }
    // All but the last of each round, at least.
    assert!(acknowledged >= 200, "{acknowledged}");
}

#[test]
fn a_file_without_tokens_is_an_error() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let tokens = format!("otlp.tokens_file={folder}/{}", written("no-tokens", "\n  \n"));
    let data = self::folder("server-tokens");
    let data = data.to_str().expect("text");
    let ended = curtail(&["server", "--data", data, "--set", &tokens]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("expected at least one token"), "{}", ended.stderr);
}

#[test]
fn urls_of_no_known_kind_are_errors_of_usage() {
    for arguments in [["--tables", "s4://bucket"], ["--data", "s4://bucket"]] {
        let ended = curtail(&[&["server"][..], &arguments].concat());
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("s4://bucket: expected a folder or a URL"),
            "{}",
            ended.stderr
        );
    }
}
