//! A recording of a service: its requests in order of arrival, with their attempts.
//!
//! A recording is the one input of a fit. It comes from a proxy's journal ([`from_journal`](Recording::from_journal)), from spans
//! ([`SpanReader`]), from the results of a load generator ([`from_slots`](Recording::from_slots)), or from a simulation
//! ([`from_records`](Recording::from_records)).
//! **Limits**: [`ROWS_MAX`] requests and as many attempts; later ones are counted and left out.
//! **Invariant**: a latency that was cut short, because the attempt was cancelled, is marked as such ([`AttemptEnd`]):
//! without the cancellation it would have been longer.

mod fan_out;
mod journal;
mod long_requests;
mod records;
mod slots;
mod spans;

pub use fan_out::{FanOut, FanOutRequest};
pub use spans::SpanReader;

use crate::fit::REQUESTS_MIN;
use curtail_policy::{BalanceConfig, UpstreamConfig};
use curtail_text::expectation;
use curtail_text::numbers::counted;
use curtail_units::{Duration, Instant, Quantile};

/// Maximum number of requests, and of attempts, of a recording.
pub const ROWS_MAX: usize = 4_000_000;

/// The number of a replica that is not known.
pub const UNKNOWN: u32 = u32::MAX;

/// The recorded requests of one upstream, or of all shards that requests fan out to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The source, in words.
    pub source: String,
    /// The requests, in order of arrival; of a fan-out, the calls.
    pub requests: Vec<RecordedRequest>,
    /// The requests whose calls are [`requests`](Self::requests), if requests fan out.
    pub fan_out: Option<FanOut>,
    /// The attempts of all requests, in the order of the requests.
    pub attempts: Vec<RecordedAttempt>,
    /// The names of the replicas; empty when they are not known. Those of a shard follow each other.
    pub replicas: Vec<String>,
    /// The policies during the recording, if they are known.
    pub policy: Option<UpstreamConfig>,
    /// The balancing rule, if it alone is known.
    pub balance: Option<BalanceConfig>,
    /// The median time of a message between root and leaf, if it was measured.
    pub message_delay: Option<Duration>,
    /// Whether the requests really arrived at these instants; otherwise only the rate is known.
    pub has_arrivals: bool,
    /// Requests that were left out beyond [`ROWS_MAX`], or by [`shorten`](Self::shorten).
    pub left_out: u64,
    /// The number of spans that were copies, ended before they started, or lasted too long.
    pub rejected_spans: u64,
    /// Requests that were left out because they lasted longer than the recording, such as streams.
    pub long_requests: u64,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The arrival.
    pub arrived: Instant,
    /// The time until the response; absent if the request failed.
    pub latency: Option<Duration>,
    /// The kind of the request: requests of equal kind do equal work (same operation, similar size).
    pub kind: u32,
    /// The number of attempts, which follow each other in [`Recording::attempts`].
    pub attempts: u32,
    /// Of a call: the index of its request in [`FanOut::requests`]; or [`UNKNOWN`].
    pub caller: u32,
    /// Whether hedges and ties were withheld from it. It is load, but its latency does not count.
    pub is_holdout: bool,
}

/// One attempt of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedAttempt {
    /// The index of the replica in [`Recording::replicas`], or [`UNKNOWN`].
    pub replica: u32,
    /// The instant at which it was sent.
    pub sent: Instant,
    /// The time from the sending to the end.
    pub lasted: Duration,
    /// How it ended.
    pub end: AttemptEnd,
    /// The time in service at its server, apart from waiting, if the server measured it.
    pub service: Option<Duration>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// With a good response.
    Responded,
    /// Without a good response.
    Failed,
    /// Cancelled: the response would have come later.
    Cancelled,
}

impl RecordedAttempt {
    /// The instant of the end.
    #[must_use]
    pub fn ended(&self) -> Instant {
        self.sent + self.lasted
    }
}

