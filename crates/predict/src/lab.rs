//! Recordings with known parameters, computed without the simulator: an independent calculation for tests.
//!
//! Each replica serves in order of arrival, `concurrency` requests at once. Slow periods are given; the end of an
//! execution follows from the pace by stepping through the periods.

use crate::pace::SlowPeriod;
use crate::recording::{AttemptEnd, RecordedAttempt, RecordedRequest, Recording, UNKNOWN};
use curtail_units::{Duration, Instant, Rng};

/// A service with known parameters.
pub(crate) struct Lab {
    pub(crate) seed: u64,
    pub(crate) requests: usize,
    pub(crate) per_second: f64,
    pub(crate) replicas: u32,
    pub(crate) concurrency: usize,
    /// The work of a request.
    pub(crate) work_ms: fn(&mut Rng) -> f64,
    pub(crate) periods: Vec<SlowPeriod>,
}

impl Lab {
    /// A service without slow periods, and just enough requests for a prediction.
    pub(crate) fn small(seed: u64) -> Self {
        Self {
            seed,
            requests: 2_000,
            per_second: 100.0,
            replicas: 3,
            concurrency: 4,
            work_ms: |rng| 10.0 * rng.exponential(),
            periods: Vec::new(),
        }
    }

    /// One attempt for each request, to a random replica.
    pub(crate) fn record(&self) -> Recording {
        let mut rng = Rng::new(self.seed);
        // The instant at which each of the executions of a replica is over.
        let mut busy_until = vec![vec![Instant::ZERO; self.concurrency]; self.replicas as usize];
        let mut recording = Recording {
            source: "lab".to_owned(),
            replicas: (0..self.replicas).map(|nth| format!("replica-{nth}")).collect(),
            has_arrivals: true,
            ..Recording::default()
        };
        let mut now = Instant::from_ns(1);
        for _ in 0..self.requests {
            now = now + Duration::from_secs_f64(rng.exponential() / self.per_second);
            let replica = rng.below(busy_until.len());
            let earliest =
                busy_until[replica].iter_mut().min().expect("the concurrency is at least 1");
            let started = now.max(*earliest);
            let work_ns = (self.work_ms)(&mut rng) * 1e6;
            let ended = self.end(replica, started, work_ns);
            *earliest = ended;
            let lasted = ended.since(now);
            let request = RecordedRequest {
                arrived: now,
                latency: Some(lasted),
                kind: 0,
                attempts: 1,
                caller: UNKNOWN,
                is_holdout: false,
            };
            recording.requests.push(request);
            recording.attempts.push(RecordedAttempt {
                replica: u32::try_from(replica).expect("few"),
                sent: now,
                lasted,
                end: AttemptEnd::Responded,
                service: None,
            });
        }
        recording
    }

    fn end(&self, replica: usize, started: Instant, work_ns: f64) -> Instant {
        let (mut at, mut left) = (started, work_ns);
        for period in self.periods.iter().filter(|period| period.replica as usize == replica) {
            if period.to <= at {
                continue;
            }
            let before = period.from.since(at).as_ns_f64();
            if left <= before {
                break;
            }
            left -= before;
            at = at.max(period.from);
            let within = period.to.since(at).as_ns_f64() / period.slowdown;
            if left <= within {
                return at + Duration::from_ns_f64(left * period.slowdown);
            }
            left -= within;
            at = period.to;
        }
        at + Duration::from_ns_f64(left)
    }

    /// Periods at random instants, each replica in turn: `every` from start to start on average.
    pub(crate) fn periods(
        (seed, replicas): (u64, u32),
        every_s: f64,
        lasts_ms: u64,
        slowdown: f64,
        until_s: f64,
    ) -> Vec<SlowPeriod> {
        let mut rng = Rng::new(seed).split("periods");
        let mut periods = Vec::new();
        for replica in 0..replicas {
            let mut at = rng.exponential() * every_s;
            while at < until_s {
                let from = Instant::ZERO + Duration::from_secs_f64(at);
                let to = from + Duration::from_ms(lasts_ms);
                periods.push(SlowPeriod { replica, from, to, slowdown });
                at += lasts_ms as f64 / 1e3 + rng.exponential() * every_s;
            }
        }
        periods
    }
}
