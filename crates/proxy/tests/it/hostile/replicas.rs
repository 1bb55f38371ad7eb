//! Hostile replicas over HTTP/2: tables by topic, and how a row is run.
//!
//! A replica misbehaves on its first connection, once the first request has reached it on stream 1. It responds well to
//! the later requests of this connection, which are those of the neighbors, and to all requests of later connections.

mod floods;
mod stalls;
mod violations;

use super::process::ProxyProcess;
use super::script::Script;
use super::{
    Allowed, LIMITS, NEIGHBOR_REQUESTS, Neighbors, Outcome, ROW_DEADLINE, Results, check_memory,
    neighbor_failure, section,
};
use crate::deadline::run_within;
use crate::frames::{
    ACK, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM,
    SETTINGS, frame_bytes, read_frame,
};
use crate::raw_replica::{RawReplica, Record};
use crate::wire::Wire;
use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};

/// A hostile replica.
pub(super) struct Row {
    name: &'static str,
    /// The section of RFC 9113 that demands or allows the outcome, or of the RFC that is named.
    rfc: &'static str,
    sends: fn(&mut Script),
    /// Outcomes for the client of the first request.
    client: &'static [ClientGets],
    /// Outcomes for the replica.
    allows: &'static [Allowed],
    /// Whether the first request has a body of [`UPLOAD_BYTES`].
    has_upload: bool,
    /// Whether the replica stops reading when it misbehaves.
    is_deaf: bool,
    /// Whether the neighbors share the connection; otherwise it is blocked, and they use another upstream.
    is_shared: bool,
}

impl Row {
    const fn new(
        name: &'static str,
        rfc: &'static str,
        sends: fn(&mut Script),
        client: &'static [ClientGets],
        allows: &'static [Allowed],
    ) -> Self {
        let (has_upload, is_deaf, is_shared) = (false, false, true);
        Self { name, rfc, sends, client, allows, has_upload, is_deaf, is_shared }
    }

    const fn uploads(self) -> Self {
        Self { has_upload: true, ..self }
    }

    const fn reads_nothing(self) -> Self {
        Self { is_deaf: true, is_shared: false, ..self }
    }

    const fn blocks_its_connection(self) -> Self {
        Self { is_shared: false, ..self }
    }
}

/// What the client of a hostile replica gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientGets {
    /// A whole response with this status.
    Status(u16),
    /// The start of a response, and then the end of the connection.
    Broken,
}

/// More than the first window of a stream or connection.
const UPLOAD_BYTES: usize = 1 << 20;

impl ClientGets {
    /// Sends a POST without a body, which the proxy never repeats.
    pub(super) async fn of_post(proxy: SocketAddr) -> Self {
        Self::of(proxy, 0).await
    }

    async fn of(proxy: SocketAddr, len: usize) -> Self {
        let mut wire = Wire::connect(proxy).await;
        wire.send(format!("POST /bad HTTP/1.1\r\nhost: h\r\ncontent-length: {len}\r\n\r\n")).await;
        let mut sent = 0;
        while sent < len && wire.write(vec![b'x'; 1 << 14]).await.is_ok() {
            sent += 1 << 14;
        }
        match wire.read_final_message().await {
            Ok(Some(message)) => Self::Status(message.head.status()),
            Ok(None) | Err(_) => Self::Broken,
        }
    }
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    [stalls::ROWS, floods::ROWS, violations::ROWS].into_iter().flatten().map(|row| row.name)
}

/// What the replica has seen on its first connection.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Whether the first request has come.
    is_begun: bool,
    goaway: Option<u32>,
    reset: Option<u32>,
    is_closed: bool,
}

impl Seen {
    fn note(&mut self, frame: &Frame) {
        let code = |at: usize| {
            let code = frame.payload.get(at..at + 4)?;
            Some(u32::from_be_bytes(code.try_into().ok()?))
        };
        match frame.kind {
            HEADERS if frame.stream == 1 => self.is_begun = true,
            GOAWAY => self.goaway = code(4).or(self.goaway),
            RST_STREAM if frame.stream == 1 => self.reset = code(0),
            _ => {}
        }
    }

