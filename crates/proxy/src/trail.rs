//! The trail of one request: its attempts with their times and reasons, from which [`crate::spans`] and
//! [`crate::access_log`] are written.
//!
//! **Limits**: [`curtail_policy::ATTEMPTS_MAX`] attempts and [`SKIPPED_MAX`] extra attempts that were due and skipped.
//! A trail costs one allocation for the attempts, and one more when an extra attempt was skipped.

use crate::client::Client;
use crate::grpc_call;
use crate::holdout::Draw;
use crate::route_limits::LimitPermit;
use crate::spans::prepared::{PreparedReplica, PreparedRoute};
use crate::trace_context::{SpanId, TraceContext};
use curtail_http::connection_counts::ConnectPhases;
use curtail_http::head::RequestHead;
use curtail_metrics::GaugeGuard;
use curtail_policy::{AttemptId, Choice, Class, Failure, GatherReason, Reason, TieRole};
use curtail_units::{Duration, Instant};
use http::StatusCode;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Maximum number of skipped extra attempts in a trail; further ones are counted in metrics only.
pub(crate) const SKIPPED_MAX: usize = 8;

/// Most requests have one attempt, and most of the other requests have two.
const ATTEMPTS_USUAL: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct Trail {
    /// The trace of the request, and its span.
    pub(crate) context: TraceContext,
    pub(crate) started: Instant,
    /// The request's header, as the attempts repeat it.
    pub(crate) request_head: Arc<RequestHead>,
    /// The header before the changes of the route; absent: the route changes none.
    pub(crate) unchanged_head: Option<Arc<RequestHead>>,
    pub(crate) client: Arc<Client>,
    /// Whether the request is one call of a fan-out, so that its parent is another span of the proxy.
    pub(crate) is_call: bool,
    /// The state that the calls of a fan-out share; absent: the request is no call.
    pub(crate) shared_calls: Option<Arc<SharedCalls>>,
    /// Whether the request arrived at a leaf, so that it is an attempt of another proxy.
    pub(crate) is_at_leaf: bool,
    /// The side of the request, if there is a holdout or a switchback.
    pub(crate) draw: Option<Draw>,
    /// Whether servers may execute the request twice, so that it can be hedged.
    pub(crate) is_repeatable: bool,
    /// The route and the class; absent: no route matched.
    pub(crate) destination: Option<Destination>,
    /// Counts the request as in flight at its route, until it has finished; absent: no limit counts it.
    pub(crate) limit_permit: Option<Arc<LimitPermit>>,
    /// The same at its upstream.
    pub(crate) upstream_permit: Option<Arc<GaugeGuard>>,
    pub(crate) attempts: Vec<AttemptTrail>,
    /// Extra attempts that were due and skipped, in order.
    pub(crate) skipped: Vec<(Instant, Reason)>,
    /// When the response to the client began; absent: it did not, or is a response of the proxy itself.
    pub(crate) response_begun: Option<Instant>,
    /// The shards that caused the error of a fan-out, with the reasons; absent: no shard caused an error.
    pub(crate) error_detail: Option<Box<str>>,
    /// The end of the request; absent while the request is in progress.
    pub(crate) end: Option<RequestEnd>,
    /// The time in the queue of the leaf; absent: the request did not pass a leaf.
    pub(crate) leaf_wait: Option<Duration>,
    /// The calls of a fan-out; absent: no fan-out.
    pub(crate) fan_out: Option<Box<FanOutTrail>>,
    /// The size of the request body as far as the proxy had read it when the response began; absent: no body. On an
    /// upgraded connection, all bytes from the client.
    pub(crate) request_body_bytes: Option<u64>,
    /// The size of the response body as far as it was read; absent: a response of the proxy itself, or none.
    pub(crate) response_body_bytes: Option<u64>,
    /// The status of gRPC in the response, as far as it was read; absent: it has none.
    pub(crate) grpc_status: Option<u16>,
}

/// The calls of a fan-out, as its line in the access log has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FanOutTrail {
    pub(crate) calls: u64,
    /// The calls that failed or missed the deadline.
    pub(crate) missing: u64,
    /// The names of the first missing shards, with the reasons; absent: none is missing.
    pub(crate) missing_detail: Option<Box<str>>,
    /// The hedges of all calls until the end of the request.
    pub(crate) hedges: u64,
    pub(crate) retries: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) route: Arc<PreparedRoute>,
    pub(crate) class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RequestEnd {
    /// When the last byte of the response was written, or the client had disconnected.
    pub(crate) at: Instant,
    /// The status of the response to the client; absent: the client disconnected before the response.
    pub(crate) status: Option<StatusCode>,
    /// The constant name of the error; absent: there was none.
    pub(crate) error: Option<&'static str>,
    /// The reason for this response, or for none.
    pub(crate) reason: Option<Reason>,
}

