//! The root side: one request, from its arrival to the response that the client gets.
//!
//! The machines decide ([`crate::driver`]), and this module carries out their effects. Attempts are futures that the
//! request's own task polls side by side. To cancel an attempt, the task drops the future.

mod outgoing;
mod straight;

use crate::client::CLIENT_SLOW;
use crate::driver::{Driver, Effects, Upstream, UpstreamFull};
use crate::grpc_call;
use crate::leaf_headers::LEAF_NOT_SENT;
use crate::metrics::ResponseClass;
use crate::replica::Replica;
use crate::response::{BufferedResponse, WinningResponse, take_small};
use crate::trail::{AttemptEnd, AttemptTrail, CancelReason, RequestEnd, Trail};
use crate::worker::Worker;
use crate::{leaf_headers, probe};
use curtail_http::connection_counts::ConnectPhases;
use curtail_http::head::{Known, RequestHead};
use curtail_http::outbound_request::OutboundRequest;
use curtail_http::pool::{ExchangeError, ExchangeErrorKind, ResponseError};
use curtail_http::replay::{ClientFault, Replay};
use curtail_http::service::InterimSink;
use curtail_http::timers::Timer;
use curtail_policy::{
    AttemptId, Class, Decided, Effect, Event, Failure, Outcome, Reason, ReplicaId, Request,
    RequestFailure, Tie,
};
use curtail_units::Instant;
use http::StatusCode;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Most requests have one attempt, and most of the other requests have two.
const ATTEMPTS_USUAL: usize = 2;

/// The error of a request whose time limit has passed.
pub(crate) const TIMED_OUT: &str = "timed_out";

/// A request on its way to an upstream.
#[derive(Clone)]
pub(crate) struct Outgoing {
    /// The head of every attempt, without the fields that concern the client's connection.
    pub(crate) head: Arc<RequestHead>,
    pub(crate) body: Option<Arc<Replay>>,
    pub(crate) request: Request,
    /// The statuses that count as failed attempts; absent: [`crate::config::FAILED_STATUSES`].
    pub(crate) failed_statuses: Option<Arc<[StatusCode]>>,
    /// The only replicas that attempts may go to, in ascending order; absent: all.
    pub(crate) eligible: Option<Arc<[ReplicaId]>>,
    /// The protocol that the client asks to upgrade to.
    pub(crate) upgrade: Option<Box<[u8]>>,
    pub(crate) is_traced: bool,
    /// A response up to this size is buffered before it is forwarded.
    pub(crate) response_buffer_bytes: u64,
    /// Receives the interim responses, if the client understands them.
    pub(crate) interim: Option<InterimSink>,
}

/// The reason why the proxy responds in place of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoResponse {
    RequestFailure(RequestFailure),
    /// As many requests of the upstream are in flight as its limit allows.
    UpstreamFull,
    /// The client did not finish its request.
    Client(ClientFault),
    /// A replica ended the gRPC call at the deadline of its client.
    CallDeadline,
}

type AttemptFuture = Pin<Box<dyn Future<Output = AttemptResult> + Send>>;

enum Attempt {
    Waiting(AttemptFuture),
    Buffered(Box<BufferedResponse>),
    Gone,
}

struct AttemptResult {
    response: Result<BufferedResponse, ExchangeError>,
    phases: Option<ConnectPhases>,
}

struct Exchange {
    worker: Arc<Worker>,
    outgoing: Outgoing,
    driver: Box<Driver>,
    trail: Box<Trail>,
    /// By [`AttemptId`]; the machine sends at most `ATTEMPTS_MAX`.
    attempts: Vec<Attempt>,
    effects: Effects,
    /// When the machine last handled an event.
    now: Instant,
    timer: Timer,
    /// Whether the request was sent once without its machine, which panicked. It is not sent again.
    is_sent_straight: bool,
    replay_lost: bool,
    /// Whether a replica has ended the gRPC call at the deadline of its client.
    is_past_deadline: bool,
}

