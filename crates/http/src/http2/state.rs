//! The state of a connection, without its socket: streams, flow control, and bytes to send.
//!
//! The task of the connection passes received bytes in ([`receive`]) and writes the bytes that this produces. The tasks
//! of the streams read and write through the same state, under one short lock; they write no frame themselves, so the
//! frames of all streams that are ready leave in one write.
//!
//! **Flow control**: the credit of the connection returns as soon as bytes arrive, that of a stream when they are read.
//! A stream that is not read therefore holds at most its own window, and no other stream waits for it. Together the
//! streams hold at most `streams_max` windows.
//! **Limits**: [`OUT_BYTES_MAX`] of frames wait to be written before streams wait, and [`CONTROL_BYTES_MAX`] more before
//! nothing is read. [`Flood`] limits frames that carry nothing.

mod flood;
mod receive;
mod receive_message;
mod send;
mod stream;

use super::error::{ConnectionError, Error, ErrorCode};
use super::frame::{
    self, put_goaway, put_ping, put_reset, put_settings, put_window_update, setting,
};
use super::hpack::Decoder;
use crate::head::{Fault, RequestHead};
use flood::Flood;
use hashbrown::HashMap;
use receive_message::PartialBlock;
pub(super) use send::{RequestToSend, ResponseEvent, ResponseToSend};
use slab::Slab;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use stream::StreamState;

/// The window of a connection, and of a stream, before any setting (RFC 9113, section 6.9.2).
const DEFAULT_WINDOW: u32 = 65_535;

/// The largest identifier of a stream.
const STREAM_MAX: u32 = (1 << 31) - 1;

/// Bytes that wait to be written, beyond which streams wait.
const OUT_BYTES_MAX: usize = 64 << 10;

/// Further bytes of acknowledgments and other frames that wait to be written, beyond which nothing is read.
const CONTROL_BYTES_MAX: usize = 64 << 10;

/// Maximum number of streams that this side has reset and for which late frames are expected.
const RESETS_REMEMBERED: usize = 10_000;

/// The payload of the PING between the two GOAWAYs of a graceful end.
const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

/// The payload of a PING that asks whether the other side is alive.
const ALIVE_PING: [u8; 8] = *b"is alive";

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

/// The limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProtocolLimits {
    pub(super) stream_window: u32,
    pub(super) connection_window: u32,
    /// Maximum number of streams that the other side may have open.
    pub(super) streams_max: u32,
    pub(super) list_bytes_max: usize,
    /// Maximum number of streams that the other side may reset in a burst before it has their responses.
    pub(super) resets_max: u32,
}

/// The settings of the other side.
#[derive(Debug)]
struct PeerSettings {
    stream_window: u32,
    streams_max: usize,
    /// Whether a server accepts extended CONNECT (RFC 8441).
    accepts_connect: bool,
}