    const fn outcome(&self) -> Outcome {
        match *self {
            Self { is_closed: true, goaway: Some(code), .. } => Outcome::Ended(code),
            Self { is_closed: true, .. } => Outcome::Closed,
            Self { reset: Some(code), .. } => Outcome::Reset(code),
            _ => Outcome::Served,
        }
    }

    /// A connection on which the proxy announces an error is about to close.
    const fn is_settled(&self) -> bool {
        self.is_closed || !matches!(self.goaway, Some(code) if code != 0)
    }
}

/// A response with a status of the static table and a short body.
fn good(stream: u32) -> Vec<u8> {
    let head = frame_bytes(HEADERS, END_HEADERS, stream, &[0x88]);
    [head, frame_bytes(DATA, END_STREAM, stream, b"good")].concat()
}

enum ToSend {
    Reply(Vec<u8>),
    Script(Script),
}

/// Serves a connection; misbehaves as `row` says, if it is the first one.
async fn serve(wire: Wire, row: Option<&'static Row>, seen: watch::Sender<Seen>) {
    let (mut reader, mut writer) = wire.into_stream().into_split();
    let mut preface = [0; PREFACE.len()];
    if reader.read_exact(&mut preface).await.is_err() {
        return;
    }
    assert_eq!(preface, PREFACE);
    if writer.write_all(&frame_bytes(SETTINGS, 0, 0, &[])).await.is_err() {
        return;
    }
    let (sender, to_send) = mpsc::channel(1_024);
    let writing = async {
        write(writer, to_send).await;
        pending::<Infallible>().await
    };
    tokio::select! {
        () = read(reader, row, &seen, &sender) => {}
        never = writing => match never {},
    }
    if row.is_some() {
        seen.send_modify(|seen| seen.is_closed = true);
    }
}

