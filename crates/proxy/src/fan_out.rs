//! Routes that fan out: one request to every shard, and one response from theirs.
//!
//! [`Gather`] decides which calls start, which are abandoned, and when the request is done. Each call is a task with a
//! request of its own at the shard's upstream ([`call`]), so every remedy applies to it. A client that leaves aborts
//! the tasks.
//! **Limits**: `fan_out.response_max` bytes of bodies for one request.

mod call;
mod merge;

use crate::config::{FanOutConfig, Merge};
use crate::driver::Upstream;
use crate::guard::{Guard, Step};
use crate::metrics::{FanOutMetrics, FanOutResult};
use crate::request::{ProxyResponse, own, record_own};
use crate::response::RelayedBody;
use crate::root::Outgoing;
use crate::spans::prepared::PreparedRoute;
use crate::trail::{Destination, Trail};
use crate::worker::Worker;
use call::{CallError, ResponseBuffer, ShardResponse, TOO_LARGE};
use curtail_http::head::{RequestHead, ResponseHead};
use curtail_policy::{
    CallId, Gather, GatherConfig, GatherEffect, GatherEvent, GatherOutcome, Reason,
};
use curtail_units::Instant;
use http::{Method, StatusCode};
use std::sync::Arc;
use tokio::task::{AbortHandle, JoinError, JoinSet};

/// Maximum number of failed shards that a response names.
const NAMES_MAX: usize = 20;

/// Headers of a request about the form of one response. A merged response has none of these forms.
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
    shards: Box<[Shard]>,
    gather: GatherConfig,
    merge: Merge,
    response_bytes_max: u64,
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
        let count = u32::try_from(shards.len()).expect("fewer upstreams than bytes in a file");
        let (gather, merge) = (config.gather(count), config.merge);
        let response_bytes_max = config.response_max.get();
        Self { name, metrics, shards, gather, merge, response_bytes_max, guard }
    }
}

/// Sends a request to the shards and makes one response of theirs.
pub(crate) async fn respond(
    worker: &Arc<Worker>,
    fan_out: Arc<FanOut>,
    outgoing: Outgoing,
    trail: Box<Trail>,
) -> ProxyResponse {
    let mut request = FanOutRequest::new(worker, fan_out, outgoing, trail);
    let outcome = request.gather().await;
    request.finish(outcome)
}

type CallResult = Result<ShardResponse, CallError>;

