//! The HTTP/2 connections of one worker to one replica, each shared by many requests.
//!
//! A connection is made in a task of its own: a request that is cancelled meanwhile (a hedge that lost)
//! leaves it to those that follow, else the replica that is never the fastest would never be connected to.
//! Requests that come meanwhile wait for it, and fail with it rather than one after the other.
//!
//! **Limits**: `http2_connections_max` connections; [`STREAMS_MAX`] requests at once on one before another
//! is made.
//!
//! **Cancelling**: dropping the answer of an exchange resets its stream. By default hyper and h2 take many
//! resets for an attack and end the connection, live requests and all; hedging lives by resets, so both
//! counts are lifted here ([`RESETS_REMEMBERED`]).

use crate::body::AttemptBody;
use crate::stream::Stream;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Uri, header};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Requests at once on one connection before another one is made: what servers commonly allow.
const STREAMS_MAX: usize = 100;

/// Reset streams whose late frames are still expected, for each connection. h2 forgets the oldest beyond
/// this, and counts the late frames of forgotten streams as offences of the replica.
const RESETS_REMEMBERED: usize = 10_000;

/// Flow control towards replicas: what Envoy grants a stream by default is 16 MiB, which a proxy that
/// streams has no use for.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Header fields of an answer. h2 itself allows 16 KiB, which some cookies outgrow; over HTTP/1.1 64 KiB
/// of text may come.
const HEADERS_BYTES_MAX: u32 = 256 << 10;

/// The driver of a connection; its end is the connection's.
pub(crate) type Connection = http2::Connection<TokioIo<Stream>, AttemptBody, TokioExecutor>;

/// All connections.
#[derive(Debug)]
pub(crate) struct Http2Connections {
    connections_max: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    open: Vec<Http2>,
    spoken: Spoken,
    /// One is being made.
    connecting: bool,
    /// Connections that came to nothing.
    failed: u64,
}

/// What is spoken with the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// TLS has not negotiated it yet.
    Unknown,
    Http1,
    Http2,
}

#[derive(Debug, Clone)]
struct Http2 {
    sender: http2::SendRequest<AttemptBody>,
    streams: Arc<AtomicUsize>,
}

/// What a request that needs a connection is to do.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Use this one.
    Take(LentHttp2),
    /// Make one for all who wait, in a task of its own.
    MakeForAll(Making),
    /// Make one for this request alone: it will speak HTTP/1.1.
    MakeOwn(Making),
}

/// The connection that was being made came to nothing.
#[derive(Debug)]
pub(crate) struct NotMade;

impl Http2Connections {
    pub(crate) fn new(spoken: Spoken, connections_max: usize) -> Arc<Self> {
        let state = State { open: Vec::new(), spoken, connecting: false, failed: 0 };
        Arc::new(Self { connections_max, state: Mutex::new(state), changed: Notify::new() })
    }

    /// A place on the connection with the most room, if one has any.
    pub(crate) fn shared(&self) -> Option<LentHttp2> {
        self.lock().shared(self.connections_max)
    }

    /// Waits until there is a connection to use, or one is to be made.
    ///
    /// # Errors
    /// When the connection waited for came to nothing.
    pub(crate) async fn turn(self: &Arc<Self>) -> Result<Turn, NotMade> {
        let failed = self.lock().failed;
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                if let Some(lent) = state.shared(self.connections_max) {
                    return Ok(Turn::Take(lent));
                }
                if state.spoken == Spoken::Http1 {
                    return Ok(Turn::MakeOwn(Making::new(self, false)));
                }
                if state.failed != failed {
                    // None more then: those that are full will have to do.
                    return state.freest().map(Turn::Take).ok_or(NotMade);
                }
                if !std::mem::replace(&mut state.connecting, true) {
                    return Ok(Turn::MakeForAll(Making::new(self, true)));
                }
            }
            changed.await;
        }
    }

    /// Forgets those that replicas have closed.
    pub(crate) fn sweep(&self) {
        self.lock().open.retain(|connection| !connection.sender.is_closed());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn shared(&mut self, connections_max: usize) -> Option<LentHttp2> {
        if self.open.is_empty() {
            return None;
        }
        self.open.retain(|connection| !connection.sender.is_closed());
        let has_room = |c: &Http2| c.streams.load(Ordering::Relaxed) < STREAMS_MAX;
        let may_grow = self.open.len() < connections_max;
        // When all are full and no other may be made, h2 itself queues beyond the replica's limit.
        if may_grow && !self.open.iter().any(has_room) { None } else { self.freest() }
    }

    fn freest(&self) -> Option<LentHttp2> {
        let freest = self.open.iter().min_by_key(|c| c.streams.load(Ordering::Relaxed))?;
        Some(LentHttp2::new(freest))
    }
}

