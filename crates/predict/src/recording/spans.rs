//! Reads spans: OTLP as JSON, one batch a line.
//!
//! Spans of a Curtail proxy have the attempts of each request, with the replica of each. The span of a leaf below an
//! attempt has its time in service. Of other spans, each span through which a request enters the service is a request
//! with one attempt, at the pod, instance or host of its resource; the span that called it, in another service, has the
//! time with messages and waiting.
//! Requests with the same operation and a similar size (to a factor of two) are of one kind.
//! **Fan-outs**: upstreams whose names differ after a common prefix are the shards of one service, if requests call
//! several of them at the same time.
//! **Left out**, with a note, are copies of spans that were exported again, spans that end before they start, and those longer than
//! [`LASTED_MAX`]. Requests further apart than [`SPAN_MAX`] are rejected: a clock is wrong.
//! **Limits**: [`ROWS_MAX`] spans, [`KINDS_MAX`] kinds and as many names; further spans are left out, and further kinds
//! are one. [`REPLICAS_MAX`] replicas.

mod rules;

use super::{
    AttemptEnd, FanOut, FanOutRequest, ROWS_MAX, RecordedAttempt, RecordedRequest, Recording,
    RecordingError, UNKNOWN, choose,
};
use curtail_otlp::{Attribute, Limits, Signal, Slice, Span, Spans, Value, json};
use curtail_text::numbers::counted;
use curtail_units::{Duration, Instant};
use rules::BalancingRules;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Maximum number of kinds of requests, and of names.
const KINDS_MAX: usize = 65_536;

/// Maximum number of replicas of all shards together, with those that got no request.
const REPLICAS_MAX: usize = 4_096;

/// The longest span of a request. Time in proportion to it would be simulated.
const LASTED_MAX: Duration = Duration::from_secs(3_600);

/// The longest recording.
const SPAN_MAX: Duration = Duration::from_secs(31 * 86_400);

/// The status of a failed span, in OTLP.
const STATUS_ERROR: i32 = 2;

/// The attribute of an attempt of the proxy.
const ATTEMPT: &[u8] = b"curtail.attempt";

/// The resource attributes that name a replica, the best first.
const REPLICA_NAMES: [&[u8]; 4] =
    [b"k8s.pod.name", b"service.instance.id", b"container.id", b"host.name"];

/// What a recording needs of a span.
#[derive(Clone, Copy, Debug)]
struct SpanFacts {
    trace: u128,
    id: u64,
    parent: u64,
    start_ns: u64,
    end_ns: u64,
    name: u32,
    service: u32,
    /// The replica: of an attempt the one that it was sent to, of other spans the one that recorded it.
    replica: u32,
    /// The upstream of an attempt.
    upstream: Option<u32>,
    bytes: u64,
    /// The time in the queue of a leaf, which the span includes; absent: the span is of no leaf.
    queued_ns: Option<u64>,
    is_cancelled: bool,
    is_failed: bool,
}

impl SpanFacts {
    const fn lasted(&self) -> Duration {
        Duration::from_ns(self.end_ns.saturating_sub(self.start_ns))
    }

    const fn attempt_end(&self) -> AttemptEnd {
        match (self.is_cancelled, self.is_failed) {
            (true, _) => AttemptEnd::Cancelled,
            (false, true) => AttemptEnd::Failed,
            (false, false) => AttemptEnd::Responded,
        }
    }

    /// The time of the span without its queue.
    fn in_service(&self) -> Duration {
        Duration::from_ns(self.lasted().as_ns().saturating_sub(self.queued_ns.unwrap_or(0)))
    }
}

/// Names, each with a number.
#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    /// The number of a name; [`None`] if it is new and there is no room.
    fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        if self.names.len() == KINDS_MAX {
            return None;
        }
        let number = u32::try_from(self.names.len()).ok()?;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Some(number)
    }

    fn name(&self, number: u32) -> String {
        self.names[number as usize].clone()
    }
}

