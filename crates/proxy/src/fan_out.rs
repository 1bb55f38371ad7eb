//! Routes that fan out: one request to every shard or to every replica of an upstream, whose responses become one.
//!
//! [`Gather`] decides which calls start, which are abandoned, and when the request is done. Each call is a task with a
//! request of its own at its upstream ([`call`]), so the hedges, ties and retries of that upstream apply to it. A call
//! to a replica is pinned to that replica. A client that leaves before the request is done aborts the tasks. After the
//! request is done, its open calls are cancelled, or continue in a task on the worker (`fan_out.rest`).
//! With several calls, a request waits until its body has arrived, so that no call executes a request that the others
//! cannot get. A fan-out of one call streams the body.
//! **Limits**: `fan_out.response_max` bytes of bodies for one request; `limits.replay` for the body of a request;
//! [`REST_CALLS_MAX`](crate::worker::REST_CALLS_MAX) calls whose request is done.

mod call;
mod merge;
mod missing;

use crate::config::{FanOutConfig, FanOutTo, Merge};
use crate::driver::Upstream;
use crate::guard::{Guard, Step};
use crate::holdout::Holdout;
use crate::metrics::{FanOutMetrics, FanOutResult, ResponseClass};
use crate::remedy::AutoRemedy;
use crate::replica::Replicas;
use crate::request::{ProxyResponse, own, record_own, status_without_replica};
use crate::response::RelayedBody;
use crate::root::{NoResponse, Outgoing};
use crate::spans::prepared::PreparedRoute;
use crate::switchback::Switchback;
use crate::trail::{Destination, FanOutTrail, SharedCalls, Trail};
use crate::worker::Worker;
use call::{CallError, ResponseBuffer, ShardResponse, TOO_LARGE};
use curtail_http::forwarding;
use curtail_http::head::{Known, RequestHead, ResponseHead};
use curtail_http::replay::ClientFault;
use curtail_policy::journal::Entry;
use curtail_policy::{
    CallId, Decided, Gather, GatherEffect, GatherEvent, GatherOutcome, GatherReason, RestMode,
};
use curtail_units::{Instant, Ratio};
use http::{Method, StatusCode};
use missing::{DEADLINE, MissingShards};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::task::{JoinError, JoinSet};

/// Request headers that ask for one form of a response. A merged response has none of these forms.
const FORM_HEADERS: [&[u8]; 7] = [
    b"accept-encoding",
    b"range",
    b"if-range",
    b"if-match",
    b"if-none-match",
    b"if-modified-since",
    b"if-unmodified-since",
];

#[derive(Debug)]
pub(crate) struct FanOut {
    /// The route in metrics and logs: its host, if it has one, and its path prefix.
    pub(crate) name: String,
    pub(crate) metrics: Arc<FanOutMetrics>,
    /// The measurement of the effect of hedges and ties on whole requests; absent: no shard has a holdout
    /// of a constant share.
    pub(crate) holdout: Option<Arc<Holdout>>,
    /// The switchback of the route, with the largest share of its shards.
    pub(crate) switchback: Option<Arc<Switchback>>,
    /// One for each selected upstream.
    shards: Box<[Shard]>,
    config: FanOutConfig,
    guard: Guard,
}

#[derive(Clone, Debug)]
struct Shard {
    upstream: Arc<Upstream>,
    route: Arc<PreparedRoute>,
}

impl FanOut {
    pub(crate) fn new(
        (name, path_prefix): (String, &str),
        config: &FanOutConfig,
        shards: impl Iterator<Item = Arc<Upstream>>,
        (guard, metrics): (Guard, Arc<FanOutMetrics>),
    ) -> Self {
        let shards: Box<[Shard]> = shards
            .map(|upstream| {
                let route = Arc::new(PreparedRoute::new(path_prefix, Some(&upstream.name)));
                Shard { upstream, route }
            })
            .collect();
        // The largest share of a shard is that of the request: each call of a request is on the same side.
        let constant = shards.iter().filter(|shard| shard.upstream.auto.is_none());
        let holdout =
            largest(constant.filter_map(|shard| {
                Some((shard.upstream.holdout.as_ref()?.ratio, &shard.upstream))
            }));
        let holdout = holdout.map(|(ratio, of)| Arc::new(Holdout::new(ratio, &of.policy)));
        let switchback = largest(shards.iter().filter_map(|shard| {
            Some((shard.upstream.switchback.as_ref()?.share, &shard.upstream))
        }));
        let switchback =
            switchback.map(|(share, of)| Arc::new(Switchback::new(share, &of.policy, of.clock)));
        Self { name, metrics, holdout, switchback, shards, config: config.clone(), guard }
    }

