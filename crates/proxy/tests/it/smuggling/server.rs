//! A server behind the proxy that records each request exactly as it arrives.
//!
//! Its parser accepts only the unambiguous form that the proxy must write. It reports anything else, for example two
//! framing headers, as a malformed request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// The fields that the proxy adds to each request of a client of these tests.
const ADDED: [&str; 2] = ["x-forwarded-proto: http", "x-forwarded-for: 127.0.0.1"];

/// The separator between the parts of a recorded request: head, body, trailers.
const PART: &str = " || ";

/// A server that runs until it is dropped.
#[derive(Debug)]
pub(super) struct RecordingServer {
    address: SocketAddr,
    record: Arc<Record>,
    accepting: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Record {
    state: Mutex<RecordState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct RecordState {
    requests: Vec<String>,
    incomplete: Vec<IncompleteRequest>,
    open_connections: usize,
}

/// A request whose connection ended before the request did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IncompleteRequest {
    /// The target; empty if the request line is incomplete.
    pub(super) target: String,
    /// The part of the body that arrived.
    pub(super) body: String,
}

impl RecordingServer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let record = Arc::new(Record::default());
        let shared = Arc::clone(&record);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("connections come");
                stream.set_nodelay(true).expect("a TCP connection");
                shared.lock().open_connections += 1;
                let record = Arc::clone(&shared);
                tokio::spawn(async move {
                    serve(stream, &record, address).await;
                    record.lock().open_connections -= 1;
                    record.changed.notify_waiters();
                });
            }
        });
        Self { address, record, accepting }
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The complete requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.record.lock().requests.clone()
    }

    /// Waits until all connections have ended; returns the incomplete requests.
    pub(super) async fn into_incomplete(self) -> Vec<IncompleteRequest> {
        loop {
            let changed = self.record.changed.notified();
            if self.record.lock().open_connections == 0 {
                return self.record.lock().incomplete.clone();
            }
            changed.await;
        }
    }
}

impl Drop for RecordingServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Record {
    fn lock(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Responds to each request with its method and target, until the proxy closes the connection.
async fn serve(mut stream: TcpStream, record: &Record, address: SocketAddr) {
    let mut read = Vec::new();
    loop {
        match parse(&read) {
            Ok(Some((request, len))) => {
                drop(read.drain(..len));
                let text = request.text(address);
                record.lock().requests.push(text);
                let seen = request.seen();
                let body = if request.method == "HEAD" { "" } else { &seen };
                let len = body.len();
                let response = format!(
                    "HTTP/1.1 200 OK\r\nx-seen: {seen}\r\ncontent-length: {len}\r\n\r\n{body}"
                );
                if stream.write_all(response.as_bytes()).await.is_err() {
                    return;
                }
            }
            Ok(None) => {
                if !matches!(stream.read_buf(&mut read).await, Ok(1..)) {
                    if !read.is_empty() {
                        record.lock().incomplete.push(incomplete(&read));
                    }
                    return;
                }
            }
            Err(why) => {
                let text = format!("malformed, {why}: {}", read.escape_ascii());
                record.lock().requests.push(text);
                return;
            }
        }
    }
}

#[derive(Debug, Default)]
struct Request {
    method: String,
    target: String,
    fields: Vec<String>,
    body: Vec<u8>,
    trailers: Vec<String>,
}

impl Request {
    /// What a response says about its request.
    fn seen(&self) -> String {
        format!("{} {}", self.method, self.target)
    }

    /// The request in the form of the tables of expectations, without the fields that the proxy adds to each request.
    fn text(&self, address: SocketAddr) -> String {
        let mut fields = self.fields.clone();
        for added in ADDED {
            match fields.iter().position(|field| field == added) {
                Some(at) => drop(fields.remove(at)),
                None => fields.push(format!("(no {added})")),
            }
        }
        fields.insert(0, self.seen());
        let mut text = fields.join(" | ").replace(&address.to_string(), "REPLICA");
        if !self.body.is_empty() || !self.trailers.is_empty() {
            text += PART;
            text += &self.body.escape_ascii().to_string();
        }
        if !self.trailers.is_empty() {
            text += PART;
            text += &self.trailers.join(" | ");
        }
        text
    }
}

/// Parses the request at the start of `read`; returns it with its length, [`None`] if it is incomplete.
fn parse(read: &[u8]) -> Result<Option<(Request, usize)>, &'static str> {
    let Some(head_len) = end_of_lines(read) else { return Ok(None) };
    let mut request = head(&read[..head_len])?;
    let named = |name: &str| -> Vec<String> {
        let values = request.fields.iter().filter_map(|field| field.split_once(": "));
        values.filter(|(n, _)| *n == name).map(|(_, value)| value.to_owned()).collect()
    };
    let (lengths, codings) = (named("content-length"), named("transfer-encoding"));
    let rest = &read[head_len..];
    match (&lengths[..], &codings[..]) {
        ([], []) => Ok(Some((request, head_len))),
        ([length], []) => {
            let len = length.parse::<usize>().map_err(|_| "the length is not a number")?;
            let Some(body) = rest.get(..len) else { return Ok(None) };
            request.body = body.to_vec();
            Ok(Some((request, head_len + len)))
        }
        ([], [coding]) if coding == "chunked" => {
            let (data, trailers) = chunks(rest)?;
            request.body = data;
            let Some(trailers) = trailers else { return Ok(None) };
            let is_empty = trailers.starts_with(b"\r\n");
            let len = if is_empty { Some(2) } else { end_of_lines(trailers) };
            let Some(len) = len else { return Ok(None) };
            if !is_empty {
                request.trailers = fields(&trailers[..len - 2])?;
            }
            let before = rest.len() - trailers.len();
            Ok(Some((request, head_len + before + len)))
        }
        _ => Err("not exactly one framing"),
    }
}

/// The data of all complete and incomplete chunks, and the bytes after the last chunk if it has arrived.
fn chunks(mut rest: &[u8]) -> Result<(Vec<u8>, Option<&[u8]>), &'static str> {
    let mut data = Vec::new();
    loop {
        let Some(line) = find(rest, b"\r\n") else { return Ok((data, None)) };
        let size = std::str::from_utf8(&rest[..line]).map_err(|_| "the chunk size is not text")?;
        let is_hex = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = usize::from_str_radix(size, 16).ok().filter(|_| is_hex);
        let size = size.ok_or("the chunk size is not a number")?;
        rest = &rest[line + 2..];
        if size == 0 {
            return Ok((data, Some(rest)));
        }
        data.extend_from_slice(&rest[..size.min(rest.len())]);
        match rest.get(size..size + 2) {
            Some(b"\r\n") => rest = &rest[size + 2..],
            Some(_) => return Err("a chunk is longer than its size"),
            None => return Ok((data, None)),
        }
    }
}