/// What the server has to do for a request that has arrived.
#[derive(Debug)]
pub(super) enum Arrival {
    Respond(AcceptedRequest),
    /// Only note it: its stream has been reset, because it is malformed for this reason.
    Note(&'static str),
}

impl Arrival {
    fn is_request(&self, key: usize) -> bool {
        matches!(self, Self::Respond(request) if request.key == key)
    }
}

/// A request that gets a response.
#[derive(Debug)]
pub(super) struct AcceptedRequest {
    pub(super) key: usize,
    pub(super) head: Result<RequestHead, Fault>,
    pub(super) has_body: bool,
}

/// How far the end of the connection has come.
#[derive(Debug, Default)]
struct Ending {
    /// The last stream that this side still accepts, once it has said so.
    last_accepted: Option<u32>,
    /// Whether the other side has responded to the PING of a graceful end.
    is_acknowledged: bool,
    /// Whether the connection ends after its last stream.
    is_graceful: bool,
    /// The code of the other side's GOAWAY.
    received: Option<ErrorCode>,
    failure: Option<ConnectionError>,
}

#[derive(Debug)]
pub(super) struct ConnectionState {
    role: Role,
    limits: ProtocolLimits,
    streams: Slab<StreamState>,
    /// The streams that are open for at least one side, by identifier.
    open: HashMap<u32, usize>,
    /// Requests that are about to open a stream; they count as streams.
    leases: usize,
    /// Whether the first stream is reserved for the first lease: the other requests wait.
    is_first_reserved: bool,
    decoder: Decoder,
    /// A header block whose end has not arrived.
    block: Option<PartialBlock>,
    /// The number of complete header blocks so far.
    blocks: u64,
    locally_reset: ResetStreams,
    /// The last stream that the other side has opened.
    last_peer: u32,
    /// The last range of streams that the other side has skipped; they are closed (RFC 9113, section 5.1.1).
    skipped: Range<u32>,
    next_own: u32,
    arrivals: Vec<Arrival>,
    flood: Flood,
    /// Whether the client's preface has not arrived.
    needs_preface: bool,
    has_settings: bool,
    /// Whether the settings of the other side have been applied.
    has_peer_settings: bool,
    is_own_settings_acknowledged: bool,
    peer: PeerSettings,
    out: Vec<u8>,
    /// The bytes that have left [`Self::out`], and those that the connection has accepted.
    taken_bytes: u64,
    written_bytes: u64,
    send_window: i64,
    receive_window: i64,
    unreturned: u32,
    /// Whether the next header block must begin with the size of the table.
    needs_table_size: bool,
    /// Streams that wait for the window of the connection, or for room.
    waiting: Vec<usize>,
    /// Tasks that wait for the first stream or for room, or for the settings of the other side.
    opening: Vec<Waker>,
    ending: Ending,
    driver: Option<Waker>,
    is_ping_unanswered: bool,
}

/// The streams that this side has reset and whose late frames it ignores.
#[derive(Debug, Default)]
struct ResetStreams {
    known: HashSet<u32>,
    in_order: VecDeque<u32>,
}

impl ResetStreams {
    fn add(&mut self, stream: u32) {
        if self.in_order.len() == RESETS_REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(stream);
        self.in_order.push_back(stream);
    }
}

/// A connection's state, shared by its task and those of its streams.
pub(super) type Shared = Arc<Mutex<ConnectionState>>;

/// Locks the state. No code panics while it holds the lock.
pub(super) fn lock(shared: &Mutex<ConnectionState>) -> MutexGuard<'_, ConnectionState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConnectionState {
    pub(super) fn new(role: Role, limits: ProtocolLimits, streams_before_settings: usize) -> Self {
        let mut state = Self {
            role,
            limits,
            streams: Slab::new(),
            open: HashMap::new(),
            leases: 0,
            is_first_reserved: false,
            decoder: Decoder::default(),
            block: None,
            blocks: 0,
            locally_reset: ResetStreams::default(),
            last_peer: 0,
            skipped: 0..0,
            next_own: 1,
            arrivals: Vec::new(),
            flood: Flood::new(limits.resets_max),
            needs_preface: role == Role::Server,
            has_settings: false,
            has_peer_settings: false,
            is_own_settings_acknowledged: false,
            peer: PeerSettings {
                stream_window: DEFAULT_WINDOW,
                streams_max: streams_before_settings,
                accepts_connect: false,
            },
            out: Vec::new(),
            taken_bytes: 0,
            written_bytes: 0,
            send_window: DEFAULT_WINDOW.into(),
            receive_window: limits.connection_window.max(DEFAULT_WINDOW).into(),
            unreturned: 0,
            needs_table_size: false,
            waiting: Vec::new(),
            opening: Vec::new(),
            ending: Ending::default(),
            driver: None,
            is_ping_unanswered: false,
        };
        state.put_preface();
        state
    }

    fn put_preface(&mut self) {
        let list_bytes = u32::try_from(self.limits.list_bytes_max).unwrap_or(u32::MAX);
        let mut settings = vec![
            (setting::INITIAL_WINDOW_SIZE, self.limits.stream_window),
            (setting::MAX_HEADER_LIST_SIZE, list_bytes),
        ];
        match self.role {
            Role::Client => {
                self.out.extend_from_slice(frame::PREFACE);
                settings.push((setting::ENABLE_PUSH, 0));
            }
            Role::Server => {
                settings.push((setting::MAX_CONCURRENT_STREAMS, self.limits.streams_max));
                settings.push((setting::ENABLE_CONNECT_PROTOCOL, 1));
            }
        }
        put_settings(&mut self.out, &settings);
        let further = self.limits.connection_window.saturating_sub(DEFAULT_WINDOW);
        if further > 0 {
            put_window_update(&mut self.out, 0, further);
        }
    }

    /// The number of streams in use, and of requests that are about to open one.
    pub(super) fn stream_count(&self) -> usize {
        self.streams.len() + self.leases
    }

    pub(super) const fn streams_allowed(&self) -> usize {
        self.peer.streams_max
    }

    pub(super) const fn add_lease(&mut self) {
        self.leases += 1;
    }

    /// Reserves the first stream. A server may process only a few streams of each connection, and not the others: the
    /// request that opens a connection must be among these few.
    pub(super) const fn reserve_first(&mut self) {
        self.is_first_reserved = true;
    }

    pub(super) fn end_first_reservation(&mut self) {
        self.is_first_reserved = false;
        self.opening.drain(..).for_each(Waker::wake);
    }

    pub(super) fn end_lease(&mut self) {
        self.leases -= 1;
        self.wake_driver_at_end();
    }

    pub(super) fn take_arrivals(&mut self) -> Vec<Arrival> {
        for arrival in &self.arrivals {
            if let Arrival::Respond(request) = arrival {
                self.streams[request.key].is_taken = true;
            }
        }
        std::mem::take(&mut self.arrivals)
    }