/// Collects spans, and makes a recording of them.
#[derive(Debug, Default)]
pub struct SpanReader {
    /// Services, replicas and upstreams.
    names: Names,
    operations: Names,
    rules: BalancingRules,
    spans: Vec<SpanFacts>,
    lines: u64,
    left_out: u64,
    /// Copies, and spans of impossible times.
    rejected: u64,
}

impl SpanReader {
    /// No spans yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of lines read.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// The number of spans for which there was no room.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether there are spans of attempts of a proxy.
    #[must_use]
    pub fn has_upstreams(&self) -> bool {
        self.spans.iter().any(|span| span.upstream.is_some())
    }

    /// Reads the next line: a batch of traces in JSON; an empty line has none.
    ///
    /// # Errors
    /// When the line is no batch of traces.
    pub fn read_line(&mut self, line: &str) -> Result<(), RecordingError> {
        self.lines += 1;
        if line.trim().is_empty() {
            return Ok(());
        }
        let limits = Limits::default();
        let nth = self.lines;
        let batch =
            json::to_protobuf(line.as_bytes(), Signal::Traces, &limits).map_err(|error| {
                RecordingError::Invalid {
                    location: format!("line {nth}, byte {}", error.byte()),
                    expected: format!("spans as OTLP in JSON ({})", error.what()),
                }
            })?;
        let (spans, _) =
            Spans::decode(&batch, &limits).map_err(|error| RecordingError::Invalid {
                location: format!("line {nth}"),
                expected: format!("spans as OTLP in JSON ({error})"),
            })?;
        self.add_spans(&spans, &batch);
        Ok(())
    }

    /// Adds a batch of traces in Protobuf, as a store has it.
    ///
    /// # Errors
    /// When the batch is malformed.
    pub fn add(&mut self, batch: &[u8]) -> Result<(), curtail_otlp::Malformed> {
        let (spans, _) = Spans::decode(batch, &Limits::STORED)?;
        self.add_spans(&spans, batch);
        Ok(())
    }

    fn add_spans(&mut self, spans: &Spans, batch: &[u8]) {
        for span in &spans.spans {
            if self.spans.len() == ROWS_MAX {
                self.left_out += 1;
                continue;
            }
            let is_plausible =
                span.end_ns.checked_sub(span.start_ns).is_some_and(|ns| ns <= LASTED_MAX.as_ns());
            if !is_plausible {
                self.rejected += 1;
                continue;
            }
            match self.facts(span, spans, batch) {
                Some(facts) => self.spans.push(facts),
                None => self.left_out += 1,
            }
        }
    }

    /// [`None`] if there is no room for the name of a service or a replica.
    fn facts(&mut self, span: &Span, spans: &Spans, batch: &[u8]) -> Option<SpanFacts> {
        let scope = spans.envelope.scopes.get(span.scope as usize);
        let resource =
            scope.and_then(|scope| spans.envelope.resources.get(scope.resource as usize));
        let of_resource =
            resource.map_or(&[][..], |resource| resource.attributes.of(&spans.envelope.attributes));
        let own = span.attributes.of(&spans.attributes);
        let text_of = |key: &[u8]| text(of_resource, key, batch);
        let service = text_of(b"service.name").unwrap_or("unknown");
        let upstream = find(own, ATTEMPT, batch).and(text(own, b"curtail.upstream", batch));
        let replica = match upstream {
            Some(_) => {
                let host = text(own, b"server.address", batch).unwrap_or_default();
                let port = int(own, b"server.port", batch).unwrap_or_default();
                format!("{host}:{port}")
            }
            None => REPLICA_NAMES.into_iter().find_map(text_of).unwrap_or(service).to_owned(),
        };
        let bytes = [b"http.request.body.size".as_slice(), b"http.response.body.size"]
            .into_iter()
            .filter_map(|key| int(own, key, batch))
            .sum();
        let upstream = match upstream {
            Some(upstream) => Some(self.names.number(upstream)?),
            None => None,
        };
        if let Some((upstream, choice)) = upstream.zip(text(own, b"curtail.choice", batch)) {
            self.rules.add(upstream, choice);
        }
        Some(SpanFacts {
            trace: span.trace_id,
            id: span.span_id,
            parent: span.parent_id,
            start_ns: span.start_ns,
            end_ns: span.end_ns,
            // Further operations are one kind.
            name: self.operations.number(bytes_of(span.name, batch)).unwrap_or(UNKNOWN),
            service: self.names.number(service)?,
            replica: self.names.number(&replica)?,
            upstream,
            bytes,
            queued_ns: int(own, b"curtail.leaf.wait_ns", batch),
            is_cancelled: find(own, b"curtail.cancelled", batch).is_some(),
            is_failed: span.status == STATUS_ERROR,
        })
    }