/// Parses a head, with its empty line.
fn head(bytes: &[u8]) -> Result<Request, &'static str> {
    let line = find(bytes, b"\r\n").ok_or("no line")?;
    let start = bytes[..line].escape_ascii().to_string();
    let words: Vec<&str> = start.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else { return Err("no request line") };
    let fields = fields(&bytes[line + 2..bytes.len() - 2])?;
    let (method, target) = (method.to_owned(), target.to_owned());
    Ok(Request { method, target, fields, ..Request::default() })
}

/// Parses lines of fields, each with its end.
fn fields(lines: &[u8]) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = lines;
    while let Some(end) = find(rest, b"\r\n") {
        let line = &rest[..end];
        rest = &rest[end + 2..];
        let name_len = line.iter().position(|byte| *byte == b':').ok_or("a field has no colon")?;
        let is_token =
            |byte: &u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte);
        if name_len == 0 || !line[..name_len].iter().all(is_token) {
            return Err("a field has no valid name");
        }
        if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err("a field has a control character");
        }
        fields.push(line.escape_ascii().to_string());
    }
    if rest.is_empty() { Ok(fields) } else { Err("bytes after the last field") }
}

fn incomplete(read: &[u8]) -> IncompleteRequest {
    let head_len = end_of_lines(read);
    let line = &read[..find(read, b"\r\n").unwrap_or_default()];
    let target = line.escape_ascii().to_string();
    let target = target.split(' ').nth(1).unwrap_or_default().to_owned();
    let rest = &read[head_len.unwrap_or(read.len())..];
    let is_chunked =
        head_len.is_some_and(|len| find(&read[..len], b"\ntransfer-encoding:").is_some());
    let body = match chunks(rest) {
        _ if !is_chunked => rest.escape_ascii().to_string(),
        Ok((data, _)) => data.escape_ascii().to_string(),
        Err(why) => why.to_owned(),
    };
    IncompleteRequest { target, body }
}

fn end_of_lines(read: &[u8]) -> Option<usize> {
    find(read, b"\r\n\r\n").map(|at| at + 4)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
