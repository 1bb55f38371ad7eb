//! The spans of the demo's proxies: kept by a server as `curtail server` is one, in a folder that goes when the
//! demo ends.
//!
//! A read is one trace: all of its requests say so (`traceparent`), and whoever answers them goes on with it.
//! **Limits**: those of the server; its log and its tables are on the disk that temporary files are on.

use super::tally::Slowest;
use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpStream;

/// Proxies send their spans each second; whoever waits for them is patient for so many looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_MAX: u32 = 50;

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
        for _ in 0..LOOKS_MAX {
            let answer = self.get(&format!("/api/traces/{:032x}", trace.trace_id)).await;
            let is_of_a_request = |bytes: &&[u8]| *bytes == OF_A_REQUEST;
            let came = answer.map_or(0, |answer| {
                answer.windows(OF_A_REQUEST.len()).filter(is_of_a_request).count()
            });
            if came >= requests {
                return true;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        false
    }

    /// What the API answers, over a connection of its own.
    async fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        let stream = TcpStream::connect(self.server.api()).await?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = http::Request::get(path).header("host", self.server.api().to_string());
        let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        let body = answer.into_body().collect().await?.to_bytes();
        connection.abort();
        Ok(body)
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

/// This program's path as it was called, so that the command works without an installation.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let fits = (1..=60).contains(&called.len()) && called.bytes().all(is_plain);
    if fits { called } else { "curtail".to_owned() }
}
