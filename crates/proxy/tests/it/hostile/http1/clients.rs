//! Hostile clients over HTTP/1.1.

use super::super::process::ProxyProcess;
use super::super::{
    Allowed, LIMITS, NEIGHBOR_REQUESTS, Neighbors, Outcome, ROW_DEADLINE, Reads, Results,
    check_memory, section,
};
use super::{Parts, send};
use crate::deadline::run_within;
use crate::proxy::Setup;
use crate::raw_replica::{self, RawReplica};
use Allowed::{Closes, Responds, Serves};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A hostile client.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// The section of RFC 9112, or of the RFC that is named.
    rfc: &'static str,
    sends: Parts,
    reads: Reads,
    allows: &'static [Allowed],
}

const fn row(
    name: &'static str,
    rfc: &'static str,
    sends: Parts,
    reads: Reads,
    allows: &'static [Allowed],
) -> Row {
    Row { name, rfc, sends, reads, allows }
}

/// The next request of a client that is served; it ends the connection.
const NEXT: &str = "GET /next HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";

const GET: &str = "GET /steady HTTP/1.1\r\nhost: h\r\n\r\n";
const LARGE: &str = "GET /large HTTP/1.1\r\nhost: h\r\n\r\n";
const LONG: &str = "GET /long HTTP/1.1\r\nhost: h\r\n\r\n";
const POST: &str = "POST /read HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n";

/// Many times a text of 16 bytes: 128 MiB.
const ENDLESS: usize = 8 << 20;

const TOO_SLOW: &[Allowed] = &[Responds(&[408]), Closes];
const HEAD_TOO_LONG: &[Allowed] = &[Responds(&[400, 414, 431]), Closes];
const BODY_BROKEN: &[Allowed] = &[Responds(&[400, 413, 431]), Closes];