    /// The recording of one upstream or service, `wanted` if there are several. Upstreams that requests fan out to are the
    /// shards of one service: `wanted` can name them with a pattern (`shard-*`).
    ///
    /// # Errors
    /// When there are several and none is wanted, when the wanted one is not there, or when there is no request.
    pub fn finish(mut self, wanted: Option<&str>) -> Result<Recording, RecordingError> {
        let mut known = HashSet::with_capacity(self.spans.len());
        let all = self.spans.len();
        self.spans.retain(|span| known.insert((span.trace, span.id)));
        self.rejected += (all - self.spans.len()) as u64;
        let of_proxy: BTreeSet<u32> = self.spans.iter().filter_map(|span| span.upstream).collect();
        let names = |numbers: &BTreeSet<u32>| -> Vec<String> {
            numbers.iter().map(|number| self.names.name(*number)).collect()
        };
        let shards = self.shards(&of_proxy, wanted);
        let is_service = wanted.is_some_and(|name| !names(&of_proxy).iter().any(|of| of == name));
        let mut recording = Recording {
            has_arrivals: true,
            left_out: self.left_out,
            rejected_spans: self.rejected,
            ..Recording::default()
        };
        let rows;
        if let Some(shards) = &shards {
            let (fan_out, callers) = self.fan_out(shards);
            recording.balance = self.rules.of(shards);
            rows = self.attempts(shards, &callers);
            recording.fan_out = Some(fan_out);
            recording.source = format!("spans of the proxy, {} shards", shards.len());
        } else if of_proxy.is_empty() || is_service {
            let of_service: BTreeSet<u32> = self.spans.iter().map(|span| span.service).collect();
            let name = choose(names(&of_service), wanted)?;
            rows = self.entries(&name);
            recording.source = format!("spans, service {name}");
        } else {
            let name = choose(names(&of_proxy), wanted)?;
            let is_chosen = |number: &&u32| self.names.names[**number as usize] == name;
            let chosen = of_proxy.iter().filter(is_chosen).copied().collect();
            recording.balance = self.rules.of(&chosen);
            rows = self.attempts(&chosen, &HashMap::new());
            recording.source = format!("spans of the proxy, upstream {name}");
        }
        self.fill(recording, rows, shards.as_ref())
    }

