//! A recorded timeline: arrivals and slow periods of servers as they happened, instead of at random.
//!
//! After its end, a timeline begins again, so a run may be longer than the recording.
//! **Inputs**: arrivals, and slow periods that do not overlap on one server.

use curtail_units::{Duration, Instant};

/// The recorded arrivals and slow periods of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedTimeline {
    /// The arrivals of requests, in any order; at least one. What is later than `lasts` is left out.
    pub arrivals: Vec<Instant>,
    /// The work of the calls of each request, in the order of `arrivals`: service times at the usual pace. A further attempt
    /// does the work of a random call of its request. Without them, the model's distribution is drawn from.
    pub works: Vec<Vec<Duration>>,
    /// The slow periods of servers, in any order.
    pub slow_periods: Vec<RecordedSlowPeriod>,
    /// The duration of the timeline, after which it begins again.
    pub lasts: Duration,
}

/// A time in which a server had another pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedSlowPeriod {
    /// The server.
    pub server: u32,
    /// The start.
    pub from: Instant,
    /// The end.
    pub to: Instant,
    /// The factor by which executions take longer; infinite: the server stopped.
    pub slowdown: f64,
}

/// Instants that repeat after a time.
#[derive(Clone, Debug)]
struct Cycle<T> {
    items: Vec<(Instant, T)>,
    lasts: Duration,
    next: usize,
    /// The start of the present repetition.
    start: Instant,
}

impl<T: Copy> Cycle<T> {
    fn new(mut items: Vec<(Instant, T)>, lasts: Duration) -> Self {
        items.sort_by_key(|(at, _)| *at);
        // A timeline without a duration would repeat its instants for ever.
        Self { items, lasts: lasts.max(Duration::from_ns(1)), next: 0, start: Instant::ZERO }
    }

    fn next(&mut self) -> Option<(Instant, T)> {
        if self.next == self.items.len() {
            (self.next, self.start) = (0, self.start + self.lasts);
        }
        let (at, item) = *self.items.get(self.next)?;
        self.next += 1;
        Some((self.start + at.since(Instant::ZERO), item))
    }
}

/// The state of a timeline in a run.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCursor {
    arrivals: Cycle<usize>,
    /// The index of the next arrival, as the recording has it.
    arriving: usize,
    /// The next change of a server's speed: the server, and its new speed.
    changes: Cycle<(u32, f64)>,
    /// The present speed of each server.
    speeds: Vec<f64>,
    /// The change that the driver waits for.
    due: Option<(u32, f64)>,
}

impl RecordedCursor {
    pub(crate) fn new(timeline: &RecordedTimeline, servers: u32) -> Self {
        let end = Instant::ZERO + timeline.lasts;
        let of_period = |period: &RecordedSlowPeriod| {
            let RecordedSlowPeriod { server, from, to, slowdown } = *period;
            [(from, (server, 1.0 / slowdown)), (to.min(end), (server, 1.0))]
        };
        let is_within = |period: &&RecordedSlowPeriod| period.server < servers && period.from < end;
        let known = timeline.slow_periods.iter().filter(is_within);
        let arrivals = (0..).zip(&timeline.arrivals).filter(|(_, at)| **at < end);
        let arrivals = arrivals.map(|(nth, at)| (*at, nth)).collect();
        Self {
            arrivals: Cycle::new(arrivals, timeline.lasts),
            arriving: 0,
            changes: Cycle::new(known.flat_map(of_period).collect(), timeline.lasts),
            speeds: vec![1.0; servers as usize],
            due: None,
        }
    }

    pub(crate) fn next_arrival(&mut self) -> Option<Instant> {
        let (at, nth) = self.arrivals.next()?;
        self.arriving = nth;
        Some(at)
    }

    /// The index of the latest arrival that [`next_arrival`](Self::next_arrival) returned.
    pub(crate) const fn arriving(&self) -> usize {
        self.arriving
    }

    /// The instant of the next change of a speed.
    pub(crate) fn next_change(&mut self) -> Option<Instant> {
        let (at, change) = self.changes.next()?;
        self.due = Some(change);
        Some(at)
    }

    /// Carries out the change that is due; returns its server.
    pub(crate) fn change(&mut self) -> Option<u32> {
        let (server, speed) = self.due.take()?;
        self.speeds[server as usize] = speed;
        Some(server)
    }

