//! Requests over HTTP/1.1, one after the other on a connection.

use super::flight::{DueRequest, RequestFailure};
use super::response::ResponseReader;
use super::worker::ConnectionTask;
use crate::workload::Request;
use curtail_http::stream::Stream;
use curtail_load::Failure;
use std::future::poll_fn;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

/// How much is read at once.
const READ_BYTES: usize = 32 << 10;

/// Sends requests until the connection closes or nothing is left to send.
pub(super) async fn serve(held: ConnectionTask, mut stream: Stream) {
    let load = &held.worker.load;
    let mut out = Vec::with_capacity(1_024);
    let mut buffer = Buffer::new();
    while let Some(due) = poll_fn(|cx| next(&held, &mut stream, &mut buffer, cx)).await {
        let request = load.workload.request(due.choice);
        out.clear();
        write_head_and_body(&held, request, due, &mut out);
        let abort = held.connection.abort_handle();
        let key = held.with_flights(|flights, now| flights.begin(due, now, abort));
        let mut answer = ResponseReader::new(&request.expect, request.method == http::Method::HEAD);
        let result = exchange(&mut stream, &out, &mut buffer, &mut answer).await;
        let goes_on = result.is_ok() && answer.goes_on() && load.keep_alive && buffer.is_empty();
        let result = result.and_then(|()| answer.judge());
        held.finish(key, buffer.take_received(), result);
        if !goes_on {
            break;
        }
    }
}

/// The next request to send; nothing when there is none, or the server has closed the connection meanwhile.
fn next(
    held: &ConnectionTask,
    stream: &mut Stream,
    buffer: &mut Buffer,
    cx: &mut Context<'_>,
) -> Poll<Option<DueRequest>> {
    // A server that says something without being asked is about to close, or is no server of HTTP.
    let mut unasked = ReadBuf::new(&mut buffer.bytes[..1]);
    match Pin::new(stream).poll_read(cx, &mut unasked) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => held.poll_due(cx),
    }
}

async fn exchange(
    stream: &mut Stream,
    out: &[u8],
    buffer: &mut Buffer,
    answer: &mut ResponseReader<'_>,
) -> Result<(), RequestFailure> {
    let closed = |error: std::io::Error| {
        RequestFailure::new(Failure::Closed, format!("the connection failed: {error}"))
    };
    stream.write_all(out).await.map_err(closed)?;
    loop {
        let n = stream.read(buffer.space()).await.map_err(closed)?;
        if n == 0 {
            return answer.closed();
        }
        buffer.came(n);
        let used = answer.feed(buffer.unread())?;
        buffer.used(used);
        if answer.is_done() {
            return Ok(());
        }
    }
}

fn write_head_and_body(
    held: &ConnectionTask,
    request: &Request,
    due: DueRequest,
    out: &mut Vec<u8>,
) {
    let load = &held.worker.load;
    let filling = load.workload.filling(due.choice);
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    request.path.fill(&filling, out);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let has = |name: http::HeaderName| request.headers.iter().any(|(known, _)| *known == name);
    if !has(http::header::HOST) {
        field(out, "host", load.target.authority.as_bytes());
    }
    for (name, value) in &request.headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        value.fill(&filling, out);
        out.extend_from_slice(b"\r\n");
    }
    if !load.keep_alive {
        field(out, "connection", b"close");
    }
    let body = request.body.filled(&filling);
    if !body.is_empty() || request.method == http::Method::POST {
        write!(out, "content-length: {}\r\n", body.len()).expect("a vector takes all");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&body);
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// What has come and was not used yet. It grows only for heads, which are bounded.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    received: u64,
}

impl Buffer {
    fn new() -> Self {
        Self { bytes: vec![0; READ_BYTES], from: 0, to: 0, received: 0 }
    }

    const fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Where more can be read to.
    fn space(&mut self) -> &mut [u8] {
        if self.is_empty() {
            (self.from, self.to) = (0, 0);
        } else if self.to == self.bytes.len() {
            self.bytes.copy_within(self.from.., 0);
            (self.from, self.to) = (0, self.to - self.from);
            if self.to == self.bytes.len() {
                self.bytes.resize(2 * self.to, 0);
            }
        }
        &mut self.bytes[self.to..]
    }

    fn came(&mut self, n: usize) {
        self.to += n;
        self.received += n as u64;
    }

    fn unread(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    fn used(&mut self, n: usize) {
        self.from += n;
    }

    /// How many bytes came since the last time.
    fn take_received(&mut self) -> u64 {
        std::mem::take(&mut self.received)
    }
}