    /// Puts rows into a recording, with only the names of their replicas, shard by shard.
    fn fill(
        &self,
        mut recording: Recording,
        rows: Vec<Row>,
        shards: Option<&BTreeSet<u32>>,
    ) -> Result<Recording, RecordingError> {
        let mut used: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (_, attempts) in &rows {
            for (attempt, upstream) in attempts {
                let shard = shards.map_or(0, |_| *upstream);
                used.entry(shard).or_default().insert(attempt.replica);
            }
        }
        let replicas_max = used.values().map(BTreeSet::len).max().unwrap_or(0);
        if used.len() * replicas_max > REPLICAS_MAX {
            let [shards, replicas] = [(used.len(), "shard"), (replicas_max, "replica")]
                .map(|(count, noun)| counted(count as u64, noun));
            let found = format!("{shards} of {replicas}");
            return Err(RecordingError::Invalid {
                location: "spans".to_owned(),
                expected: format!("at most {REPLICAS_MAX} replicas of all shards, found {found}"),
            });
        }
        let mut numbers = HashMap::new();
        for ((shard, replicas), nth) in used.iter().zip(1..) {
            for replica in replicas {
                let next = u32::try_from(recording.replicas.len()).unwrap_or(UNKNOWN);
                recording.replicas.push(self.names.name(*replica));
                numbers.insert((*shard, *replica), next);
            }
            // A replica that got no request has no name.
            recording.replicas.resize(nth * replicas_max, String::new());
        }
        let renumbered = rows.into_iter().map(|(request, attempts)| {
            let attempts = attempts.into_iter().map(|(attempt, upstream)| {
                let shard = shards.map_or(0, |_| upstream);
                RecordedAttempt { replica: numbers[&(shard, attempt.replica)], ..attempt }
            });
            (request, attempts.collect())
        });
        recording.fill(renumbered.collect());
        let Some(last) = recording.requests.last() else {
            return Err(RecordingError::TooFew { found: 0 });
        };
        if last.arrived > Instant::ZERO + SPAN_MAX {
            let days = last.arrived.as_ns() / 86_400_000_000_000;
            return Err(RecordingError::Invalid {
                location: "spans".to_owned(),
                expected: format!(
                    "requests of at most 31 days, found {days} days: is a clock wrong?"
                ),
            });
        }
        Ok(recording)
    }

    /// The upstreams that `wanted` names with a pattern, or, if nothing is wanted, all upstreams if they are named as
    /// shards and requests call several at the same time; [`None`]: requests do not fan out.
    fn shards(&self, of_proxy: &BTreeSet<u32>, wanted: Option<&str>) -> Option<BTreeSet<u32>> {
        let name = |number: &u32| &*self.names.names[*number as usize];
        let shards: BTreeSet<u32> = match wanted.map(|wanted| wanted.strip_suffix('*')) {
            Some(prefix) => {
                let prefix = prefix?;
                of_proxy.iter().filter(|number| name(number).starts_with(prefix)).copied().collect()
            }
            None => of_proxy.clone(),
        };
        let (several, at_once) = self.count_fan_outs(&shards);
        // A user who names the shards knows that requests fan out to them.
        let fans_out = match wanted {
            Some(_) => several > 0,
            None => {
                let names: Vec<&str> = shards.iter().map(name).collect();
                at_once > 0 && at_once * 2 >= several && are_shards(&names)
            }
        };
        fans_out.then_some(shards)
    }

    /// The number of requests that call several of the shards, and of those that do at the same time.
    fn count_fan_outs(&self, shards: &BTreeSet<u32>) -> (usize, usize) {
        let by_id = self.by_id();
        let mut of_requests: HashMap<SpanKey, Vec<(u64, u64, u32)>> = HashMap::new();
        for span in &self.spans {
            if let Some(upstream) = span.upstream.filter(|upstream| shards.contains(upstream))
                && let Some(call) = by_id.get(&(span.trace, span.parent))
                && by_id.contains_key(&(call.trace, call.parent))
            {
                let calls = of_requests.entry((call.trace, call.parent)).or_default();
                calls.push((call.start_ns, call.end_ns, upstream));
            }
        }
        let (mut several, mut at_once) = (0, 0);
        for calls in of_requests.values_mut() {
            calls.sort_unstable();
            let are_several = calls.iter().any(|(.., upstream)| *upstream != calls[0].2);
            let overlap =
                |pair: &[(u64, u64, u32)]| pair[0].2 != pair[1].2 && pair[1].0 < pair[0].1;
            several += usize::from(are_several);
            at_once += usize::from(calls.windows(2).any(overlap));
        }
        (several, at_once)
    }