    /// The upstreams of the shards.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.shards.iter().map(|shard| &shard.upstream)
    }

    /// The share of the requests in the holdout now, the largest of all shards, if there is one.
    pub(crate) fn holdout_ratio(&self) -> Option<Ratio> {
        let constant = self.holdout.as_ref().map(|holdout| holdout.ratio);
        let changing = self.shards.iter().filter_map(|shard| shard.upstream.auto.as_ref());
        let ratios = changing.filter_map(AutoRemedy::holdout_ratio).chain(constant);
        largest(ratios.map(|ratio| (ratio, ()))).map(|(ratio, ())| ratio)
    }

    /// Continues the measurements of `before` if it is about the same upstreams.
    pub(crate) fn keep_measurements(&mut self, before: &Self) {
        let pairs = || self.shards.iter().zip(&before.shards);
        let is_same = self.shards.len() == before.shards.len()
            && pairs().all(|(new, old)| Arc::ptr_eq(&new.upstream, &old.upstream));
        if is_same {
            self.holdout.clone_from(&before.holdout);
            self.switchback.clone_from(&before.switchback);
        }
    }
}

/// Sends a request to the shards or replicas, and makes one response of their responses.
pub(crate) async fn respond(
    worker: &Arc<Worker>,
    fan_out: Arc<FanOut>,
    outgoing: Outgoing,
    trail: Box<Trail>,
) -> ProxyResponse {
    let mut request = FanOutRequest::new(worker, fan_out, outgoing, trail);
    if !request.is_too_few() {
        request.unsent = request.wait_for_body().await.err();
    }
    let may_start = !request.is_too_few() && request.unsent.is_none();
    let outcome = if may_start { request.gather().await } else { GatherOutcome::Failed };
    let response = request.response(outcome);
    request.finish_rest();
    response
}

type CallResult = Result<ShardResponse, CallError>;
type GatherEffects = Vec<Decided<GatherEffect, GatherReason>>;

/// A request and its calls. When it is dropped before its end, the client has left.
struct FanOutRequest {
    worker: Arc<Worker>,
    fan_out: Arc<FanOut>,
    /// The replicas at the request's arrival, each of which gets a call; absent: each shard gets a call.
    replicas: Option<Arc<Replicas>>,
    /// The request as every call sends it.
    outgoing: Outgoing,
    merge: Merge,
    trail: Option<Box<Trail>>,
    gather: Gather,
    /// The number of the request in the journal.
    number: u64,
    calls: JoinSet<(CallId, CallResult)>,
    shared_calls: Arc<SharedCalls>,
    /// The number of calls that have started.
    started: u32,
    /// The results of the calls, by number.
    results: Vec<Option<CallResult>>,
    first_failed: Option<CallId>,
    buffer: Arc<ResponseBuffer>,
    /// When the machine wants to be woken.
    timeout: Option<Instant>,
    /// Whether the machine knows of the request.
    has_begun: bool,
    /// The status and the error of a request that gets no call, because of its body.
    unsent: Option<(StatusCode, &'static str)>,
    /// Whether the machine panicked or made an impossible decision: the request then makes and awaits every call.
    is_broken: bool,
}

impl FanOutRequest {
    fn new(
        worker: &Arc<Worker>,
        fan_out: Arc<FanOut>,
        mut outgoing: Outgoing,
        trail: Box<Trail>,
    ) -> Self {
        let mut head = RequestHead::clone(&outgoing.head);
        FORM_HEADERS.iter().for_each(|name| head.fields.remove_named(name));
        // There is no body to check in a response to HEAD.
        let is_head = head.method == Method::HEAD;
        let config = &fan_out.config;
        let replicas = match config.to {
            FanOutTo::Upstreams => None,
            FanOutTo::Replicas => fan_out.shards.first().map(|s| s.upstream.replicas.load_full()),
        };
        let count = replicas.as_ref().map_or(fan_out.shards.len(), |replicas| replicas.len());
        let calls = u32::try_from(count).expect("fewer upstreams than bytes in a file");
        outgoing.head = Arc::new(head);
        // Buffered responses count only when they are complete, so all of them together must fit as well.
        let share = config.response_max.get() / count.max(1) as u64;
        outgoing.response_buffer_bytes = outgoing.response_buffer_bytes.min(share);
        Self {
            worker: Arc::clone(worker),
            replicas,
            outgoing,
            merge: if is_head { Merge::Concatenate } else { config.merge },
            trail: Some(trail),
            gather: Gather::new(config.rule.of(calls)),
            number: 0,
            calls: JoinSet::new(),
            shared_calls: Arc::default(),
            started: 0,
            results: (0..count).map(|_| None).collect(),
            first_failed: None,
            buffer: Arc::new(ResponseBuffer::new(config.response_max.get())),
            timeout: None,
            has_begun: false,
            unsent: None,
            is_broken: false,
            fan_out,
        }
    }