pub(super) const ROWS: &[Row] = &[
    // Clients that stop.
    row("HTTP/1.1: not a byte", "9.5", &[], Reads::All, TOO_SLOW),
    row("HTTP/1.1: half a request line", "9.5", &[("GET /ste", 1)], Reads::All, TOO_SLOW),
    row(
        "HTTP/1.1: half a head",
        "9.5",
        &[("GET / HTTP/1.1\r\nhost: h\r\n", 1)],
        Reads::All,
        TOO_SLOW,
    ),
    row(
        "HTTP/1.1: half a head after a request",
        "9.5",
        &[(GET, 1), ("GET / HT", 1)],
        Reads::All,
        TOO_SLOW,
    ),
    row("HTTP/1.1: a body that never begins", "9.5", &[(POST, 1)], Reads::All, TOO_SLOW),
    row("HTTP/1.1: half a chunk", "9.5", &[(POST, 1), ("9\r\nhalf", 1)], Reads::All, TOO_SLOW),
    row("HTTP/1.1: half a chunk size", "9.5", &[(POST, 1), ("9", 1)], Reads::All, TOO_SLOW),
    row(
        "HTTP/1.1: half of the trailers",
        "9.5",
        &[(POST, 1), ("0\r\nx: y\r\n", 1)],
        Reads::All,
        TOO_SLOW,
    ),
    row("HTTP/1.1: a client that reads nothing", "9.5", &[(LONG, 1)], Reads::Nothing, &[Closes]),
    row(
        "HTTP/1.1: a client that reads a byte at a time",
        "9.5",
        &[(LONG, 1)],
        Reads::Slowly,
        &[Closes],
    ),
    row(
        "HTTP/1.1: requests whose responses are not read",
        "9.3.2",
        &[(LARGE, 100_000)],
        Reads::Nothing,
        &[Closes],
    ),
    // Clients that never end.
    row(
        "HTTP/1.1: a method without end",
        "3",
        &[("GETGETGETGETGETG", ENDLESS)],
        Reads::All,
        &[Responds(&[400, 414, 431, 501]), Closes],
    ),
    row(
        "HTTP/1.1: a target without end",
        "3",
        &[("GET /", 1), ("aaaaaaaaaaaaaaaa", ENDLESS)],
        Reads::All,
        HEAD_TOO_LONG,
    ),
    row(
        "HTTP/1.1: a field without end",
        "5",
        &[("GET / HTTP/1.1\r\nhost: h\r\nx: ", 1), ("aaaaaaaaaaaaaaaa", ENDLESS)],
        Reads::All,
        HEAD_TOO_LONG,
    ),
    row(
        "HTTP/1.1: fields without end",
        "5",
        &[("GET / HTTP/1.1\r\nhost: h\r\n", 1), ("x-header: a b\r\n", ENDLESS)],
        Reads::All,
        HEAD_TOO_LONG,
    ),
    row(
        "HTTP/1.1: empty lines without end",
        "2.2",
        &[("\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n", ENDLESS)],
        Reads::All,
        HEAD_TOO_LONG,
    ),
    row(
        "HTTP/1.1: a chunk size without end",
        "7.1",
        &[(POST, 1), ("0000000000000000", ENDLESS)],
        Reads::All,
        BODY_BROKEN,
    ),
    row(
        "HTTP/1.1: a chunk extension without end",
        "7.1.1",
        &[(POST, 1), ("1;", 1), ("aaaaaaaaaaaaaaaa", ENDLESS)],
        Reads::All,
        BODY_BROKEN,
    ),
    row(
        "HTTP/1.1: trailers without end",
        "7.1.2",
        &[(POST, 1), ("0\r\n", 1), ("x-trailer: a b\r\n", ENDLESS)],
        Reads::All,
        BODY_BROKEN,
    ),
    row(
        "HTTP/1.1: a chunk larger than all numbers",
        "7.1",
        &[(POST, 1), ("ffffffffffffffffff\r\n", 1)],
        Reads::All,
        BODY_BROKEN,
    ),
    // Valid, but expensive.
    row(
        "HTTP/1.1: a flood of chunks of one byte",
        "7.1",
        &[(POST, 1), ("1\r\nx\r\n", 500_000), ("0\r\n\r\n", 1)],
        Reads::All,
        &[Serves, Responds(&[400, 413]), Closes],
    ),
    row(
        "HTTP/1.1: a flood of chunks with extensions",
        "7.1.1",
        &[(POST, 1), ("1;extension=value\r\nx\r\n", 100_000), ("0\r\n\r\n", 1)],
        Reads::All,
        &[Serves, Responds(&[400, 413]), Closes],
    ),
    row("HTTP/1.1: a flood of pipelined requests", "9.3.2", &[(GET, 500)], Reads::All, &[Serves]),
    row(
        "HTTP/1.1: a flood of expectations",
        "RFC 9110, 10.1.1",
        &[(
            "POST /read HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\nx",
            100,
        )],
        Reads::All,
        &[Serves],
    ),
    row(
        "HTTP/1.1: empty lines before a request",
        "2.2",
        &[("\r\n", 3)],
        Reads::All,
        &[Serves, Responds(&[400])],
    ),
];

/// The status of the last response, whether the next request was among them.
fn outcome(received: &[u8]) -> Outcome {
    let starts = received.windows(9).enumerate().filter(|(_, nine)| nine == b"HTTP/1.1 ");
    let status = |(at, _): (usize, &[u8])| {
        std::str::from_utf8(received.get(at + 9..at + 12)?).ok()?.parse::<u16>().ok()
    };
    match starts.filter_map(status).next_back() {
        Some(204) => Outcome::Served,
        Some(status) if status >= 400 => Outcome::Responded(status),
        _ => Outcome::Closed,
    }
}