    /// The requests that call the shards, and the index of each.
    fn fan_out(&self, shards: &BTreeSet<u32>) -> (FanOut, HashMap<SpanKey, u32>) {
        let by_id = self.by_id();
        let attempts = self
            .spans
            .iter()
            .filter(|span| span.upstream.is_some_and(|upstream| shards.contains(&upstream)));
        let calls: BTreeSet<(u128, u64)> =
            attempts.map(|attempt| (attempt.trace, attempt.parent)).collect();
        let mut requests: BTreeMap<(u128, u64), (u32, Duration)> = BTreeMap::new();
        for call in calls.iter().filter_map(|key| by_id.get(key)) {
            let (count, longest) = requests.entry((call.trace, call.parent)).or_default();
            (*count, *longest) = (*count + 1, call.lasted().max(*longest));
        }
        let mut counts: Vec<u32> = requests.values().map(|(count, _)| *count).collect();
        counts.sort_unstable();
        let mut fan_out = FanOut {
            shards: u32::try_from(shards.len()).unwrap_or(UNKNOWN),
            calls: counts.get(counts.len() / 2).copied().unwrap_or(1),
            requests: Vec::new(),
        };
        let known = requests.iter().filter_map(|(key, (_, longest))| {
            let request = by_id.get(key)?;
            let overhead = request.lasted().as_ns().saturating_sub(longest.as_ns());
            let request = FanOutRequest {
                arrived: Instant::from_ns(request.start_ns),
                latency: Some(request.lasted()).filter(|_| !request.is_failed),
                overhead: Duration::from_ns(overhead),
            };
            Some((*key, request))
        });
        let mut known: Vec<(SpanKey, FanOutRequest)> = known.collect();
        known.sort_by_key(|(_, request)| request.arrived);
        fan_out.requests = known.iter().map(|(_, request)| *request).collect();
        (fan_out, known.iter().map(|(key, _)| *key).zip(0..).collect())
    }

    fn by_id(&self) -> HashMap<(u128, u64), &SpanFacts> {
        self.spans.iter().map(|span| ((span.trace, span.id), span)).collect()
    }

    /// The requests of upstreams of the proxy, with their attempts; of a fan-out, the calls of the `callers`.
    fn attempts(&self, upstreams: &BTreeSet<u32>, callers: &HashMap<SpanKey, u32>) -> Vec<Row> {
        let by_id = self.by_id();
        let children = self.spans.iter().filter(|span| span.upstream.is_none());
        let below: HashMap<(u128, u64), &SpanFacts> =
            children.map(|span| ((span.trace, span.parent), span)).collect();
        // In the order of trace IDs, so that equal instants have the same order in each run.
        let mut requests: BTreeMap<(u128, u64), Vec<(RecordedAttempt, u32)>> = BTreeMap::new();
        for span in &self.spans {
            let Some(upstream) = span.upstream.filter(|number| upstreams.contains(number)) else {
                continue;
            };
            let attempt = RecordedAttempt {
                replica: span.replica,
                sent: Instant::from_ns(span.start_ns),
                lasted: span.lasted(),
                end: span.attempt_end(),
                // The span of a server that pauses begins only after the pause; a leaf runs on.
                service: below
                    .get(&(span.trace, span.id))
                    .filter(|span| span.queued_ns.is_some())
                    .map(|span| span.in_service()),
            };
            requests.entry((span.trace, span.parent)).or_default().push((attempt, upstream));
        }
        let mut kinds = HashMap::new();
        let rows = requests.into_iter().filter_map(|(key, mut attempts)| {
            attempts.sort_by_key(|(attempt, _)| attempt.sent);
            let span = by_id.get(&key)?;
            let caller = callers.get(&(span.trace, span.parent)).copied().unwrap_or(UNKNOWN);
            let request = RecordedRequest { caller, ..self.request(span, &mut kinds) };
            Some((request, attempts))
        });
        rows.collect()
    }