/// An input that holds no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The journal is damaged, or of another version.
    #[error(transparent)]
    Journal(#[from] curtail_sim::Unreadable),
    /// The input cannot be read.
    #[error("the recording cannot be read")]
    Io(#[from] std::io::Error),
    /// A line or a part is not what it should be.
    #[error("{location}: expected {expected}")]
    Invalid {
        /// The line, the key or the part of the input.
        location: String,
        /// The expected content.
        expected: String,
    },
    /// There is more than one upstream or service, so the caller has to choose.
    #[error("there are several: choose one of {}", .0.join(", "))]
    Ambiguous(Vec<String>),
    /// The chosen upstream or service is not there.
    #[error("{name:?} is not there: {}", similar(.name, .known))]
    NotThere {
        /// The name that was chosen.
        name: String,
        /// All names.
        known: Vec<String>,
    },
    /// A journal with a pattern of names: it does not link the calls of a fan-out.
    #[error(
        "{pattern:?}: a journal does not show which calls belong to one fan-out: choose one of {}, or predict \
         from the spans of the proxy (--service, or --from with spans)",
        .known.join(", ")
    )]
    FanOutInJournal {
        /// The pattern.
        pattern: String,
        /// All names.
        known: Vec<String>,
    },
    /// No remedy of this name fits the service.
    #[error("no remedy {name:?} fits the service: expected {}", .known.join(", "))]
    NoRemedy {
        /// The name.
        name: String,
        /// The names of those that do.
        known: Vec<String>,
    },
    /// Too few requests are in the input.
    #[error("{}", too_few(.found))]
    TooFew {
        /// The number of successful requests.
        found: usize,
    },
    /// Without those that last longer than the recording, there are too few requests.
    #[error("{}; left out as longer than the recording: {long}", too_few(.found))]
    TooManyLong {
        /// The number of successful requests that are shorter than the recording.
        found: usize,
        /// The number of longer ones.
        long: u64,
    },
}

fn similar(name: &str, known: &[String]) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    expectation(name, &known, "the recording has none")
}

fn too_few(found: &usize) -> String {
    format!("{} succeeded: expected at least {REQUESTS_MIN}", counted(*found as u64, "request"))
}

impl Recording {
    /// The time from the first arrival to the last one.
    #[must_use]
    pub fn span(&self) -> Duration {
        match (self.requests.first(), self.requests.last()) {
            (Some(first), Some(last)) => last.arrived.since(first.arrived),
            _ => Duration::ZERO,
        }
    }