    /// Waits until the request body can be sent in several calls.
    ///
    /// # Errors
    /// The status and the error of a request that gets no call.
    async fn wait_for_body(&self) -> Result<(), (StatusCode, &'static str)> {
        let body = self.outgoing.body.as_ref().filter(|_| self.results.len() > 1);
        let Some(body) = body else { return Ok(()) };
        let timeouts = self.fan_out.upstreams().map(|upstream| upstream.policy.timeout);
        let limit = timeouts.map(|timeout| self.outgoing.request.time_limit(timeout)).max();
        let kept = tokio::time::timeout(limit.unwrap_or_default().into(), body.wait_until_kept());
        let is_kept = kept.await.unwrap_or_else(|_| {
            body.time_out();
            false
        });
        match body.fault() {
            // The client's connection notices that the client has gone, too, and drops this future.
            Some(ClientFault::Gone) => std::future::pending().await,
            Some(fault) => Err(status_without_replica(NoResponse::Client(fault))),
            None if is_kept => Ok(()),
            None => Err((StatusCode::PAYLOAD_TOO_LARGE, "request_too_large")),
        }
    }

    /// Whether fewer replicas are present than are needed, because some have left, or none is discovered yet.
    fn is_too_few(&self) -> bool {
        self.fan_out.config.rule.needed.unwrap_or(1) as usize > self.results.len()
    }

