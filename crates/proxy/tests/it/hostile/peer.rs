//! A hostile HTTP/2 client: it sends a script, reads as its row says, and returns the outcome.

use super::clients::Row;
use super::script::{HEADER_TABLE_SIZE, Script, WHOLE, request_block, status};
use super::{Outcome, Reads};
use crate::client::tls_stream;
use crate::frames::{
    ACK, DATA, END_STREAM, Frame, GOAWAY, HEADERS, PING, PREFACE, REFUSED_STREAM, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, frame_bytes, read_frame,
};
use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

pub(super) trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

pub(super) type BoxedConnection = Box<dyn Connection>;

/// Connects in clear text, or under TLS with this configuration.
pub(super) async fn connect(
    address: SocketAddr,
    tls: Option<&Arc<rustls::ClientConfig>>,
) -> BoxedConnection {
    match tls {
        Some(config) => {
            let config = Arc::clone(config);
            Box::new(tls_stream(address, "localhost", config).await.expect("a certificate of ours"))
        }
        None => {
            let stream = TcpStream::connect(address).await.expect("the proxy listens");
            stream.set_nodelay(true).expect("a TCP connection");
            Box::new(stream)
        }
    }
}

/// The stream of the next request: higher than all streams of a script.
const NEXT_STREAM: u32 = 9_999_999;

/// The two directions of a connection.
pub(super) struct Peer {
    reader: ReadHalf<BoxedConnection>,
    writer: WriteHalf<BoxedConnection>,
}

/// What a peer has read so far.
#[derive(Debug, Default)]
struct Seen {
    goaway: Option<u32>,
    /// The status and the code of the reset of the stream on which the peer misbehaves.
    status: Option<u16>,
    reset: Option<u32>,
    /// Whether that stream has ended.
    is_over: bool,
    /// Whether the next request has its response.
    is_next_served: bool,
    is_closed: bool,
}

impl Peer {
    pub(super) fn new(connection: BoxedConnection) -> Self {
        let (reader, writer) = tokio::io::split(connection);
        Self { reader, writer }
    }

    /// Begins HTTP/2 as a client that does everything right. Its HPACK table has no room, so each block stands alone.
    pub(super) async fn begin(&mut self) {
        let no_table = [&HEADER_TABLE_SIZE.to_be_bytes()[..], &[0; 4]].concat();
        let begin = [PREFACE, &frame_bytes(SETTINGS, 0, 0, &no_table)].concat();
        self.writer.write_all(&begin).await.expect("the proxy is there");
        loop {
            let frame = read_frame(&mut self.reader).await.expect("the proxy's settings");
            if frame.kind == SETTINGS && frame.flags & ACK == 0 {
                break;
            }
        }
        let ack = frame_bytes(SETTINGS, ACK, 0, &[]);
        self.writer.write_all(&ack).await.expect("the proxy is there");
    }

    /// Sends the script without reading; returns when a write fails, if one does.
    pub(super) async fn send_until_closed(&mut self, script: &Script) {
        if send(&mut self.writer, script).await.is_ok() {
            pending::<Infallible>().await;
        }
    }

    /// Sends the script and reads a byte at each `tick`; returns when the connection has ended.
    pub(super) async fn send_and_read_slowly(&mut self, script: &Script, tick: impl AsyncFn()) {
        let Self { reader, writer } = self;
        let reading = async {
            loop {
                tick().await;
                if reader.read_exact(&mut [0]).await.is_err() {
                    return;
                }
            }
        };
        let writing = async {
            send(writer, script).await.ok();
            pending::<Infallible>().await
        };
        tokio::select! {
            () = reading => {}
            never = writing => match never {},
        }
    }