impl RequestEnd {
    /// Whether the request counts as failed: a client error (4xx) does not.
    pub(crate) fn is_failure(&self) -> bool {
        let has_status = |is: fn(&StatusCode) -> bool| self.status.as_ref().is_some_and(is);
        has_status(StatusCode::is_server_error)
            || self.error.is_some() && !has_status(StatusCode::is_client_error)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct AttemptTrail {
    pub(crate) span_id: SpanId,
    pub(crate) replica: Arc<PreparedReplica>,
    /// When the policies decided to send it; getting a connection is part of the attempt.
    pub(crate) sent: Instant,
    pub(crate) reason: Reason,
    pub(crate) choice: Choice,
    pub(crate) class: Class,
    /// The role of the attempt in its tie; absent: it is not tied.
    pub(crate) tie: Option<TieRole>,
    /// The phases of making a connection; absent: an open one was used.
    pub(crate) connect: Option<ConnectPhases>,
    /// When the response began, or was complete if it is buffered; and its status.
    pub(crate) responded: Option<(Instant, StatusCode)>,
    /// When and how the attempt ended; absent while it is in progress. If its response was buffered and then discarded,
    /// it ended with that response: the time after that was spent on other attempts.
    pub(crate) end: Option<(Instant, AttemptEnd)>,
    pub(crate) won: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AttemptEnd {
    Responded,
    Failed(Failure),
    /// The attempt was stopped, which is an error only after the request's timeout.
    Cancelled(CancelReason),
}

/// The reason why an attempt, a call of a fan-out, or a request at a leaf was cancelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CancelReason {
    Policy(Reason),
    FanOut(GatherReason),
    /// A leaf dropped this copy of a tie, because the other copy has started.
    TwinStarted,
    /// The proxy stopped before the response was complete.
    DrainTimeout,
    /// The request ended with this error, which no replica caused.
    RequestError(&'static str),
}

/// The state that the calls of a fan-out share.
#[derive(Debug, Default)]
pub(crate) struct SharedCalls {
    /// When and why the fan-out cancelled its open calls; unset: it has not cancelled any.
    pub(crate) cancelled: OnceLock<(Instant, GatherReason)>,
    /// The hedges of all calls so far.
    pub(crate) hedges: AtomicU64,
    /// The retries of all calls so far.
    pub(crate) retries: AtomicU64,
}

impl CancelReason {
    /// The reason why the attempts are cancelled when the request ends with this error.
    pub(crate) fn of_error(error: &'static str) -> Self {
        let gone = Reason::ClientGone;
        if error == gone.name() { Self::Policy(gone) } else { Self::RequestError(error) }
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Policy(reason) => reason.name(),
            Self::FanOut(reason) => reason.name(),
            Self::TwinStarted => "twin_started",
            Self::DrainTimeout => "drain_timeout",
            Self::RequestError(error) => error,
        }
    }

    /// Whether an attempt that ends for this reason has failed.
    pub(crate) const fn is_failure(&self) -> bool {
        matches!(self, Self::Policy(Reason::RequestTimeout { .. }))
    }
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(reason) => reason.fmt(f),
            Self::FanOut(reason) => reason.fmt(f),
            Self::TwinStarted => f.write_str("the other copy of the tie has started"),
            Self::DrainTimeout => f.write_str("the proxy stopped before the response was complete"),
            Self::RequestError(error) => write!(f, "the request ended with {error}"),
        }
    }
}

impl Trail {
    pub(crate) fn new(
        context: TraceContext,
        started: Instant,
        request_head: Arc<RequestHead>,
        client: Arc<Client>,
    ) -> Self {
        Self {
            context,
            started,
            request_head,
            unchanged_head: None,
            client,
            is_call: false,
            shared_calls: None,
            is_at_leaf: false,
            draw: None,
            is_repeatable: false,
            destination: None,
            limit_permit: None,
            upstream_permit: None,
            attempts: Vec::with_capacity(ATTEMPTS_USUAL),
            skipped: Vec::new(),
            response_begun: None,
            error_detail: None,
            end: None,
            leaf_wait: None,
            fan_out: None,
            request_body_bytes: None,
            response_body_bytes: None,
            grpc_status: None,
        }
    }