/// Writes responses as they come, and between them a script until it is written. Ends when the proxy closes the connection.
async fn write(mut writer: OwnedWriteHalf, mut to_send: mpsc::Receiver<ToSend>) {
    let mut script = Vec::new();
    loop {
        let next = if script.is_empty() { to_send.recv().await } else { to_send.try_recv().ok() };
        let bytes = match next {
            Some(ToSend::Reply(bytes)) => bytes,
            Some(ToSend::Script(begun)) => {
                let parts = begun.parts().iter().rev();
                script = parts.map(|(bytes, times)| (bytes.clone(), *times)).collect();
                continue;
            }
            None => {
                let Some((bytes, times)) = script.last_mut() else { return };
                let bytes = bytes.clone();
                *times -= 1;
                if *times == 0 {
                    script.pop();
                }
                bytes
            }
        };
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn read(
    mut reader: OwnedReadHalf,
    row: Option<&'static Row>,
    seen: &watch::Sender<Seen>,
    to_send: &mpsc::Sender<ToSend>,
) {
    while let Ok(frame) = read_frame(&mut reader).await {
        let is_ack = frame.flags & ACK != 0;
        let is_first = row.is_some() && frame.stream == 1;
        let reply = match frame.kind {
            SETTINGS if !is_ack => Some(frame_bytes(SETTINGS, ACK, 0, &[])),
            PING if !is_ack => Some(frame_bytes(PING, ACK, 0, &frame.payload)),
            HEADERS | DATA if !is_first && frame.flags & END_STREAM != 0 => {
                Some(good(frame.stream))
            }
            _ => None,
        };
        if let Some(reply) = reply {
            to_send.send(ToSend::Reply(reply)).await.ok();
        }
        let Some(row) = row else { continue };
        seen.send_modify(|seen| seen.note(&frame));
        if is_first && frame.kind == HEADERS {
            to_send.send(ToSend::Script(Script::new(row.sends))).await.ok();
            if row.is_deaf {
                pending::<Infallible>().await;
            }
        }
    }
}

/// The proxy before a replica. If `steady` is there, it serves the neighbors.
async fn proxy(replica: &RawReplica, steady: Option<&RawReplica>) -> ProxyProcess {
    let connect = "{protocol: http2, http2_connections_max: 2, http2_stream_window: 64KiB}";
    let (route, upstream) = steady.map_or_else(Default::default, |steady| {
        let upstream = format!("  steady: {{replicas: [\"http://{}\"]}}\n", steady.address());
        ("{path_prefix: /steady, upstream: steady}, ", upstream)
    });
    ProxyProcess::start(&format!(
        "workers: 1\nlisteners: [{{address: \"127.0.0.1:0\"}}]\nadmin: {{address: \"127.0.0.1:0\"}}\n{LIMITS}\n\
         routes: [{route}{{upstream: service}}]\nupstreams:\n{upstream}  service:\n    \
         replicas: [\"http://{}\"]\n    hedge: false\n    timeout: 3s\n    connect: {connect}\n",
        replica.address(),
    ))
    .await
}

async fn run_row(row: &'static Row) -> Option<String> {
    let (seen, sees) = watch::channel(Seen::default());
    let replica = RawReplica::start(move |wire, _: Arc<Record>, nth| {
        serve(wire, (nth == 0).then_some(row), seen.clone())
    })
    .await;
    let elsewhere = RawReplica::responding("good").await;
    let proxy = proxy(&replica, (!row.is_shared).then_some(&elsewhere)).await;
    let before = proxy.reset_peak();
    let len = if row.has_upload { UPLOAD_BYTES } else { 0 };
    let client = tokio::spawn(ClientGets::of(proxy.address(), len));
    sees.clone().wait_for(|seen| seen.is_begun).await.expect("the replica runs");
    let neighbors = Neighbors::start(proxy.address()).await;
    let both = async {
        neighbors.progress(NEIGHBOR_REQUESTS).await;
        let gets = client.await.expect("no panic");
        // The reset of the stream follows the response to the client.
        let has_outcome = |seen: &Seen| {
            seen.is_settled()
                && (row.allows.contains(&Allowed::Serves) || seen.outcome() != Outcome::Served)
        };
        sees.clone().wait_for(has_outcome).await.expect("the replica runs");
        gets
    };
    let gets = tokio::time::timeout(ROW_DEADLINE, both).await;
    let outcome = sees.borrow().outcome();
    let memory = check_memory(row.name, &proxy, before);
    neighbors.stop().await;
    let Row { client, allows, .. } = row;
    let rfc = section(9113, row.rfc);
    match gets {
        Err(_) => Some(format!(
            "no outcome after {ROW_DEADLINE:?}, {rfc} allows {client:?} and {allows:?}"
        )),
        Ok(gets) if !client.contains(&gets) => {
            Some(format!("the client gets {gets:?}, {rfc} allows {client:?}"))
        }
        Ok(_) if !outcome.is_allowed(allows) => {
            Some(format!("{outcome:?}, {rfc} allows {allows:?}"))
        }
        Ok(_) => memory,
    }
}

fn run_table(rows: &'static [Row]) {
    run_within(Duration::from_secs(300), async {
        let mut results = Results::default();
        for row in rows {
            let failure = tokio::spawn(run_row(row)).await;
            let failure = failure.unwrap_or_else(|error| Some(neighbor_failure(error)));
            results.note(row.name, "clear text", failure);
        }
        results.finish();
    });
}

#[test]
fn replicas_that_stall_starve_no_stream_of_a_shared_connection() {
    run_table(stalls::ROWS);
}

#[test]
fn floods_of_replicas_cost_little_memory() {
    run_table(floods::ROWS);
}

#[test]
fn violations_of_replicas_have_an_outcome_of_the_rfc() {
    run_table(violations::ROWS);
}