/// A request and its calls. When it is dropped before its end, the client has left.
struct FanOutRequest {
    worker: Arc<Worker>,
    fan_out: Arc<FanOut>,
    /// The request as every shard gets it.
    outgoing: Outgoing,
    merge: Merge,
    trail: Option<Box<Trail>>,
    gather: Gather,
    calls: JoinSet<(CallId, CallResult)>,
    /// The tasks of the calls, by number.
    tasks: Vec<AbortHandle>,
    /// The results of the calls, by number.
    results: Vec<Option<CallResult>>,
    first_failed: Option<CallId>,
    buffer: Arc<ResponseBuffer>,
    /// When the machine wants to be woken.
    timeout: Option<Instant>,
    /// Whether the machine panicked or made an impossible decision: the request then goes to all shards and waits for all.
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
        let count = fan_out.shards.len();
        outgoing.head = Arc::new(head);
        // Held responses count when they are complete, so all of them together must fit as well.
        let share = fan_out.response_bytes_max / count.max(1) as u64;
        outgoing.response_buffer_bytes = outgoing.response_buffer_bytes.min(share);
        Self {
            worker: Arc::clone(worker),
            outgoing,
            merge: if is_head { Merge::Concatenate } else { fan_out.merge },
            trail: Some(trail),
            gather: Gather::new(fan_out.gather),
            calls: JoinSet::new(),
            tasks: Vec::with_capacity(count),
            results: (0..count).map(|_| None).collect(),
            first_failed: None,
            buffer: Arc::new(ResponseBuffer::new(fan_out.response_bytes_max)),
            timeout: None,
            is_broken: false,
            fan_out,
        }
    }

    /// Runs the calls until the request is done.
    async fn gather(&mut self) -> GatherOutcome {
        let mut event = GatherEvent::Arrived;
        loop {
            if let Some(outcome) = self.handle(event) {
                return outcome;
            }
            let deadline =
                self.timeout.and_then(|at| self.worker.shared.process_state.clock.deadline(at));
            event = tokio::select! {
                biased;
                Some(ended) = self.calls.join_next() => self.call_ended(ended),
                () = sleep_until(deadline) => GatherEvent::Woke,
            };
        }
    }

    /// Hands an event to the machine and carries out what it decides.
    fn handle(&mut self, event: GatherEvent) -> Option<GatherOutcome> {
        if self.is_broken {
            return self.pass_straight();
        }
        let (now, gather) = (self.now(), &mut self.gather);
        let decided = self.fan_out.guard.run(now, Step::Gather(event), || {
            gather.handle(now, event);
            let effects: Vec<_> = std::iter::from_fn(|| gather.poll_effect()).collect();
            (effects, gather.poll_timeout())
        });
        let Some((effects, timeout)) = decided else { return self.pass_straight() };
        self.timeout = timeout;
        let mut done = None;
        let mut effects = effects.into_iter().map(|decided| decided.effect);
        #[cfg(test)]
        if crate::guard::planted::is_impossible(&self.fan_out.name) {
            effects.next();
        }
        let is_possible = effects.all(|effect| self.carry_out(effect, now, &mut done));
        let is_waiting = !self.calls.is_empty() || timeout.is_some();
        if is_possible && (done.is_some() || is_waiting) {
            return done;
        }
        let message = "a call is unknown, or the request is neither done nor waiting";
        self.fan_out.guard.report(now, Step::Gather(event), message);
        done.or_else(|| self.pass_straight())
    }

    /// False when the effect names a call that cannot be started or abandoned.
    fn carry_out(
        &mut self,
        effect: GatherEffect,
        now: Instant,
        done: &mut Option<GatherOutcome>,
    ) -> bool {
        match effect {
            GatherEffect::StartCall { call } => {
                let may_start =
                    call.0 as usize == self.tasks.len() && self.tasks.len() < self.results.len();
                if may_start {
                    self.start_call(call, now);
                }
                may_start
            }
            GatherEffect::AbandonCall { call } => {
                let task = self.tasks.get(call.0 as usize);
                task.map(AbortHandle::abort).is_some()
            }
            GatherEffect::Done { outcome } => {
                *done = Some(outcome);
                true
            }
        }
    }

    /// Sends the request to every shard and waits for all.
    fn pass_straight(&mut self) -> Option<GatherOutcome> {
        (self.is_broken, self.timeout) = (true, None);
        let now = self.now();
        for call in self.tasks.len()..self.results.len() {
            self.start_call(CallId(u32::try_from(call).expect("a gather counts in u32")), now);
        }
        let is_enough = self.succeeded() >= self.fan_out.gather.needed as usize;
        let outcome = if is_enough { GatherOutcome::Complete } else { GatherOutcome::Failed };
        self.calls.is_empty().then_some(outcome)
    }

    fn start_call(&mut self, call: CallId, now: Instant) {
        let shard = self.fan_out.shards[call.0 as usize].clone();
        let trail = self.trail.as_ref().expect("it is taken at the end");
        let context = trail.context.child(self.worker.new_span_id());
        let mut trail = Box::new(Trail::new(context, now, Arc::clone(&trail.asked), trail.tls));
        trail.is_call = true;
        let (route, class) = (Arc::clone(&shard.route), self.outgoing.request.class);
        trail.destination = Some(Destination { route, class });
        let run = call::run(
            Arc::clone(&self.worker),
            shard,
            (self.outgoing.for_call(None), trail),
            (Arc::clone(&self.buffer), self.merge),
        );
        self.tasks.push(self.calls.spawn(async move { (call, run.await) }));
    }

    fn call_ended(&mut self, ended: Result<(CallId, CallResult), JoinError>) -> GatherEvent {
        match ended {
            Ok((call, result)) => {
                let success = result.is_ok();
                if !success {
                    self.first_failed.get_or_insert(call);
                }
                self.results[call.0 as usize] = Some(result);
                GatherEvent::CallEnded { call, success }
            }
            // A call that panics ends its client's connection, as any other request does.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_aborted) => GatherEvent::Woke,
            },
        }
    }

    fn finish(mut self, outcome: GatherOutcome) -> ProxyResponse {
        let (succeeded, shards) = (self.succeeded(), self.results.len());
        let (result, (mut head, body), error) = match outcome {
            GatherOutcome::Complete => (FanOutResult::Complete, self.merged(), None),
            GatherOutcome::Partial if succeeded > 0 => (FanOutResult::Partial, self.merged(), None),
            GatherOutcome::Partial => {
                let (status, error) = (StatusCode::GATEWAY_TIMEOUT, "deadline");
                (FanOutResult::Failed, own(status, error, ""), Some(error))
            }
            GatherOutcome::Failed => self.failed(),
        };
        head.fields.append(b"curtail-shards", format!("{succeeded}/{shards}").as_bytes());
        let failed = self.failed_names();
        if !failed.is_empty() {
            head.fields.append(b"curtail-shards-failed", failed.as_bytes());
        }
        self.end(result, (Some(head.status), error));
        (head, body)
    }

    fn merged(&self) -> ProxyResponse {
        let responses = || self.results.iter().flatten().flatten();
        let mut head = ResponseHead::new(StatusCode::OK);
        let first_type = || {
            let mut fields = responses().next()?.head.fields.iter();
            fields.find(|(_, name, _)| *name == b"content-type").map(|(_, _, value)| value)
        };
        let content_type = match self.fan_out.merge {
            Merge::Concatenate => first_type(),
            Merge::JsonArray => Some(&b"application/json"[..]),
        };
        if let Some(content_type) = content_type {
            head.fields.append(b"content-type", content_type);
        }
        let body = self.merge.merge(responses().map(|response| &response.body));
        (head, RelayedBody::Whole(body))
    }

    /// The response when too many shards have failed: it follows from the first failure.
    fn failed(&self) -> (FanOutResult, ProxyResponse, Option<&'static str>) {
        let first = self.first_failed.and_then(|call| self.results[call.0 as usize].as_ref());
        let error = first.and_then(|result| result.as_ref().err());
        if let Some(response) = error.and_then(|error| error.response.as_ref()) {
            return (FanOutResult::Failed, pass_on(response), None);
        }
        let is_lost = self.outgoing.body.as_ref().is_some_and(|body| body.is_lost());
        let (status, name) = match error.map(|error| (error.status, error.name)) {
            _ if is_lost => (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
            Some((status, name)) if status.is_client_error() => (status, name),
            Some((StatusCode::GATEWAY_TIMEOUT, _)) => {
                (StatusCode::GATEWAY_TIMEOUT, "shards_failed")
            }
            Some((_, TOO_LARGE)) => (StatusCode::BAD_GATEWAY, TOO_LARGE),
            Some(_) | None => (StatusCode::BAD_GATEWAY, "shards_failed"),
        };
        let result = if name == TOO_LARGE { FanOutResult::TooLarge } else { FanOutResult::Failed };
        (result, own(status, name, ""), Some(name))
    }

    fn failed_names(&self) -> String {
        let results = self.results.iter().zip(&self.fan_out.shards);
        let failed = results.filter(|(result, _)| matches!(result, Some(Err(_))));
        let names = failed.map(|(_, shard)| &*shard.upstream.name);
        names.take(NAMES_MAX).collect::<Vec<_>>().join(", ")
    }

    fn succeeded(&self) -> usize {
        self.results.iter().flatten().flatten().count()
    }

    /// Records the end of the request, once.
    fn end(&mut self, result: FanOutResult, end: (Option<StatusCode>, Option<&'static str>)) {
        let Some(trail) = self.trail.take() else { return };
        let missing = (self.results.len() - self.succeeded()) as u64;
        let latency = self.now().since(trail.started);
        self.fan_out.metrics.ended(result, missing, latency);
        record_own(&self.worker, None, *trail, end);
    }

    fn now(&self) -> Instant {
        self.worker.shared.process_state.clock.now()
    }
}

impl Drop for FanOutRequest {
    fn drop(&mut self) {
        self.end(FanOutResult::ClientGone, (None, Some(Reason::ClientGone.name())));
    }
}

/// A shard's response with the headers that describe it.
fn pass_on(response: &ShardResponse) -> ProxyResponse {
    let mut head = ResponseHead::new(response.head.status);
    for (_, name, value) in response.head.fields.iter() {
        if matches!(name, b"content-type" | b"retry-after" | b"www-authenticate") {
            head.fields.append(name, value);
        }
    }
    (head, RelayedBody::Whole(response.body.clone()))
}

/// Waits for a deadline, forever if there is none.
async fn sleep_until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