    /// The requests that enter a service from outside, with one attempt each.
    fn entries(&self, service: &str) -> Vec<Row> {
        let by_id = self.by_id();
        let mut kinds = HashMap::new();
        let mut rows = Vec::new();
        for span in &self.spans {
            let caller = by_id.get(&(span.trace, span.parent));
            let is_entry = caller.is_none_or(|caller| caller.service != span.service);
            if !is_entry || self.names.names[span.service as usize] != service {
                continue;
            }
            let outer = caller
                .copied()
                .filter(|caller| caller.start_ns <= span.start_ns && span.end_ns <= caller.end_ns);
            let outer = outer.filter(|caller| has_one_callee(caller, span));
            let seen = outer.unwrap_or(span);
            let attempt = RecordedAttempt {
                replica: span.replica,
                sent: Instant::from_ns(seen.start_ns),
                lasted: seen.lasted(),
                end: span.attempt_end(),
                service: outer.map(|_| span.in_service()),
            };
            let request = SpanFacts { start_ns: seen.start_ns, end_ns: seen.end_ns, ..*span };
            rows.push((self.request(&request, &mut kinds), vec![(attempt, UNKNOWN)]));
        }
        rows
    }

    fn request(&self, span: &SpanFacts, kinds: &mut HashMap<(u32, u32), u32>) -> RecordedRequest {
        let size = span.bytes.checked_ilog2().map_or(0, |log| log + 1);
        let next = u32::try_from(kinds.len().min(KINDS_MAX)).unwrap_or(UNKNOWN);
        RecordedRequest {
            arrived: Instant::from_ns(span.start_ns),
            latency: Some(span.lasted()).filter(|_| span.attempt_end() == AttemptEnd::Responded),
            kind: *kinds.entry((span.name, size)).or_insert(next),
            attempts: 0,
            caller: UNKNOWN,
            is_holdout: false,
        }
    }
}

/// A request with its attempts, each with its upstream.
type Row = (RecordedRequest, Vec<(RecordedAttempt, u32)>);

/// The trace and the ID of a span.
type SpanKey = (u128, u64);

/// Whether names are those of shards: they differ in a number, or after a separator.
fn are_shards(names: &[&str]) -> bool {
    let Some((first, others)) = names.split_first() else { return false };
    let common = |prefix: &str, other: &str| {
        let same = prefix.chars().zip(other.chars()).take_while(|(a, b)| a == b);
        same.map(|(a, _)| a.len_utf8()).sum::<usize>()
    };
    let length = others.iter().fold(first.len(), |length, other| common(&first[..length], other));
    let prefix = first[..length].trim_end_matches(|c: char| c.is_ascii_digit());
    let is_number = |name: &&str| name[prefix.len()..].bytes().all(|byte| byte.is_ascii_digit());
    let is_separated = prefix.ends_with(|c: char| !c.is_alphanumeric());
    !prefix.is_empty() && (is_separated || names.iter().all(is_number))
}

/// Whether a calling span is that of one call: then it lasts hardly longer than its callee and the messages.
const fn has_one_callee(caller: &SpanFacts, callee: &SpanFacts) -> bool {
    let within = callee.end_ns.saturating_sub(callee.start_ns);
    caller.end_ns.saturating_sub(caller.start_ns) / 2 <= within
}

fn find<'a>(attributes: &'a [Attribute], key: &[u8], batch: &[u8]) -> Option<&'a Value> {
    let found = attributes.iter().find(|attribute| attribute.key.of(batch) == key);
    found.map(|attribute| &attribute.value)
}

fn text<'b>(attributes: &[Attribute], key: &[u8], batch: &'b [u8]) -> Option<&'b str> {
    match find(attributes, key, batch)? {
        Value::Text(text) => Some(bytes_of(*text, batch)),
        Value::Empty
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Double(_)
        | Value::List(_)
        | Value::Map(_)
        | Value::Bytes(_) => None,
    }
}

fn int(attributes: &[Attribute], key: &[u8], batch: &[u8]) -> Option<u64> {
    match find(attributes, key, batch)? {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::Empty
        | Value::Bool(_)
        | Value::Text(_)
        | Value::Double(_)
        | Value::List(_)
        | Value::Map(_)
        | Value::Bytes(_) => None,
    }
}

fn bytes_of(slice: Slice, batch: &[u8]) -> &str {
    std::str::from_utf8(slice.of(batch)).unwrap_or("invalid UTF-8")
}

#[cfg(test)]
mod tests;