    /// Runs the calls until the request is done.
    async fn gather(&mut self) -> GatherOutcome {
        self.has_begun = true;
        if let Some(journal) = &self.worker.shared.process_state.journal {
            self.number = journal.gather();
            let (name, config) = (self.fan_out.name.clone(), *self.gather.config());
            journal.write(&Entry::<()>::Gather { gather: self.number, name, config });
        }
        let mut event = GatherEvent::Arrived;
        loop {
            if let Some(outcome) = self.handle(event) {
                return outcome;
            }
            let clock = self.worker.shared.process_state.clock;
            let deadline = self.timeout.and_then(|at| clock.deadline(at));
            let timer =
                tokio::time::sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now));
            event = tokio::select! {
                biased;
                Some(ended) = self.calls.join_next() => self.call_ended(ended),
                () = timer, if deadline.is_some() => GatherEvent::Woke,
            };
        }
    }

    /// Hands an event to the machine and carries out what it decides.
    fn handle(&mut self, event: GatherEvent) -> Option<GatherOutcome> {
        if self.is_broken {
            return self.pass_straight();
        }
        let now = self.now();
        let Some(effects) = self.decide(now, event) else { return self.pass_straight() };
        let mut done = None;
        let mut effects = effects.into_iter().map(|decided| decided.effect);
        #[cfg(test)]
        if crate::guard::planted::is_impossible(&self.fan_out.name) {
            effects.next();
        }
        let is_possible = effects.all(|effect| self.carry_out(effect, now, &mut done));
        let is_waiting = !self.calls.is_empty() || self.timeout.is_some();
        if is_possible && (done.is_some() || is_waiting) {
            return done;
        }
        let message = "a call is unknown, or the request is neither done nor waiting";
        self.fan_out.guard.report(now, Step::Gather(event), message);
        done.or_else(|| self.pass_straight())
    }

    /// Hands an event to the machine and returns its decisions; [`None`] when it panicked.
    fn decide(&mut self, now: Instant, event: GatherEvent) -> Option<GatherEffects> {
        let gather = &mut self.gather;
        let decided = self.fan_out.guard.run(now, Step::Gather(event), || {
            gather.handle(now, event);
            let effects: GatherEffects = std::iter::from_fn(|| gather.poll_effect()).collect();
            (effects, gather.poll_timeout())
        });
        if let Some(journal) = &self.worker.shared.process_state.journal {
            let effects = decided.as_ref().map_or(&[][..], |(effects, _)| effects);
            journal.write(&Entry::GatherEvent { gather: self.number, now, event, effects });
        }
        let (effects, timeout) = decided?;
        self.timeout = timeout;
        // All open calls are abandoned at once: their set is dropped with the request.
        let is_cancel = |effect| matches!(effect, GatherEffect::AbandonCall { .. });
        if let Some(Decided { reason, .. }) = effects.iter().find(|d| is_cancel(d.effect)) {
            self.shared_calls.cancelled.get_or_init(|| (now, *reason));
        }
        Some(effects)
    }

    /// Carries out an effect; false if it names a call that cannot be started or abandoned.
    fn carry_out(
        &mut self,
        effect: GatherEffect,
        now: Instant,
        done: &mut Option<GatherOutcome>,
    ) -> bool {
        match effect {
            GatherEffect::StartCall { call } => call.0 == self.started && self.start_call(now),
            GatherEffect::AbandonCall { call } => call.0 < self.started,
            GatherEffect::Done { outcome } => {
                *done = Some(outcome);
                true
            }
        }
    }

    /// Starts every call that has not started; returns the outcome when all calls have ended.
    fn pass_straight(&mut self) -> Option<GatherOutcome> {
        (self.is_broken, self.timeout) = (true, None);
        let now = self.now();
        while self.start_call(now) {}
        let is_enough = self.succeeded() >= self.gather.config().needed as usize;
        let outcome = if is_enough { GatherOutcome::Complete } else { GatherOutcome::Failed };
        self.calls.is_empty().then_some(outcome)
    }

    /// Starts the next call; false when there is none.
    fn start_call(&mut self, now: Instant) -> bool {
        let (call, place) = (CallId(self.started), self.started as usize);
        if place >= self.results.len() {
            return false;
        }
        let (shard, eligible) = match &self.replicas {
            None => (self.fan_out.shards[place].clone(), None),
            Some(replicas) => {
                (self.fan_out.shards[0].clone(), Some([replicas.id_at(place)].into()))
            }
        };
        let trail = self.trail.as_ref().expect("it is taken at the end");
        let context = trail.context.child(self.worker.new_span_id());
        let (head, client) = (Arc::clone(&trail.request_head), Arc::clone(&trail.client));
        let mut trail = Box::new(Trail::new(context, now, head, client));
        trail.is_call = true;
        trail.shared_calls = Some(Arc::clone(&self.shared_calls));
        trail.is_repeatable = self.outgoing.request.repeatable;
        trail.draw = self.trail.as_ref().and_then(|trail| trail.draw);
        let (route, class) = (Arc::clone(&shard.route), self.outgoing.request.class);
        trail.destination = Some(Destination { route, class });
        let run = call::run(
            Arc::clone(&self.worker),
            shard,
            (Outgoing { eligible, ..self.outgoing.clone() }, trail),
            (Arc::clone(&self.buffer), self.merge),
        );
        self.calls.spawn(async move { (call, run.await) });
        self.started += 1;
        true
    }

    fn call_ended(&mut self, ended: Result<(CallId, CallResult), JoinError>) -> GatherEvent {
        // A call that panics ends its client's connection, as any other request does. No call of the set is aborted.
        let (call, result) =
            ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        let success = result.is_ok();
        if !success {
            self.first_failed.get_or_insert(call);
        }
        if let Some(slot) = self.results.get_mut(call.0 as usize) {
            *slot = Some(result);
        }
        GatherEvent::CallEnded { call, success }
    }

    /// Lets the open calls run to their end after the request is done, if there is room for them.
    fn finish_rest(mut self) {
        if self.fan_out.config.rule.rest == RestMode::Cancel
            || self.calls.is_empty()
            || self.is_broken
        {
            return;
        }
        self.buffer.discard();
        self.results = Vec::new();
        let room = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.worker.rest_calls).try_acquire_many_owned(room) else {
            self.decide(self.now(), GatherEvent::RestRejected);
            return self.fan_out.metrics.rest_ended(false, self.calls.len());
        };
        tokio::spawn(async move {
            while let Some(ended) = self.calls.join_next().await {
                let event = self.call_ended(ended);
                self.fan_out.metrics.rest_ended(true, 1);
                self.is_broken = self.is_broken || self.decide(self.now(), event).is_none();
            }
            drop(room);
        });
    }

    fn response(&mut self, outcome: GatherOutcome) -> ProxyResponse {
        let (succeeded, calls) = (self.succeeded(), self.results.len());
        let mut missing = self.missing(outcome == GatherOutcome::Partial);
        let (result, (mut head, body), error) = match outcome {
            GatherOutcome::Complete => (FanOutResult::Complete, self.merged(), None),
            GatherOutcome::Partial if succeeded > 0 => (FanOutResult::Partial, self.merged(), None),
            GatherOutcome::Partial => {
                let response = self.own(StatusCode::GATEWAY_TIMEOUT, DEADLINE, missing.detail());
                (FanOutResult::Failed, response, Some(DEADLINE))
            }
            GatherOutcome::Failed => self.failed(),
        };
        if error.is_some() && head.status.is_client_error() {
            // The request is at fault, and no shard.
            missing = MissingShards::default();
        }
        let header = format!("curtail-{}", self.fan_out.config.to.noun());
        let failed_header = format!("{header}-failed");
        // A shard may be a fan-out of another proxy.
        head.fields.remove_named(header.as_bytes());
        head.fields.remove_named(failed_header.as_bytes());
        head.fields.append(header.as_bytes(), format!("{succeeded}/{calls}").as_bytes());
        if let Some(names) = missing.names() {
            head.fields.append(failed_header.as_bytes(), names.as_bytes());
        }
        if let (Some(trail), RelayedBody::Whole(body), None) = (&mut self.trail, &body, error) {
            trail.response_body(body.len());
        }
        self.end(result, (Some(head.status), error), &missing);
        (head, body)
    }

    fn merged(&self) -> ProxyResponse {
        let responses = || self.results.iter().flatten().flatten();
        let mut head = ResponseHead::new(StatusCode::OK);
        let first_type = || {
            let mut fields = responses().next()?.head.fields.iter();
            fields.find(|(_, name, _)| *name == b"content-type").map(|(_, _, value)| value)
        };
        let content_type = match self.fan_out.config.merge {
            Merge::Concatenate => first_type(),
            Merge::JsonArray => Some(&b"application/json"[..]),
        };
        if let Some(content_type) = content_type {
            head.fields.append(b"content-type", content_type);
        }
        let body = self.merge.merge(responses().map(|response| &response.body));
        (head, RelayedBody::Whole(body))
    }

    /// The response when too many calls have failed: it follows from the first failure.
    fn failed(&mut self) -> (FanOutResult, ProxyResponse, Option<&'static str>) {
        let first = self.first_failed.map(|call| call.0 as usize);
        let error = first.and_then(|call| self.results[call].as_ref()?.as_ref().err());
        if let Some(response) = error.and_then(|error| error.response.as_ref()) {
            return (FanOutResult::Failed, pass_on(response), None);
        }
        let failed = if self.replicas.is_some() { "replicas_failed" } else { "shards_failed" };
        let (status, name) = match self.unsent.or(error.map(|error| (error.status, error.name))) {
            _ if self.is_too_few() => (StatusCode::SERVICE_UNAVAILABLE, "too_few_replicas"),
            Some((status, name)) if status.is_client_error() => (status, name),
            Some((StatusCode::GATEWAY_TIMEOUT, _)) => (StatusCode::GATEWAY_TIMEOUT, failed),
            Some((_, TOO_LARGE)) => (StatusCode::BAD_GATEWAY, TOO_LARGE),
            Some(_) | None => (StatusCode::BAD_GATEWAY, failed),
        };
        let result = if name == TOO_LARGE { FanOutResult::TooLarge } else { FanOutResult::Failed };
        let detail = first.zip(error).filter(|_| name == failed).and_then(|(call, error)| {
            Some(format!("{}: {}", self.call_name(call)?, error.name).into_boxed_str())
        });
        (result, self.own(status, name, detail), Some(name))
    }

    /// A response of the proxy itself, whose detail the access log and the span have, too.
    fn own(
        &mut self,
        status: StatusCode,
        error: &'static str,
        detail: Option<Box<str>>,
    ) -> ProxyResponse {
        let response = own(status, error, detail.as_deref().unwrap_or_default());
        if let Some(trail) = &mut self.trail {
            trail.error_detail = detail;
        }
        response
    }

    /// The name of the shard or replica of a call.
    fn call_name(&self, call: usize) -> Option<String> {
        match &self.replicas {
            None => Some(self.fan_out.shards[call].upstream.name.clone()),
            Some(replicas) => Some(replicas.values().nth(call)?.config.identity()),
        }
    }

    fn succeeded(&self) -> usize {
        self.results.iter().flatten().flatten().count()
    }

    /// Records the end of the request, once.
    fn end(
        &mut self,
        result: FanOutResult,
        end: (Option<StatusCode>, Option<&'static str>),
        missing: &MissingShards,
    ) {
        let Some(mut trail) = self.trail.take() else { return };
        trail.request_body_bytes = self.outgoing.body.as_ref().map(|body| body.bytes());
        trail.fan_out = Some(Box::new(FanOutTrail {
            calls: self.results.len() as u64,
            missing: missing.count,
            missing_detail: missing.detail(),
            hedges: self.shared_calls.hedges.load(Relaxed),
            retries: self.shared_calls.retries.load(Relaxed),
        }));
        let latency = self.now().since(trail.started);
        self.fan_out.metrics.ended(result, missing.count, latency);
        let response = match result {
            FanOutResult::Complete | FanOutResult::Partial => ResponseClass::Status(StatusCode::OK),
            FanOutResult::ClientGone => ResponseClass::None,
            FanOutResult::Failed | FanOutResult::TooLarge => ResponseClass::Incomplete,
        };
        if let (Some(holdout), Some(draw)) = (&self.fan_out.holdout, trail.draw) {
            holdout.record(self.now(), draw, (response, latency), 0);
        }
        if let Some(switchback) = self.fan_out.switchback.as_ref().filter(|_| trail.is_repeatable) {
            switchback.record((trail.started, self.now()), trail.draw, response, 0);
        }
        record_own(&self.worker, None, trail, end);
    }

    fn now(&self) -> Instant {
        self.worker.shared.process_state.clock.now()
    }
}

impl Drop for FanOutRequest {
    fn drop(&mut self) {
        if self.trail.is_some() && self.has_begun && !self.is_broken {
            self.decide(self.now(), GatherEvent::Abandoned);
        }
        if self.trail.is_some() {
            let missing = self.missing(false);
            let error = self.trail.as_ref().map(|trail| trail.client.end_error());
            self.end(FanOutResult::ClientGone, (None, error), &missing);
        }
    }
}

/// The item with the largest ratio.
fn largest<T>(of: impl Iterator<Item = (Ratio, T)>) -> Option<(Ratio, T)> {
    of.max_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(Ordering::Equal))
}

/// The response of one shard, as a route without a fan-out forwards it.
fn pass_on(response: &ShardResponse) -> ProxyResponse {
    let mut head = response.head.clone();
    head.fields.remove(Known::CurtailLeaf.bit());
    forwarding::remove_hop_by_hop(&mut head.fields);
    (head, RelayedBody::Whole(response.body.clone()))
}

#[cfg(test)]
mod tests;