/// Sends a request to an upstream, and waits for the response that the client gets.
///
/// # Errors
/// [`NoResponse`] with the trail, whose end is still to be written.
pub(crate) async fn exchange(
    worker: &Arc<Worker>,
    upstream: Arc<Upstream>,
    outgoing: Outgoing,
    mut trail: Box<Trail>,
) -> Result<WinningResponse, (NoResponse, Box<Trail>)> {
    match upstream.enter() {
        Ok(permit) => trail.upstream_permit = permit,
        Err(UpstreamFull) => return Err((NoResponse::UpstreamFull, trail)),
    }
    let mut effects = Effects::with_capacity(4);
    let eligible = outgoing.eligible.clone();
    let (driver, now) = Driver::arrive(upstream, outgoing.request, eligible, &mut effects);
    let mut exchange = InProgress(Some(Exchange {
        worker: Arc::clone(worker),
        outgoing,
        driver,
        trail,
        attempts: Vec::with_capacity(ATTEMPTS_USUAL),
        effects: Effects::new(),
        now,
        timer: Timer::new(&worker.timers),
        is_sent_straight: false,
        replay_lost: false,
        is_past_deadline: false,
    }));
    let mut ended = exchange.get().carry_out(now, &mut effects);
    // The next event has the memory.
    exchange.get().effects = effects;
    let ended = std::future::poll_fn(|cx| match ended.take() {
        Some(ended) => Poll::Ready(ended),
        None => exchange.get().poll(cx),
    })
    .await;
    let mut exchange = exchange.0.take().expect("nobody else takes it");
    exchange.note_request_body();
    match ended {
        Ok((attempt, response)) => {
            let Exchange { driver, trail, .. } = exchange;
            Ok(WinningResponse::new(driver, trail, attempt, response, worker))
        }
        Err(no_response) => Err((no_response, exchange.trail)),
    }
}

/// An exchange in progress. When it is dropped, the client has disconnected.
struct InProgress(Option<Exchange>);

impl InProgress {
    fn get(&mut self) -> &mut Exchange {
        self.0.as_mut().expect("taken only at its end")
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        if let Some(exchange) = self.0.take() {
            exchange.abandoned();
        }
    }
}

type Ended = Result<(AttemptId, Box<BufferedResponse>), NoResponse>;