    pub(crate) fn speed(&self, server: u32) -> f64 {
        self.speeds[server as usize]
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Model;
    use crate::{Arm, RecordedSlowPeriod, RecordedTimeline, Scenario, Stop, Variant, run};
    use curtail_model::Distribution;
    use curtail_policy::{BalanceConfig, UpstreamConfig};
    use curtail_units::{Duration, Instant, Quantile};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_ms(ms)
    }

    /// Simulates a server with a service time of 10 ms that gets a request every 100 ms.
    fn simulate(slow_periods: Vec<RecordedSlowPeriod>) -> crate::ArmReport {
        let arrivals = (0..10).map(|nth| at(100 * nth)).collect();
        let lasts = Duration::from_secs(1);
        let timeline = RecordedTimeline { arrivals, works: Vec::new(), slow_periods, lasts };
        let service = Distribution::Constant { value: Duration::from_ms(10) };
        let model = Model { timeline: Some(timeline.into()), ..Model::queue(1, 0.5, service) };
        let scenario = Scenario {
            variants: vec![Variant { name: String::new(), model }],
            arms: vec![Arm::new("plain", UpstreamConfig::plain(BalanceConfig::Random))],
            above: vec![Duration::from_ms(11), Duration::from_ms(51)],
            stop: Stop {
                precision: None,
                requests_min: 0,
                requests_max: 20_000,
                has_warm_up: true,
            },
        };
        run(&scenario, 1, |_| {}).arms.remove(0)
    }

    #[test]
    fn arrivals_and_slow_periods_are_as_recorded_over_and_over() {
        let healthy = simulate(Vec::new());
        let p50 = |report: &crate::ArmReport| {
            report.quantile_ns(Quantile::P50).expect("all succeed").value / 1e6
        };
        assert!((p50(&healthy) - 10.0).abs() < 0.01, "{}", p50(&healthy));
        assert!((healthy.utilization_ratio - 0.1).abs() < 0.001, "{}", healthy.utilization_ratio);
        // The request at 200 ms is stopped after 5 ms of its work, for 45 ms; that at 500 ms is 4 times slower.
        let period = |from, to, slowdown| RecordedSlowPeriod {
            server: 0,
            from: at(from),
            to: at(to),
            slowdown,
        };
        let report = simulate(vec![period(490, 560, 4.0), period(205, 250, f64::INFINITY)]);
        assert!((p50(&report) - 10.0).abs() < 0.01, "{}", p50(&report));
        // Of ten requests one takes 55 ms and one 40 ms.
        let [slow, slowest] = [0, 1].map(|nth| report.above[nth].1.value);
        assert!((slow - 0.2).abs() < 0.001 && (slowest - 0.1).abs() < 0.001, "{slow}, {slowest}");
    }

    #[test]
    fn calls_of_a_request_have_its_recorded_work() {
        let ms = Duration::from_ms;
        // In every second request all three calls are slow: drawn one by one, seven of eight would have a slow call.
        let works = [vec![ms(1), ms(2), ms(3)], vec![ms(40), ms(50), ms(60)]];
        let timeline = RecordedTimeline {
            arrivals: (0..10).map(|nth| at(100 * nth)).collect(),
            works: works.iter().cloned().cycle().take(10).collect(),
            slow_periods: Vec::new(),
            lasts: Duration::from_secs(1),
        };
        let service = Distribution::Constant { value: ms(1_000) };
        let model = Model {
            timeline: Some(timeline.into()),
            fan_out: 3,
            shards: 3,
            replicas: 1,
            ..Model::queue(3, 0.5, service)
        };
        let scenario = Scenario {
            variants: vec![Variant { name: String::new(), model }],
            arms: vec![Arm::new("plain", UpstreamConfig::plain(BalanceConfig::Random))],
            above: vec![ms(2), ms(4), ms(59), ms(61)],
            stop: Stop {
                precision: None,
                requests_min: 0,
                requests_max: 20_000,
                has_warm_up: true,
            },
        };
        let report = run(&scenario, 1, |_| {}).arms.remove(0);
        let above: Vec<f64> = report.above.iter().map(|(_, share)| share.value).collect();
        for (share, expected) in above.iter().zip([1.0, 0.5, 0.5, 0.0]) {
            assert!((share - expected).abs() < 0.001, "{above:?}");
        }
    }
}