    /// The memory of the trail, without what it shares with others.
    pub(crate) fn memory(&self) -> usize {
        let heads = [Some(&self.request_head), self.unchanged_head.as_ref()];
        let heads: usize = heads.into_iter().flatten().map(|head| head.memory()).sum();
        let attempts = self.attempts.capacity() * size_of::<AttemptTrail>();
        let skipped = self.skipped.capacity() * size_of::<(Instant, Reason)>();
        let detail = self.error_detail.as_ref().map_or(0, |detail| detail.len());
        let fan_out = self.fan_out.as_ref().map_or(0, |fan_out| {
            size_of::<FanOutTrail>() + fan_out.missing_detail.as_ref().map_or(0, |text| text.len())
        });
        size_of::<Self>() + attempts + skipped + heads + detail + fan_out
    }

    /// The name of the gRPC status of a response with status 200, if it is a failure of the server.
    pub(crate) fn grpc_failure(&self) -> Option<&'static str> {
        let is_ok = self.end.is_some_and(|end| end.status == Some(StatusCode::OK));
        self.grpc_status.filter(|_| is_ok).and_then(grpc_call::failure_name)
    }

    /// Whether the request, which has this end, counts as failed.
    pub(crate) fn is_failure(&self, end: &RequestEnd) -> bool {
        end.is_failure() || self.grpc_failure().is_some()
    }

    /// The request's header with the host and the path of the client.
    pub(crate) fn received_head(&self) -> &RequestHead {
        self.unchanged_head.as_ref().unwrap_or(&self.request_head)
    }

    /// The value of the first field of this name in the request's header; the name is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.request_head.fields.iter();
        fields.find(|(_, field, _)| *field == name.as_bytes()).map(|(_, _, value)| value)
    }

    /// The tenant of the request, by the header `tenants.header`, which is in lower case. A request that has the header
    /// several times has no tenant.
    pub(crate) fn tenant(&self, header: &str) -> Option<&[u8]> {
        self.request_head.fields.sole(header.as_bytes()).ok().flatten()
    }

    /// The end of the request, which is unfinished `now` if it has not ended.
    pub(crate) fn end_or_unfinished(&self, now: Instant) -> RequestEnd {
        let unfinished =
            RequestEnd { at: now, status: None, error: Some("unfinished"), reason: None };
        self.end.unwrap_or(unfinished)
    }

    /// Why the request was cancelled, which is no failure: its fan-out was done without this call, or the root of the leaf
    /// cancelled the attempt or started its other copy. [`None`]: it was not.
    pub(crate) fn cancelled(&self, end: &RequestEnd) -> Option<CancelReason> {
        if self.is_at_leaf {
            return match end.error? {
                "client_gone" => Some(CancelReason::Policy(Reason::ClientGone)),
                "twin_started" => Some(CancelReason::TwinStarted),
                _ => None,
            };
        }
        self.cancelled_by_fan_out().map(CancelReason::FanOut)
    }

    /// Why the fan-out of this call cancelled it; [`None`]: it did not, or the client left.
    pub(crate) fn cancelled_by_fan_out(&self) -> Option<GatherReason> {
        let (_, reason) = *self.shared_calls.as_ref()?.cancelled.get()?;
        (reason != GatherReason::ClientGone).then_some(reason)
    }

    /// Ends a call when its fan-out cancelled it. Its task ends a little later, after the request that contains it. A call
    /// that had ended before was not cancelled.
    pub(crate) fn end_with_fan_out(&mut self) {
        let cancelled = self.shared_calls.as_ref().and_then(|calls| calls.cancelled.get().copied());
        let is_later = |at: Instant| self.end.is_none_or(|end| end.at > at);
        let Some((at, reason)) = cancelled.filter(|(at, _)| is_later(*at)) else {
            self.shared_calls = None;
            return;
        };
        for (ended, end) in self.attempts.iter_mut().filter_map(|attempt| attempt.end.as_mut()) {
            if *ended > at {
                (*ended, *end) = (at, AttemptEnd::Cancelled(CancelReason::FanOut(reason)));
            }
        }
        if let Some(end) = &mut self.end {
            end.at = end.at.min(at);
        }
    }

    /// Adds an attempt that is sent. Attempts come in the order of their IDs.
    pub(crate) fn sent(&mut self, attempt: AttemptTrail) {
        if let Some(calls) = &self.shared_calls {
            calls.hedges.fetch_add(attempt.is_hedge().into(), Relaxed);
            calls.retries.fetch_add(attempt.is_retry().into(), Relaxed);
        }
        self.attempts.push(attempt);
    }

    /// The number of hedges; of a fan-out, those of its calls.
    pub(crate) fn hedges(&self) -> u64 {
        let own = || self.attempts.iter().filter(|attempt| attempt.is_hedge()).count() as u64;
        self.fan_out.as_ref().map_or_else(own, |fan_out| fan_out.hedges)
    }

    /// The number of retries; of a fan-out, those of its calls.
    pub(crate) fn retries(&self) -> u64 {
        let own = || self.attempts.iter().filter(|attempt| attempt.is_retry()).count() as u64;
        self.fan_out.as_ref().map_or_else(own, |fan_out| fan_out.retries)
    }

    pub(crate) fn skipped(&mut self, now: Instant, reason: Reason) {
        if self.skipped.len() < SKIPPED_MAX {
            self.skipped.push((now, reason));
        }
    }

    /// The attempt that failed last, in the order of their starts.
    pub(crate) fn last_failed(&self) -> Option<&AttemptTrail> {
        let has_failed =
            |sent: &&AttemptTrail| matches!(sent.end, Some((_, AttemptEnd::Failed(_))));
        self.attempts.iter().rev().find(has_failed)
    }

    pub(crate) fn responded(&mut self, attempt: AttemptId, now: Instant, status: StatusCode) {
        if let Some(attempt) = self.attempt(attempt) {
            attempt.responded = Some((now, status));
        }
    }

    pub(crate) fn connected(&mut self, attempt: AttemptId, phases: ConnectPhases) {
        if let Some(attempt) = self.attempt(attempt) {
            attempt.connect = Some(phases);
        }
    }

    pub(crate) fn won(&mut self, attempt: AttemptId) {
        if let Some(attempt) = self.attempt(attempt) {
            attempt.won = true;
        }
    }

    /// The time that the hedge of a dry run would have saved of a request that ends at `now`; zero if it had lost.
    /// [`None`]: no hedge was due.
    pub(crate) fn dry_run_saved(&self, now: Instant) -> Option<Duration> {
        let mut hedges = self.skipped.iter().filter_map(|(at, reason)| {
            if let Reason::DryRun { other, .. } = reason { Some(*at + *other) } else { None }
        });
        let hedged = hedges.next()?;
        let won = self.attempts.iter().find(|attempt| attempt.won);
        // A client that has left would have waited until the hedge responded.
        let responded = won.and_then(|won| won.responded).map_or(now, |(at, _)| at);
        Some(responded.since(hedged))
    }

    /// Counts further bytes of the response body.
    pub(crate) fn response_body(&mut self, bytes: usize) {
        *self.response_body_bytes.get_or_insert(0) += bytes as u64;
    }

    /// Records the end of an attempt. Only the first end counts: an attempt that failed is not cancelled later.
    pub(crate) fn attempt_ended(&mut self, attempt: AttemptId, now: Instant, end: AttemptEnd) {
        if let Some(attempt) = self.attempt(attempt) {
            attempt.end.get_or_insert((now, end));
        }
    }

    /// Notes that it was the stop of the proxy, and not the client, that ended the request.
    pub(crate) fn note_drain_timeout(&mut self) {
        let gone = Reason::ClientGone;
        if let Some(end) = self.end.as_mut().filter(|end| end.error == Some(gone.name())) {
            (end.error, end.reason) = (Some(CancelReason::DrainTimeout.name()), None);
        }
        self.replace_client_gone(CancelReason::DrainTimeout);
    }

    /// Notes why the attempts were cancelled that ended as those of a client that has gone: the policies know no other
    /// reason for the end of a request without a response.
    pub(crate) fn replace_client_gone(&mut self, reason: CancelReason) {
        let gone = Reason::ClientGone.name();
        for (_, end) in self.attempts.iter_mut().filter_map(|attempt| attempt.end.as_mut()) {
            if matches!(end, AttemptEnd::Cancelled(reason) if reason.name() == gone) {
                *end = AttemptEnd::Cancelled(reason);
            }
        }
    }

    /// The attempt with this ID, if it was recorded. If it was not, only a span lacks details.
    pub(crate) fn attempt(&mut self, id: AttemptId) -> Option<&mut AttemptTrail> {
        self.attempts.get_mut(id.index())
    }
}

impl AttemptTrail {
    /// An attempt that is sent now, over an open connection unless [`Trail::connected`] follows.
    pub(crate) fn new(
        span_id: SpanId,
        sent: Instant,
        (replica, choice): (Arc<PreparedReplica>, Choice),
        (class, tie): (Class, Option<TieRole>),
        reason: Reason,
    ) -> Self {
        Self {
            span_id,
            replica,
            sent,
            reason,
            choice,
            class,
            tie,
            connect: None,
            responded: None,
            end: None,
            won: false,
        }
    }

    const fn is_hedge(&self) -> bool {
        matches!(self.reason, Reason::SlowerThanQuantile { .. } | Reason::SlowerThanCap { .. })
    }

    const fn is_retry(&self) -> bool {
        matches!(self.reason, Reason::Retry { .. } | Reason::Overdue { .. })
    }
}