impl Exchange {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            if self.driver.is_broken() {
                return self.poll_straight(cx);
            }
            let event = match self.poll_attempts(cx) {
                Poll::Ready(event) => event,
                Poll::Pending => {
                    let Some(at) = self.driver.timeout() else {
                        self.driver.fail_open("a request is neither decided nor timed");
                        continue;
                    };
                    ready!(self.timer.poll_until(cx, at, self.now));
                    if self.is_body_late() {
                        // It is the client that is slow, and no replica.
                        return Poll::Ready(self.end_for_client(ClientFault::Slow));
                    }
                    Event::Woke
                }
            };
            if let Some(fault) = self.body_fault() {
                // There is no complete request to send, even if the client still waits for a response.
                return Poll::Ready(self.end_for_client(fault));
            }
            if self.is_past_deadline {
                return Poll::Ready(self.end_at_deadline());
            }
            if let Some(ended) = self.handle(event) {
                return Poll::Ready(ended);
            }
        }
    }

    fn end_for_client(&mut self, fault: ClientFault) -> Ended {
        self.handle(Event::Abandoned);
        let error = match fault {
            ClientFault::Gone => self.trail.client.end_error(),
            ClientFault::Slow | ClientFault::Broken => fault_name(fault),
        };
        self.trail.replace_client_gone(CancelReason::of_error(error));
        Err(NoResponse::Client(fault))
    }

    /// Ends a gRPC call whose replica has ended it at the deadline: neither a failure of the replica nor a success.
    fn end_at_deadline(&mut self) -> Ended {
        self.handle(Event::Abandoned);
        self.trail.replace_client_gone(CancelReason::of_error(TIMED_OUT));
        Err(NoResponse::CallDeadline)
    }

    fn is_at_deadline(&self, now: Instant, error: &ResponseError) -> bool {
        let age = now.since(self.trail.started);
        grpc_call::is_at_deadline(&self.outgoing.head, age, error)
    }

    /// Why the client's request body is incomplete for ever.
    fn body_fault(&self) -> Option<ClientFault> {
        self.outgoing.body.as_ref().and_then(|body| body.fault())
    }

    /// Whether the timeout has passed while the replica waits for the rest of the request body. The client of a gRPC call
    /// may leave its stream open, and gets the status of its own deadline.
    fn is_body_late(&self) -> bool {
        let Outgoing { request, body, .. } = &self.outgoing;
        let upstream = &self.driver.upstream;
        let limit = request.time_limit(upstream.policy.timeout);
        request.deadline.is_none()
            && body.as_ref().is_some_and(|body| body.is_awaited())
            && upstream.clock.now() >= self.trail.started + limit
    }

    /// Ends the request of a client that disconnected before a response, or a call that its fan-out cancels. The request is
    /// counted and traced, because clients that leave have often waited longest.
    fn abandoned(mut self) {
        self.handle(Event::Abandoned);
        self.note_request_body();
        let upstream = &self.driver.upstream;
        let (now, error) = (upstream.clock.now(), self.trail.client.end_error());
        let is_gone = error == Reason::ClientGone.name();
        let reason = is_gone.then_some(Reason::ClientGone);
        self.trail.replace_client_gone(CancelReason::of_error(error));
        self.trail.end = Some(RequestEnd { at: now, status: None, error: Some(error), reason });
        let response = match self.trail.cancelled_by_fan_out() {
            Some(_) => ResponseClass::Cancelled,
            None => ResponseClass::None,
        };
        upstream.record_end(&self.trail, response, now);
        self.worker.record(self.trail);
    }

    /// Hands an event to the machine and carries out the effects.
    fn handle(&mut self, event: Event) -> Option<Ended> {
        let mut effects = std::mem::take(&mut self.effects);
        let now = self.driver.handle(event, &mut effects);
        self.now = now;
        let ended = self.carry_out(now, &mut effects);
        self.effects = effects;
        ended
    }

    /// The next event of an attempt or of the request body.
    fn poll_attempts(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        for index in 0..self.attempts.len() {
            let Attempt::Waiting(attempt) = &mut self.attempts[index] else { continue };
            let Poll::Ready(result) = attempt.as_mut().poll(cx) else { continue };
            return Poll::Ready(self.attempt_ended(index, result));
        }
        let lost = !self.replay_lost && self.outgoing.body.as_ref().is_some_and(|b| b.is_lost());
        if lost {
            self.replay_lost = true;
            return Poll::Ready(Event::ReplayLost);
        }
        Poll::Pending
    }

    fn attempt_ended(&mut self, index: usize, result: AttemptResult) -> Event {
        let attempt = attempt_id(index);
        let now = self.driver.upstream.clock.now();
        if let Some(phases) = result.phases {
            self.trail.connected(attempt, phases);
        }
        match result.response {
            Ok(response) if response.head.fields.get(Known::CurtailLeaf) == Some(LEAF_NOT_SENT) => {
                // Without the leaf, this would be a failed connection.
                self.trail.responded(attempt, now, response.head.status);
                self.attempt_failed(index, now, Failure::NotSent)
            }
            Ok(response) => {
                let outcome = self.outgoing.outcome(&response);
                if outcome == Outcome::TwinStarted {
                    let end = AttemptEnd::Cancelled(CancelReason::TwinStarted);
                    self.trail.attempt_ended(attempt, now, end);
                } else {
                    self.trail.responded(attempt, now, response.head.status);
                }
                if outcome != Outcome::Good {
                    let (upstream, replica) = (&*self.driver.upstream.name, self.address(index));
                    let status = response.head.status;
                    tracing::debug!(upstream, replica, %status, ?outcome, "attempt got no good response");
                }
                self.attempts[index] = Attempt::Buffered(Box::new(response));
                Event::Responded { attempt, outcome }
            }
            Err(_) if self.body_fault().is_some() => {
                // It is the client that failed: the request is abandoned next.
                self.attempts[index] = Attempt::Gone;
                Event::Failed { attempt, failure: Failure::Broken }
            }
            Err(ExchangeError::Broken { source, .. }) if self.is_at_deadline(now, &source) => {
                // The request is abandoned next.
                self.attempts[index] = Attempt::Gone;
                self.is_past_deadline = true;
                Event::Failed { attempt, failure: Failure::Broken }
            }
            Err(error) => {
                self.log_failed(index, now, &error);
                let failure = match error.kind() {
                    ExchangeErrorKind::Limit => Failure::ConnectionLimit,
                    ExchangeErrorKind::NotSent => Failure::NotSent,
                    ExchangeErrorKind::Unprocessed => Failure::Unprocessed,
                    ExchangeErrorKind::BodyNotKept => Failure::BodyNotKept,
                    ExchangeErrorKind::Broken => Failure::Broken,
                };
                self.attempt_failed(index, now, failure)
            }
        }
    }

    fn attempt_failed(&mut self, index: usize, now: Instant, failure: Failure) -> Event {
        let attempt = attempt_id(index);
        self.trail.attempt_ended(attempt, now, AttemptEnd::Failed(failure));
        self.attempts[index] = Attempt::Gone;
        Event::Failed { attempt, failure }
    }

    /// The address of the replica of an attempt.
    fn address(&self, index: usize) -> Option<&str> {
        self.trail.attempts.get(index).map(|attempt| attempt.replica.address.as_str())
    }

    fn log_failed(&self, index: usize, now: Instant, error: &ExchangeError) {
        let (upstream, replica) = (&self.driver.upstream, self.address(index));
        if error.kind() != ExchangeErrorKind::Broken {
            // A failed connection and a limit have their own warnings.
            tracing::debug!(upstream = upstream.name, replica, %error, "attempt failed");
        } else if let ExchangeError::Broken { source, .. } = error {
            // Without the address in its text, the cause is one cause for all replicas.
            upstream.log_broken_response(now, replica, source);
        } else {
            upstream.log_broken_response(now, replica, error);
        }
    }

    fn carry_out(&mut self, now: Instant, effects: &mut Effects) -> Option<Ended> {
        let mut ended = None;
        for decided in effects.drain(..) {
            let is_discard = self.is_discard(decided.effect);
            if let Err(impossible) = self.carry_out_one(now, &decided, &mut ended) {
                self.driver.fail_open(impossible);
                break;
            }
            if is_discard {
                continue;
            }
            let metrics = &self.driver.upstream.metrics;
            match self.trail.cancelled_by_fan_out() {
                // The client of the call is the fan-out.
                Some(why) if decided.reason == Reason::ClientGone => {
                    metrics.cancelled_by_fan_out.add(&why, 1);
                }
                Some(_) | None => metrics.decided(&decided),
            }
        }
        ended
    }

    /// Whether an effect only discards a response: the attempt was complete, and is not cancelled.
    fn is_discard(&self, effect: Effect) -> bool {
        let Effect::Cancel { attempt } = effect else { return false };
        matches!(self.attempts.get(attempt.index()), Some(Attempt::Buffered(_)))
    }

    /// # Errors
    /// The defect, when the effect cannot be carried out.
    fn carry_out_one(
        &mut self,
        now: Instant,
        decided: &Decided<Effect, Reason>,
        ended: &mut Option<Ended>,
    ) -> Result<(), &'static str> {
        let reason = decided.reason;
        match decided.effect {
            Effect::Send { attempt, replica, choice, class, tie } => {
                #[cfg(test)]
                let is_impossible =
                    crate::guard::planted::is_impossible(&self.driver.upstream.name);
                #[cfg(test)]
                let replica = if is_impossible { ReplicaId(u32::MAX) } else { replica };
                if attempt.index() != self.attempts.len() {
                    return Err("an attempt was sent twice");
                }
                self.send(now, (replica, choice), (class, tie), reason)
                    .ok_or("an attempt was sent to an unknown replica")?;
            }
            Effect::Cancel { attempt } => {
                let open = self.attempts.get_mut(attempt.index());
                let open = open.ok_or("an unknown attempt was cancelled")?;
                let cancelled = std::mem::replace(open, Attempt::Gone);
                self.note_cancelled(attempt, (now, reason), &cancelled);
            }
            Effect::Respond { attempt } => {
                let response =
                    self.take_buffered(attempt).ok_or("an attempt won without a response")?;
                let error = self.outgoing.error(&response);
                self.note_end(now, Some(response.head.status), error, reason);
                *ended = Some(Ok((attempt, response)));
            }
            Effect::Fail { why } => {
                self.note_end(now, None, Some(name(why)), reason);
                *ended = Some(Err(NoResponse::RequestFailure(why)));
            }
            Effect::Skip => self.trail.skipped(now, reason),
            Effect::SetRemedy { .. } => return Err("a request decided about the remedies"),
            Effect::Probe { replica } => {
                probe::send(&self.worker, &self.driver.upstream, replica)?;
            }
        }
        Ok(())
    }

    /// Takes the response of the winning attempt, if it has one.
    fn take_buffered(&mut self, attempt: AttemptId) -> Option<Box<BufferedResponse>> {
        let slot = self.attempts.get_mut(attempt.index())?;
        let slot = Some(slot).filter(|slot| matches!(slot, Attempt::Buffered(_)))?;
        let Attempt::Buffered(response) = std::mem::replace(slot, Attempt::Gone) else {
            return None;
        };
        self.trail.won(attempt);
        Some(response)
    }

    /// Records the end of an attempt that is cancelled, or whose response is discarded.
    fn note_cancelled(
        &mut self,
        attempt: AttemptId,
        (now, reason): (Instant, Reason),
        state: &Attempt,
    ) {
        let cancelled = AttemptEnd::Cancelled(CancelReason::Policy(reason));
        let Attempt::Buffered(response) = state else {
            self.trail.attempt_ended(attempt, now, cancelled);
            return;
        };
        let end = match self.outgoing.outcome(response) {
            Outcome::Bad => AttemptEnd::Failed(Failure::BadResponse),
            Outcome::Refused => AttemptEnd::Failed(Failure::Refused),
            Outcome::Good | Outcome::TwinStarted => cancelled,
        };
        let responded = self.trail.attempt(attempt).and_then(|attempt| attempt.responded);
        self.trail.attempt_ended(attempt, responded.map_or(now, |(at, _)| at), end);
    }

    fn note_request_body(&mut self) {
        self.trail.request_body_bytes = self.outgoing.body.as_ref().map(|body| body.bytes());
    }

    fn note_end(
        &mut self,
        at: Instant,
        status: Option<StatusCode>,
        error: Option<&'static str>,
        reason: Reason,
    ) {
        self.trail.end = Some(RequestEnd { at, status, error, reason: Some(reason) });
    }

    /// Sends an attempt: from now on it is polled with the others. [`None`] if the replica is unknown.
    fn send(
        &mut self,
        now: Instant,
        (replica_id, choice): (ReplicaId, curtail_policy::Choice),
        (class, tie): (Class, Option<Tie>),
        reason: Reason,
    ) -> Option<()> {
        let replica = Arc::clone(self.driver.replica(replica_id)?);
        let span_id = self.worker.new_span_id();
        // The twin's replica may have left. The attempt is then sent without its tie.
        let tie = tie.and_then(|tie| Some((tie, Arc::clone(self.driver.replica(tie.twin)?))));
        let role = tie.as_ref().map(|(tie, _)| tie.role);
        let to = (Arc::clone(&replica.prepared), choice);
        let trail = AttemptTrail::new(span_id, now, to, (class, role), reason);
        self.trail.sent(trail);
        if let Some(side) = replica.present_placement.load().side {
            self.driver.upstream.metrics.zones.add(&side, 1);
        }
        let mut request = self.outgoing.attempt(&self.trail.context, span_id, class);
        if self.outgoing.is_connect() {
            request.set(Known::SecWebsocketKey, self.worker.new_websocket_key().as_bytes());
        }
        if let Some((tie, twin)) = tie {
            let tie = leaf_headers::write_tie(tie.id, tie.role, &twin.address);
            request.set(Known::CurtailTie, tie.as_bytes());
        }
        // The failed attempt may have used a dead connection of the pool, unless a leaf responded over it.
        let fresh =
            matches!(reason, Reason::Retry { failure: Failure::NotSent | Failure::Broken, .. })
                && self.trail.last_failed().is_none_or(|failed| failed.responded.is_none());
        let attempt_future = self.attempt_future(&replica, request, fresh);
        self.attempts.push(Attempt::Waiting(attempt_future));
        Some(())
    }

    fn attempt_future(
        &self,
        replica: &Replica,
        request: Box<OutboundRequest>,
        fresh: bool,
    ) -> AttemptFuture {
        let pool = replica.pool_for(self.worker.index, self.trail.client.addresses);
        let clock = self.driver.upstream.clock;
        let small_bytes = self.outgoing.response_buffer_bytes;
        Box::pin(async move {
            match pool.exchange(request, &clock, fresh).await {
                Ok(exchanged) => AttemptResult {
                    response: take_small(exchanged.head, exchanged.body, small_bytes)
                        .await
                        .map_err(|source| pool.broken(source)),
                    phases: exchanged.phases,
                },
                Err(error) => AttemptResult { response: Err(error), phases: None },
            }
        })
    }
}

fn attempt_id(index: usize) -> AttemptId {
    AttemptId(u8::try_from(index).expect("at most ATTEMPTS_MAX and one that passes straight"))
}

/// The constant name of a failure of the client.
pub(crate) const fn fault_name(fault: ClientFault) -> &'static str {
    match fault {
        ClientFault::Slow => CLIENT_SLOW,
        ClientFault::Gone => Reason::ClientGone.name(),
        ClientFault::Broken => "client_broken",
    }
}

/// The constant name of a failure, for the error attribute of spans and the `curtail-error` header.
pub(crate) const fn name(why: RequestFailure) -> &'static str {
    match why {
        RequestFailure::NoReplica => "no_replica",
        RequestFailure::TimedOut => TIMED_OUT,
        RequestFailure::Failed(failure) => failure.name(),
    }
}