    /// The number of requests; of a fan-out, without their calls.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.fan_out.as_ref().map_or(self.requests.len(), |fan_out| fan_out.requests.len())
    }

    /// The latency of each request that counts, [`None`] if it failed; of a fan-out, not of their calls.
    fn outcomes(&self) -> impl Iterator<Item = Option<Duration>> {
        let of_fan_out = self.fan_out.iter().flat_map(|fan_out| &fan_out.requests);
        let own = self.requests.iter().take_while(|_| self.fan_out.is_none());
        let own = own.filter(|request| !request.is_holdout);
        of_fan_out.map(|request| request.latency).chain(own.map(|request| request.latency))
    }

    /// The latency of each request that counts and succeeded; of a fan-out, not of their calls.
    pub(crate) fn latencies(&self) -> impl Iterator<Item = Duration> {
        self.outcomes().flatten()
    }

    /// The share of the requests from which hedges and ties were withheld.
    pub(crate) fn holdout_ratio(&self) -> f64 {
        let holdout = self.requests.iter().filter(|request| request.is_holdout).count();
        holdout as f64 / self.requests.len().max(1) as f64
    }

    /// Keeps the last `requests_max` requests or calls, without those that last longer than the recording.
    /// The others are left out and counted. The first one that is kept arrives at the instant zero.
    pub fn shorten(&mut self, requests_max: usize) {
        // Requests are long beside the whole recording, also if only its last part is kept.
        self.leave_out_long_requests();
        let (mut skipped, mut callers) = (self.requests.len().saturating_sub(requests_max), 0);
        if let Some(fan_out) = &mut self.fan_out {
            callers = fan_out.shorten(requests_max);
            let first = fan_out.requests.first().filter(|_| callers > 0);
            let first = first.map_or(Instant::ZERO, |request| request.arrived);
            skipped = self.requests.partition_point(|call| call.arrived < first);
        }
        if skipped == 0 && callers == 0 {
            return;
        }
        let kept = self.with_attempts().skip(skipped).map(|(request, attempts)| {
            let caller = request.caller.checked_sub(callers).unwrap_or(UNKNOWN);
            let caller = if request.caller == UNKNOWN { UNKNOWN } else { caller };
            (RecordedRequest { caller, ..*request }, attempts.to_vec())
        });
        let kept = kept.collect();
        self.left_out += skipped as u64;
        self.requests.clear();
        self.attempts.clear();
        self.fill(kept);
    }

    /// The latency at a quantile of all requests that are in no holdout, where a failed request is longer than all
    /// others; [`None`]: a failed request, or there are no requests.
    #[must_use]
    pub fn latency_at(&self, quantile: Quantile) -> Option<Duration> {
        let mut latencies: Vec<Duration> = self.latencies().collect();
        let rank = curtail_sketch::rank(quantile, self.outcomes().count() as u64);
        let nth = usize::try_from(rank).ok()?.checked_sub(1)?;
        if nth >= latencies.len() {
            return None;
        }
        let (_, latency, _) = latencies.select_nth_unstable(nth);
        Some(*latency)
    }

    /// Each request with its attempts.
    pub fn with_attempts(&self) -> impl Iterator<Item = (&RecordedRequest, &[RecordedAttempt])> {
        let mut next = 0;
        self.requests.iter().map(move |request| {
            let first = next;
            next += request.attempts as usize;
            (request, &self.attempts[first..next])
        })
    }

    /// Puts requests, each with its attempts, in order of arrival, from the instant zero on.
    fn fill(&mut self, mut rows: Vec<(RecordedRequest, Vec<RecordedAttempt>)>) {
        rows.sort_by_key(|(request, _)| request.arrived);
        let start = rows.first().map_or(Instant::ZERO, |(request, _)| request.arrived);
        let of_fan_out = self.fan_out.iter().flat_map(|fan_out| &fan_out.requests);
        let start = of_fan_out.map(|request| request.arrived).fold(start, Instant::min);
        let from_start = |at: Instant| Instant::ZERO + at.since(start);
        for request in self.fan_out.iter_mut().flat_map(|fan_out| &mut fan_out.requests) {
            request.arrived = from_start(request.arrived);
        }
        for (mut request, attempts) in rows {
            if self.requests.len() == ROWS_MAX || self.attempts.len() + attempts.len() > ROWS_MAX {
                self.left_out += 1;
                continue;
            }
            request.arrived = from_start(request.arrived);
            request.attempts = u32::try_from(attempts.len()).expect("a request has few attempts");
            self.requests.push(request);
            let attempts = attempts.into_iter();
            self.attempts.extend(
                attempts
                    .map(|attempt| RecordedAttempt { sent: from_start(attempt.sent), ..attempt }),
            );
        }
    }
}

/// Chooses one of several upstreams or services.
fn choose(names: Vec<String>, wanted: Option<&str>) -> Result<String, RecordingError> {
    match wanted {
        Some(name) if names.iter().any(|known| known == name) => Ok(name.to_owned()),
        Some(name) => Err(RecordingError::NotThere { name: name.to_owned(), known: names }),
        None if names.len() > 1 => Err(RecordingError::Ambiguous(names)),
        None => names.into_iter().next().ok_or(RecordingError::TooFew { found: 0 }),
    }
}
