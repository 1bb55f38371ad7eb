//! Hostile replicas over HTTP/1.1.

use super::super::process::ProxyProcess;
use super::super::replicas::ClientGets;
use super::super::{
    LIMITS, NEIGHBOR_REQUESTS, Neighbors, ROW_DEADLINE, Results, check_memory, neighbor_failure,
    section,
};
use super::{Parts, send};
use crate::deadline::run_within;
use crate::proxy::Setup;
use crate::raw_replica::{RawReplica, response};
use ClientGets::{Broken, Status};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

/// A hostile replica. `sends` responds to one POST, whatever comes of its connection.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// The section of RFC 9112, or of the RFC that is named.
    rfc: &'static str,
    sends: Parts,
    allows: &'static [ClientGets],
}

const fn row(
    name: &'static str,
    rfc: &'static str,
    sends: Parts,
    allows: &'static [ClientGets],
) -> Row {
    Row { name, rfc, sends, allows }
}

/// Many times a text of 16 bytes: 128 MiB.
const ENDLESS: usize = 8 << 20;

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

/// The same for a response that is complete: the replica serves no further request on its connection.
const CHUNKED_LAST: &str =
    "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";

const TOO_SLOW: &[ClientGets] = &[Status(504)];
const REJECTED: &[ClientGets] = &[Status(502)];
const CUT_OFF: &[ClientGets] = &[Broken, Status(502)];

pub(super) const ROWS: &[Row] = &[
    row("HTTP/1.1 replica: not a byte", "9.5", &[], TOO_SLOW),
    row("HTTP/1.1 replica: half a status line", "9.5", &[("HTTP/1.1 2", 1)], TOO_SLOW),
    row("HTTP/1.1 replica: half a head", "9.5", &[("HTTP/1.1 200 OK\r\nx: y\r\n", 1)], TOO_SLOW),
    row("HTTP/1.1 replica: a body that never begins", "9.5", &[(CHUNKED, 1)], CUT_OFF),
    row("HTTP/1.1 replica: half a chunk", "9.5", &[(CHUNKED, 1), ("9\r\nhalf", 1)], CUT_OFF),
    row(
        "HTTP/1.1 replica: half a body",
        "9.5",
        &[("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nhalf", 1)],
        CUT_OFF,
    ),
    row(
        "HTTP/1.1 replica: a status line without end",
        "4",
        &[("HTTP/1.1 200 OK", 1), ("aaaaaaaaaaaaaaaa", ENDLESS)],
        REJECTED,
    ),
    row(
        "HTTP/1.1 replica: a field without end",
        "5",
        &[("HTTP/1.1 200 OK\r\nx: ", 1), ("aaaaaaaaaaaaaaaa", ENDLESS)],
        REJECTED,
    ),
    row(
        "HTTP/1.1 replica: fields without end",
        "5",
        &[("HTTP/1.1 200 OK\r\n", 1), ("x-header: a b\r\n", ENDLESS)],
        REJECTED,
    ),
    row(
        "HTTP/1.1 replica: interim responses without end",
        "RFC 9110, 15.2",
        &[("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n", ENDLESS / 2)],
        REJECTED,
    ),
    row(
        "HTTP/1.1 replica: \"100 Continue\" without end",
        "RFC 9110, 15.2.1",
        &[("HTTP/1.1 100 Continue\r\n\r\n", ENDLESS / 2)],
        REJECTED,
    ),
    row(
        "HTTP/1.1 replica: a chunk size without end",
        "7.1",
        &[(CHUNKED, 1), ("0000000000000000", ENDLESS)],
        CUT_OFF,
    ),
    row(
        "HTTP/1.1 replica: a chunk extension without end",
        "7.1.1",
        &[(CHUNKED, 1), ("1;", 1), ("aaaaaaaaaaaaaaaa", ENDLESS)],
        CUT_OFF,
    ),
    row(
        "HTTP/1.1 replica: trailers without end",
        "7.1.2",
        &[(CHUNKED, 1), ("0\r\n", 1), ("x-trailer: a b\r\n", ENDLESS)],
        CUT_OFF,
    ),
    row(
        "HTTP/1.1 replica: a flood of chunks of one byte",
        "7.1",
        &[(CHUNKED_LAST, 1), ("1\r\nx\r\n", 50_000), ("0\r\n\r\n", 1)],
        &[Status(200)],
    ),
    row(
        "HTTP/1.1 replica: more bytes than announced",
        "9.2",
        &[("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 1), ("aaaaaaaaaaaaaaaa", ENDLESS)],
        &[Status(200)],
    ),
];

async fn run_row(row: &'static Row) -> Option<String> {
    let replica = RawReplica::start(move |mut wire, record, _| async move {
        loop {
            let Some(request) = record.read(&mut wire).await else { return };
            if request.head.request().0 == "GET" {
                wire.send(response("good")).await;
                continue;
            }
            let mut stream = wire.into_stream();
            if send(&mut stream, row.sends).await.is_ok() {
                // Silent until the proxy closes the connection.
                while stream.read(&mut [0; 1_024]).await.is_ok_and(|len| len > 0) {}
            }
            return;
        }
    })
    .await;
    let upstream = "hedge: false\ntimeout: 2s";
    let setup = Setup::before(&[replica.address()]).workers(1).top(LIMITS).upstream(upstream);
    let proxy = ProxyProcess::start(&setup.yaml()).await;
    let neighbors = Neighbors::start(proxy.address()).await;
    neighbors.progress(1).await;
    let before = proxy.reset_peak();
    let client = ClientGets::of_post(proxy.address());
    let both = async { tokio::join!(client, neighbors.progress(NEIGHBOR_REQUESTS)).0 };
    let gets = tokio::time::timeout(ROW_DEADLINE, both).await;
    let memory = check_memory(row.name, &proxy, before);
    neighbors.stop().await;
    let (rfc, allows) = (section(9112, row.rfc), row.allows);
    match gets {
        Err(_) => Some(format!("no outcome after {ROW_DEADLINE:?}, {rfc} allows {allows:?}")),
        Ok(gets) if !allows.contains(&gets) => {
            Some(format!("the client gets {gets:?}, {rfc} allows {allows:?}"))
        }
        Ok(_) => memory,
    }
}

#[test]
fn hostile_http_1_replicas_disturb_nobody() {
    run_within(Duration::from_secs(300), async {
        let mut results = Results::default();
        for row in ROWS {
            let failure = tokio::spawn(run_row(row)).await;
            let failure = failure.unwrap_or_else(|error| Some(neighbor_failure(error)));
            results.note(row.name, "clear text", failure);
        }
        results.finish();
    });
}
