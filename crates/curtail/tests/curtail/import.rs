//! `curtail import`, over real sockets: into `curtail server`, and into servers that are full, unavailable or not OTLP receivers.

use crate::command::{Ended, curtail, written};
use crate::server::{Server, folder};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

/// One line each, made by OpenTelemetry's own classes.
const TRACES: &str = include_str!("../../../otlp/tests/golden/traces.json");
const LOGS: &str = include_str!("../../../otlp/tests/golden/logs.json");
const METRICS: &str = include_str!("../../../otlp/tests/golden/metrics.json");
const TRACES_PB: &[u8] = include_bytes!("../../../otlp/tests/golden/traces.pb");

const ACCEPTED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn import(to: SocketAddr, arguments: &[&str]) -> Ended {
    let to = format!("http://{to}");
    curtail(&[&["import", "--to", &to], arguments].concat())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("compressed")
}

fn framed(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).expect("short");
    [&len.to_be_bytes()[..], message].concat()
}

#[test]
fn files_of_every_form_come_to_the_server() {
    let server = Server::start(&folder("import-forms"));
    let files = [
        written("import-traces.jsonl", TRACES),
        written("import-logs.jsonl.gz", gzip(LOGS.repeat(3).as_bytes())),
        written("import-metrics.jsonl.zst", zstd(METRICS.as_bytes())),
        written("import-framed.bin", framed(&zstd(TRACES.as_bytes()))),
    ];
    let ended = import(server.otlp, &files.each_ref().map(|file| &**file));
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{}", ended.stdout);
    let summary = "6 lines, 0 malformed; 4 spans, 42 logs and 6 points accepted, 0 rejected\n";
    assert_eq!(ended.stdout, summary);
    let file = written("import-traces.binpb", framed(TRACES_PB).repeat(2));
    let ended = import(server.otlp, &["--of", "traces", &file]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{}", ended.stdout);
    // Both files and both tables had the span: it was sent again, but is stored once.
    assert_eq!(server.trace().matches("\"name\":\"GET /\"").count(), 1);
    server.ended("TERM");
}

#[test]
fn standard_input_is_a_file_too() {
    let server = Server::start(&folder("import-stdin"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_curtail"))
        .args(["import", "--to", &format!("http://{}", server.otlp), "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command was built for this test");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(&gzip(TRACES.as_bytes())).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it was not waited for before");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("2 spans"), "{output:?}");
    assert!(server.trace().contains("\"name\":\"GET /\""));
    server.ended("TERM");
}

#[test]
fn a_bad_line_is_named_and_the_others_go_on() {
    let server = Server::start(&folder("import-bad"));
    let cut = &TRACES[..100];
    let zero = TRACES.replace("0102030405060708090a0b0c0d0e0f10", &"0".repeat(32));
    let file = written("import-bad.jsonl", format!("{LOGS}\n{cut}\n{zero}{TRACES}no JSON\n"));
    let ended = import(server.otlp, &[&file]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let summary = "5 lines, 2 malformed; 2 spans, 14 logs and 0 points accepted, 2 rejected\n";
    assert_eq!(ended.stdout, summary, "{}", ended.stderr);
    let lines: Vec<_> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("import-bad.jsonl:3: byte 100: EOF while parsing"), "{lines:?}");
    let what = "expected an object with resourceSpans, resourceLogs or resourceMetrics";
    assert_eq!(lines[1], format!("import-bad.jsonl:6: byte 1: {what}"));
    let message = "2 rejected; the first is number 1 of the batch, span 1112131415161718: its trace ID is not 16 bytes, \
                   or zero";
    assert_eq!(lines[2], format!("import-bad.jsonl:4-5: {message}"));
    assert!(server.trace().contains("\"name\":\"GET /\""));
    let many = import(server.otlp, &[&written("import-many.jsonl", "no JSON\n".repeat(150))]);
    assert_eq!(many.code, Some(1), "{}", many.stderr);
    assert!(many.stdout.starts_with("150 lines, 150 malformed; "), "{}", many.stdout);
    assert_eq!(many.stderr.lines().count(), 11, "{}", many.stderr);
    // The errors of one file do not hide that the rest of another file is lost.
    let cut = gzip(TRACES.as_bytes());
    let lost = written("import-lost.jsonl.gz", &cut[..cut.len() / 2]);
    let both = import(server.otlp, &["import-many.jsonl", &lost]);
    assert!(
        both.stderr.contains("import-lost.jsonl.gz:1: cannot be read beyond"),
        "{}",
        both.stderr
    );
    server.ended("TERM");
}

/// Heads and bodies.
type Requests = Vec<(String, Vec<u8>)>;

/// A server that sends these responses, one after the other, and returns the requests. It closes the connection for an
/// empty response.
fn responding(responses: &'static [&'static str]) -> (SocketAddr, JoinHandle<Requests>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let serving = std::thread::spawn(move || {
        let (mut requests, mut responses) = (Vec::new(), responses.iter().peekable());
        while responses.peek().is_some() {
            let (mut stream, _) = listener.accept().expect("a connection");
            while let Some(request) = responses.peek().and_then(|_| request(&mut stream)) {
                requests.push(request);
                let response = responses.next().expect("one more");
                stream.write_all(response.as_bytes()).expect("it reads");
                if response.is_empty() {
                    break;
                }
            }
        }
        requests
    });
    (address, serving)
}

/// The next request of a connection: its head, and its body.
fn request(stream: &mut std::net::TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut more = [0; 4_096];
    loop {
        let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.expect("a length").parse().expect("a number");
            if bytes.len() == end + 4 + length {
                return Some((head, bytes.split_off(end + 4)));
            }
        }
        match stream.read(&mut more).expect("a request") {
            0 => return None,
            len => bytes.extend_from_slice(&more[..len]),
        }
    }
}

#[test]
fn a_full_server_is_retried() {
    let (address, serving) = responding(&[
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 429 Too Many Requests\r\nretry-after: 0\r\ncontent-length: 4\r\n\r\nfull",
        "",
        ACCEPTED,
    ]);
    let file = written("import-again.jsonl", TRACES);
    let token = written("import-again.token", "s3cret\n");
    let ended = import(address, &["--tenant", "shop", "--token-file", &token, &file]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("2 spans, 0 logs and 0 points accepted, 0 rejected"));
    assert_eq!(ended.stderr.lines().count(), 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("429 Too Many Requests; retry in 0ns"), "{}", ended.stderr);
    let requests = serving.join().expect("it has served");
    assert_eq!(requests.len(), 4);
    for (head, body) in &requests {
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nx-scope-orgid: shop"), "{head}");
        assert!(head.contains("\r\nauthorization: Bearer s3cret"), "{head}");
        assert_eq!(*body, requests[0].1);
    }
}

#[test]
fn patience_ends_with_the_position_of_the_first_batch_that_was_not_accepted() {
    let (address, serving) =
        responding(&[ACCEPTED, "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"]);
    let [first, second] =
        ["import-first.jsonl", "import-second.jsonl"].map(|name| written(name, TRACES));
    let ended = import(address, &["--patience", "0", &first, &second]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let expected = "import-second.jsonl:1: nothing was accepted from here on\n";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
    assert!(ended.stderr.contains("2 spans, 0 logs and 0 points accepted"), "{}", ended.stderr);
    assert!(ended.stderr.contains("503 Service Unavailable"), "{}", ended.stderr);
    assert_eq!(serving.join().expect("it has served").len(), 2);
}

#[test]
fn a_final_rejection_ends_the_import() {
    let (address, serving) =
        responding(&["HTTP/1.1 401 Unauthorized\r\ncontent-length: 8\r\n\r\nno token"]);
    let ended = import(address, &[&written("import-never.jsonl", LOGS)]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("401 Unauthorized: no token"), "{}", ended.stderr);
    assert_eq!(serving.join().expect("it has served").len(), 1);
    let ended = import(address, &["import-that-is-not-there.jsonl"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("import-that-is-not-there.jsonl"), "{}", ended.stderr);
    let ended = import(address, &["."]);
    let message = ".: expected a file, found a directory\n";
    assert_eq!((ended.code, &*ended.stderr), (Some(3), message), "{}", ended.stdout);
    for url in ["ftp://127.0.0.1:4318", "http://a:b@127.0.0.1:4318", "http://127.0.0.1:4318#x"] {
        let ended = curtail(&["import", "--to", url, "-"]);
        assert_eq!(ended.code, Some(2), "{url}");
        assert!(ended.stderr.contains("expected http://HOST:PORT"), "{}", ended.stderr);
    }
}