    /// Whether this side has opened a stream, now or earlier.
    pub(super) const fn has_opened_stream(&self) -> bool {
        // A client's streams have odd numbers from 1.
        self.next_own > 1
    }

    /// Whether the connection takes no further request of this side.
    pub(super) const fn is_closed(&self) -> bool {
        let Ending { is_graceful, received, failure, .. } = &self.ending;
        *is_graceful || received.is_some() || failure.is_some() || self.next_own > STREAM_MAX
    }

    pub(super) const fn failure(&self) -> Option<&ConnectionError> {
        self.ending.failure.as_ref()
    }

    /// Whether the connection can be closed, once the bytes that wait are written.
    pub(super) fn is_over(&self) -> bool {
        let is_last = self.ending.is_graceful || self.ending.received.is_some();
        self.ending.failure.is_some() || (is_last && self.streams.is_empty() && self.leases == 0)
    }

    /// Begins a graceful end: requests that are on their way are still accepted (RFC 9113, section 6.8), until a grace
    /// after the other side has responded to a PING.
    pub(super) fn begin_shutdown(&mut self) {
        if self.ending.last_accepted.is_none() && self.ending.failure.is_none() {
            self.ending.last_accepted = Some(STREAM_MAX);
            put_goaway(&mut self.out, STREAM_MAX, ErrorCode::NO_ERROR, "");
            put_ping(&mut self.out, 0, SHUTDOWN_PING);
            self.wake_driver();
        }
    }

    /// Whether the other side knows of the graceful end, and further requests are still accepted.
    pub(super) const fn is_shutdown_acknowledged(&self) -> bool {
        self.ending.is_acknowledged && !self.ending.is_graceful
    }

    /// Ends the graceful end: no further request is accepted.
    pub(super) fn finish_shutdown(&mut self) {
        if self.ending.last_accepted == Some(STREAM_MAX) && !self.ending.is_graceful {
            self.ending.last_accepted = Some(self.last_peer);
            self.ending.is_graceful = true;
            put_goaway(&mut self.out, self.last_peer, ErrorCode::NO_ERROR, "");
            self.wake_driver();
        }
    }

    /// Ends the connection after its last stream, because this side sends no further request.
    pub(super) fn end_after_streams(&mut self) {
        if !self.ending.is_graceful && self.ending.failure.is_none() {
            self.ending.is_graceful = true;
            put_goaway(&mut self.out, 0, ErrorCode::NO_ERROR, "");
            self.wake_driver();
        }
    }