/// A connection that is being made; whoever waits for it looks again when this is dropped.
#[derive(Debug)]
pub(crate) struct Making {
    connections: Arc<Http2Connections>,
    for_all: bool,
    made: Option<(Spoken, Option<Http2>)>,
}

impl Making {
    fn new(connections: &Arc<Http2Connections>, for_all: bool) -> Self {
        Self { connections: Arc::clone(connections), for_all, made: None }
    }

    /// The replica has negotiated HTTP/1.1.
    pub(crate) fn got_http1(mut self) {
        self.made = Some((Spoken::Http1, None));
    }

    /// Begins to speak HTTP/2 on a new connection, and gives it to whoever waits; the first place on it is
    /// kept for the caller.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub(crate) async fn handshake(
        mut self,
        stream: Stream,
    ) -> hyper::Result<(LentHttp2, Connection)> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADERS_BYTES_MAX)
            .max_concurrent_reset_streams(RESETS_REMEMBERED)
            .max_local_error_reset_streams(None)
            .handshake(TokioIo::new(stream))
            .await?;
        let made = Http2 { sender, streams: Arc::default() };
        let lent = LentHttp2::new(&made);
        self.made = Some((Spoken::Http2, Some(made)));
        Ok((lent, connection))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        if self.for_all {
            state.connecting = false;
            state.failed += u64::from(self.made.is_none());
        }
        if let Some((spoken, connection)) = self.made.take() {
            state.spoken = spoken;
            state.open.extend(connection);
        }
        drop(state);
        self.connections.changed.notify_waiters();
    }
}

/// A place on a connection.
#[derive(Debug)]
pub(crate) struct LentHttp2 {
    pub(crate) sender: http2::SendRequest<AttemptBody>,
    pub(crate) stream: StreamCount,
}

impl LentHttp2 {
    fn new(connection: &Http2) -> Self {
        Self { sender: connection.sender.clone(), stream: StreamCount::new(&connection.streams) }
    }
}

/// One stream in flight; counted until dropped.
#[derive(Debug)]
pub(crate) struct StreamCount(Arc<AtomicUsize>);

impl StreamCount {
    fn new(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(streams))
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says whom the request asks as HTTP/2 does, in `:scheme` and `:authority` instead of `host` (RFC 9113,
/// section 8.3.1): many servers refuse a request without them. A change of protocol, which HTTP/2 does not
/// know (section 8.6), is not asked for; a server may decline it at any time.
pub(crate) fn put_in_form(request: &mut Request<AttemptBody>, tls: bool) {
    let headers = request.headers_mut();
    headers.remove(header::UPGRADE);
    headers.remove(header::CONNECTION);
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let Some(authority) = host.and_then(|host| Authority::try_from(host).ok()) else {
        // Not a name that can stand there: the server is told what the client said, as it said it.
        return;
    };
    headers.remove(header::HOST);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(authority);
    *request.uri_mut() = Uri::from_parts(parts).expect("scheme, authority and path are all there");
}

/// The replica says that it has not begun with this stream (RFC 9113, section 8.7): it refused it, or it is
/// beyond the last one that the replica takes before it goes away.
pub(crate) fn is_unprocessed(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|s| s.downcast_ref::<h2::Error>());
    source.is_some_and(|error| {
        let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (refused || error.is_go_away())
    })
}