    /// Sends the script of a row, and then its next request, and reads until the outcome is clear.
    pub(super) async fn exchange(
        self,
        row: &Row,
        script: &Script,
        tick: impl AsyncFn(),
    ) -> Outcome {
        let Self { mut reader, mut writer } = self;
        let (replies, mut to_send) = mpsc::channel::<Vec<u8>>(1_024);
        let mut next_stream = NEXT_STREAM;
        let writing = async {
            let sent = async {
                send(&mut writer, script).await?;
                if row.has_next {
                    writer.write_all(&next_request(NEXT_STREAM)).await?;
                }
                writer.flush().await?;
                while !row.drop.is_empty() {
                    tick().await;
                    writer.write_all(row.drop).await?;
                    writer.flush().await?;
                }
                while let Some(reply) = to_send.recv().await {
                    writer.write_all(&reply).await?;
                    writer.flush().await?;
                }
                std::io::Result::Ok(())
            };
            // The proxy may close the connection before everything is sent.
            sent.await.ok();
            pending::<Infallible>().await
        };
        let reading = async {
            let mut seen = Seen::default();
            while !seen.is_outcome(row.waits) {
                let Ok(frame) = read_frame(&mut reader).await else {
                    seen.is_closed = true;
                    break;
                };
                seen.note(&frame, script.stream(), next_stream);
                if is_refusal(&frame, next_stream) {
                    // The flood before may still occupy all streams; the peer may try again (RFC 9113, section 8.7).
                    next_stream += 2;
                    replies.try_send(next_request(next_stream)).ok();
                }
                if let Some(reply) = reply(&frame, row.reads) {
                    if row.reads == Reads::ByteByByte {
                        tick().await;
                    }
                    // A peer in the middle of a flood may miss a ping.
                    replies.try_send(reply).ok();
                }
            }
            seen.outcome()
        };
        tokio::select! {
            outcome = reading => outcome,
            never = writing => match never {},
        }
    }
}

async fn send(writer: &mut WriteHalf<BoxedConnection>, script: &Script) -> std::io::Result<()> {
    for (bytes, times) in script.parts() {
        for _ in 0..*times {
            writer.write_all(bytes).await?;
        }
    }
    writer.flush().await
}

/// The request that a served peer sends at the end of its row. Its response has no body, so it needs no window.
fn next_request(stream: u32) -> Vec<u8> {
    frame_bytes(HEADERS, WHOLE, stream, &request_block("GET", "/next"))
}

fn is_refusal(frame: &Frame, stream: u32) -> bool {
    frame.kind == RST_STREAM
        && frame.stream == stream
        && frame.payload == REFUSED_STREAM.to_be_bytes()
}

/// The frame that the protocol, or the habit of the peer, wants in return.
fn reply(frame: &Frame, reads: Reads) -> Option<Vec<u8>> {
    match frame.kind {
        _ if reads == Reads::Deaf => None,
        PING if frame.flags & ACK == 0 => Some(frame_bytes(PING, ACK, 0, &frame.payload)),
        SETTINGS if frame.flags & ACK == 0 => Some(frame_bytes(SETTINGS, ACK, 0, &[])),
        DATA if reads == Reads::ByteByByte => {
            Some(frame_bytes(WINDOW_UPDATE, 0, frame.stream, &1_u32.to_be_bytes()))
        }
        _ => None,
    }
}

impl Seen {
    fn note(&mut self, frame: &Frame, stream: u32, next_stream: u32) {
        let code = |at: usize| {
            let code = frame.payload.get(at..at + 4)?;
            Some(u32::from_be_bytes(code.try_into().ok()?))
        };
        let is_end = frame.flags & END_STREAM != 0 && matches!(frame.kind, HEADERS | DATA);
        match frame.kind {
            // A GOAWAY without an error may come before the one with it.
            GOAWAY => self.goaway = code(4).or(self.goaway),
            RST_STREAM if frame.stream == stream => {
                // After a whole response, a reset without an error only stops the upload.
                let is_error = !(self.is_over && code(0) == Some(0));
                self.reset = code(0).filter(|_| is_error).or(self.reset);
                self.is_over = true;
            }
            HEADERS if frame.stream == stream => {
                self.status = self.status.or_else(|| status(&frame.payload));
                self.is_over |= is_end;
            }
            HEADERS if frame.stream == next_stream => {
                self.is_next_served |= status(&frame.payload) == Some(204);
            }
            _ if frame.stream == stream => self.is_over |= is_end,
            _ => {}
        }
    }

    /// Whether nothing more can change the outcome. A connection with an error must still close.
    const fn is_outcome(&self, waits: bool) -> bool {
        let is_error = matches!(self.goaway, Some(code) if code != 0);
        !is_error && self.is_next_served && (self.is_over || !waits)
    }

    const fn outcome(&self) -> Outcome {
        match self {
            Self {
                is_closed: true,
                is_next_served: false,
                is_over: true,
                status: Some(status),
                ..
            } if *status >= 400 => Outcome::Responded(*status),
            Self { is_closed: true, goaway: Some(code), .. } => Outcome::Ended(*code),
            Self { is_closed: true, .. } => Outcome::Closed,
            Self { reset: Some(code), .. } => Outcome::Reset(*code),
            Self { status: Some(status), .. } if *status >= 400 => Outcome::Responded(*status),
            _ => Outcome::Served,
        }
    }
}