/// A replica whose response to `/long` never ends.
async fn replica() -> RawReplica {
    RawReplica::start(|mut wire, record, _| async move {
        while let Ok(Some(head)) = wire.read_head().await {
            let path = head.request().1;
            let is_chunked = head.get("transfer-encoding").is_some();
            while is_chunked && wire.read_chunk().await.is_ok_and(|chunk| !chunk.is_empty()) {}
            let is_over = !is_chunked || wire.read_line().await.is_ok();
            if let Some(len) = head.get("content-length") {
                wire.read_exact(len.parse().expect("a number of bytes")).await.ok();
            }
            let response = match path {
                "/next" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
                "/long" => {
                    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
                    let mut sent = wire.write(head).await;
                    while sent.is_ok() {
                        sent = wire.write(vec![b'x'; 1 << 16]).await;
                    }
                    return;
                }
                "/large" => raw_replica::response(&"x".repeat(64 << 10)),
                _ => raw_replica::response("good"),
            };
            if !is_over || wire.write(response).await.is_err() {
                return;
            }
        }
        drop(record);
    })
    .await
}

async fn run_row(row: &Row, proxy: &ProxyProcess, neighbors: &Neighbors) -> Option<String> {
    let before = proxy.reset_peak();
    let mut stream = TcpStream::connect(proxy.address()).await.expect("the proxy listens");
    proxy
        .until(|metrics| {
            metrics.sum("curtail_client_connections_open", &[]) > Neighbors::CONNECTIONS
        })
        .await;
    let is_cut_off = proxy.until_clients(Neighbors::CONNECTIONS);
    let (mut reader, mut writer) = stream.split();
    let writing = async {
        let sent = send(&mut writer, row.sends).await;
        if sent.is_ok() && row.allows.contains(&Serves) {
            writer.write_all(NEXT.as_bytes()).await.ok();
        }
        std::future::pending::<std::convert::Infallible>().await
    };
    let mut received = Vec::new();
    let reading = async {
        match row.reads {
            Reads::Nothing => is_cut_off.await,
            Reads::Slowly => {
                let slowly = async {
                    loop {
                        neighbors.progress(1).await;
                        if reader.read_exact(&mut [0]).await.is_err() {
                            return;
                        }
                    }
                };
                tokio::select! { () = slowly => {}, () = is_cut_off => {} }
            }
            Reads::All | Reads::Deaf | Reads::ByteByByte => {
                while reader.read_buf(&mut received).await.is_ok_and(|len| len > 0) {}
            }
        }
    };
    let exchange = async {
        tokio::select! {
            () = reading => {}
            never = writing => match never {},
        }
    };
    let both = async { tokio::join!(exchange, neighbors.progress(NEIGHBOR_REQUESTS)) };
    let ended = tokio::time::timeout(ROW_DEADLINE, both).await;
    let memory = check_memory(row.name, proxy, before);
    drop(stream);
    let (rfc, allows) = (section(9112, row.rfc), row.allows);
    if ended.is_err() {
        return Some(format!("no outcome after {ROW_DEADLINE:?}, {rfc} allows {allows:?}"));
    }
    proxy.until_clients(Neighbors::CONNECTIONS).await;
    let outcome = outcome(&received);
    let is_allowed = outcome.is_allowed(allows);
    if is_allowed { memory } else { Some(format!("{outcome:?}, {rfc} allows {allows:?}")) }
}

#[test]
fn hostile_http_1_clients_disturb_nobody() {
    run_within(Duration::from_secs(300), async {
        let replica = replica().await;
        let upstream = "hedge: false\nretry: false\ntimeout: 1h";
        let setup = Setup::before(&[replica.address()]).workers(1).top(LIMITS).upstream(upstream);
        let proxy = ProxyProcess::start(&setup.yaml()).await;
        let neighbors = Neighbors::start(proxy.address()).await;
        neighbors.progress(1).await;
        let mut results = Results::default();
        for row in ROWS {
            let failure = run_row(row, &proxy, &neighbors).await;
            results.note(row.name, "clear text", failure);
        }
        neighbors.stop().await;
        results.finish();
    });
}