    /// Ends the connection and all of its streams.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        if self.ending.failure.is_some() {
            return;
        }
        let goaway = match error {
            ConnectionError::Violation { code, why } => Some((code, why)),
            ConnectionError::Silent | ConnectionError::HeaderTimeout => {
                Some((ErrorCode::NO_ERROR, ""))
            }
            ConnectionError::Closed
            | ConnectionError::Io(_)
            | ConnectionError::GoneAway(_)
            | ConnectionError::Unneeded => None,
        };
        if let Some((code, why)) = goaway {
            // The identifier must not be larger than that of an earlier GOAWAY.
            let last = self.ending.last_accepted.unwrap_or(STREAM_MAX).min(self.last_peer);
            put_goaway(&mut self.out, last, code, why);
        }
        let is_client = self.role == Role::Client;
        for (_, stream) in &mut self.streams {
            let is_unwritten = is_client && stream.head_at >= self.written_bytes;
            stream.fail(if is_unwritten {
                Error::Unwritten(error.clone())
            } else {
                Error::Connection(error.clone())
            });
        }
        self.open.clear();
        self.arrivals.retain(|arrival| matches!(arrival, Arrival::Note(_)));
        self.ending.failure = Some(error);
        self.opening.drain(..).for_each(Waker::wake);
        self.wake_driver();
    }

    /// Asks whether the other side is alive.
    pub(super) fn ping(&mut self) {
        self.is_ping_unanswered = true;
        put_ping(&mut self.out, 0, ALIVE_PING);
    }

    pub(super) const fn is_ping_unanswered(&self) -> bool {
        self.is_ping_unanswered
    }

    /// The number of complete header blocks that have arrived.
    pub(super) const fn block_count(&self) -> u64 {
        self.blocks
    }

    /// Whether the settings of the other side have arrived.
    pub(super) const fn has_peer_settings(&self) -> bool {
        self.has_peer_settings
    }

    pub(super) fn stream_id(&self, key: usize) -> u32 {
        self.streams[key].id
    }

    /// Whether a header block has begun whose end has not arrived.
    pub(super) const fn has_partial_block(&self) -> bool {
        self.block.is_some()
    }

    pub(super) const fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether the frames that wait to be written are too many to read further ones.
    pub(super) const fn is_output_full(&self) -> bool {
        self.out.len() >= OUT_BYTES_MAX + CONTROL_BYTES_MAX
    }

    /// Exchanges the bytes that wait for an empty buffer, and notes that those before them are written.
    pub(super) fn take_output(&mut self, buffer: &mut Vec<u8>) {
        self.written_bytes = self.taken_bytes;
        std::mem::swap(&mut self.out, buffer);
        if self.out.capacity() > OUT_BYTES_MAX && self.streams.is_empty() {
            self.out = Vec::new();
        }
        self.taken_bytes += buffer.len() as u64;
        if !self.waiting.is_empty() {
            self.wake_waiting();
        }
        self.opening.drain(..).for_each(Waker::wake);
    }

    /// Notes that the connection has accepted some of the bytes that were taken last.
    pub(super) const fn note_written(&mut self, left: usize) {
        self.written_bytes = self.taken_bytes - left as u64;
    }

    pub(super) fn set_driver(&mut self, cx: &Context<'_>) {
        match &mut self.driver {
            Some(known) => known.clone_from(cx.waker()),
            driver @ None => *driver = Some(cx.waker().clone()),
        }
    }

    fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    fn wake_driver_at_end(&mut self) {
        if self.is_over() {
            self.wake_driver();
        }
    }

    /// Wakes the task that sends over a stream.
    pub(super) fn wake_sender(&mut self, key: usize) {
        self.streams[key].wake_sender();
    }

    fn wake_waiting(&mut self) {
        for key in std::mem::take(&mut self.waiting) {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.is_waiting = false;
                stream.wake_sender();
            }
        }
    }

    /// Resets a stream.
    pub(super) fn reset(&mut self, key: usize, code: ErrorCode, error: Error) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        let id = stream.id;
        if self.open.contains_key(&id) {
            put_reset(&mut self.out, id, code);
            if !stream.is_received {
                self.locally_reset.add(id);
            }
        }
        stream.fail(error);
        self.close(id);
        self.wake_driver();
    }

    /// Notes that a stream is closed for both sides.
    fn close(&mut self, id: u32) {
        self.open.remove(&id);
    }

    fn close_if_complete(&mut self, key: usize) {
        if let Some(stream) = self.streams.get(key)
            && stream.is_received
            && stream.is_sent
        {
            self.close(stream.id);
        }
    }

    /// Adds a user of a stream.
    pub(super) fn share(&mut self, key: usize) {
        self.streams[key].users += 1;
    }

    /// Removes a user of a stream. The last one removes the stream; if the other side still sends, it may stop.
    pub(super) fn release(&mut self, key: usize) {
        let stream = &mut self.streams[key];
        stream.users -= 1;
        if stream.users > 0 {
            return;
        }
        if !stream.is_received || !stream.is_sent {
            // A complete response makes the rest of its request useless (RFC 9113, section 8.1).
            let is_responded = self.role == Role::Server && stream.is_sent;
            let code = if is_responded { ErrorCode::NO_ERROR } else { ErrorCode::CANCEL };
            self.reset(key, code, Error::Cancelled);
        }
        if self.streams.remove(key).is_waiting {
            self.waiting.retain(|waiting| *waiting != key);
        }
        self.wake_driver_at_end();
    }

    /// Waits for the server's settings; whether it accepts extended CONNECT (RFC 8441).
    pub(super) fn poll_accepts_connect(&mut self, cx: &Context<'_>) -> Poll<Result<bool, Error>> {
        if let Some(failure) = &self.ending.failure {
            return Poll::Ready(Err(Error::Unwritten(failure.clone())));
        }
        if self.has_peer_settings {
            return Poll::Ready(Ok(self.peer.accepts_connect));
        }
        self.opening.push(cx.waker().clone());
        Poll::Pending
    }

    /// Waits until a stream may be opened. Leases keep to the server's limit of streams, so a connection is full only if
    /// the server has lowered the limit since the lease.
    fn poll_can_open(&mut self, cx: &Context<'_>) -> Poll<Result<(), Error>> {
        if let Some(failure) = &self.ending.failure {
            return Poll::Ready(Err(Error::Unwritten(failure.clone())));
        }
        if let Some(code) = self.ending.received {
            return Poll::Ready(Err(Error::Unwritten(ConnectionError::GoneAway(code))));
        }
        if self.next_own > STREAM_MAX {
            return Poll::Ready(Err(Error::Unwritten(ConnectionError::Unneeded)));
        }
        if self.open.len() >= self.peer.streams_max {
            return Poll::Ready(Err(Error::NoStream));
        }
        // A server that reads nothing gets no further requests.
        if !self.is_first_reserved && self.out.len() < OUT_BYTES_MAX {
            return Poll::Ready(Ok(()));
        }
        self.opening.push(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
