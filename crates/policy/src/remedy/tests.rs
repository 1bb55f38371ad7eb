use super::{
    DRY_RUN_REQUESTS_MIN, DRY_RUN_SLOW_MIN, OFF_MAX, OFF_MIN, Remedy, RemedyEstimate, RemedyEvent,
    RemedyState, SIDE_REQUESTS_MIN, SlowCount, SlowShares, WINDOW,
};
use crate::Decided;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use curtail_units::{Duration, Instant, Quantile, Ratio};
use expect_test::expect;

const LOOK: Duration = Duration::from_secs(5);

fn estimated(requests: u64, ratio_high: f64) -> RemedyEstimate {
    RemedyEstimate {
        requests,
        quantile: Quantile::P999,
        without: Duration::from_ms(400),
        with: Duration::from_ms(100),
        threshold: Duration::from_ms(200),
        slow_without: DRY_RUN_SLOW_MIN,
        slow_with: 2,
        ratio_high,
    }
}

fn estimate(requests: u64, ratio_high: f64) -> RemedyEvent {
    RemedyEvent::Estimated(estimated(requests, ratio_high))
}

#[test]
fn a_gain_needs_a_shorter_latency_and_fewer_slow_requests() {
    let gain = estimated(5_000, 0.8);
    assert!(gain.is_gain());
    assert!(!RemedyEstimate { ratio_high: 0.81, ..gain }.is_gain());
    assert!(!RemedyEstimate { slow_without: DRY_RUN_SLOW_MIN - 1, ..gain }.is_gain());
    assert!(RemedyEstimate { with: Duration::from_ms(320), ..gain }.is_gain());
    assert!(!RemedyEstimate { with: Duration::from_ms(321), ..gain }.is_gain());
}

fn shares(requests: u64, (ratio_low, ratio_high): (f64, Option<f64>)) -> RemedyEvent {
    let count = |slow| SlowCount { slow, requests };
    let (without, with) = (count(30), count(3));
    let threshold = Duration::from_ms(200);
    RemedyEvent::Measured(SlowShares { threshold, without, with, ratio_low, ratio_high })
}

const GAIN: (f64, Option<f64>) = (0.02, Some(0.3));
const UNPROVEN: (f64, Option<f64>) = (0.1, Some(1.5));
const NO_GAIN: (f64, Option<f64>) = (0.81, Some(1.3));

/// A remedy with its clock and a record of its decisions.
struct Recorded {
    remedy: Remedy,
    now: Instant,
    text: String,
}

impl Recorded {
    fn new() -> Self {
        let now = Instant::ZERO + Duration::from_secs(100);
        let mut recorded = Self { remedy: Remedy::new(), now, text: String::new() };
        // The first look begins the first window.
        recorded.after(Duration::ZERO, estimate(0, 1.0));
        recorded
    }

    fn after(&mut self, wait: Duration, event: RemedyEvent) {
        self.now = self.now + wait;
        self.remedy.handle(self.now, event);
        while let Some(Decided { effect, reason }) = self.remedy.poll_effect() {
            let at = self.now.since(Instant::ZERO);
            writeln!(self.text, "{at}: {}: {} ({reason})", effect.name(), reason.name())
                .expect("a string takes everything");
        }
    }

    fn state(&self) -> RemedyState {
        self.remedy.status().state
    }

    /// Brings the remedy from a dry run to the state on.
    fn prove(&mut self) {
        self.after(LOOK, estimate(5_000, 0.5));
        self.after(LOOK, shares(2_500, GAIN));
        assert_eq!(self.state(), RemedyState::On);
    }
}

#[test]
fn a_gain_is_estimated_tried_proven_and_lost() {
    let mut recorded = Recorded::new();
    recorded.after(LOOK, estimate(5_000, 0.9));
    recorded.after(LOOK, estimate(10_000, 0.6));
    recorded.after(LOOK, shares(2_500, UNPROVEN));
    recorded.after(LOOK, shares(5_000, GAIN));
    recorded.after(LOOK, shares(500, GAIN));
    recorded.after(WINDOW, shares(4_500, UNPROVEN));
    recorded.after(WINDOW, shares(22_500, UNPROVEN));
    let woken = recorded.remedy.poll_timeout().expect("it tries again");
    recorded.after(woken.since(recorded.now), RemedyEvent::Woke);
    expect![[r#"
        110 s: trial: gain_estimated (estimated: quantile 0.999 of 10000 requests 400 ms, with hedges 100 ms; slower than 200 ms: 20, with hedges 2, ratio at most 0.60)
        120 s: on: gain_proven (measured: slower than 200 ms: 3 of 5000 with remedy, 30 of 5000 without, ratio 0.02 to 0.30)
        125 s: on: gain_proven (measured: slower than 200 ms: 3 of 500 with remedy, 30 of 500 without, ratio 0.02 to 0.30)
        170 s: trial: gain_unproven (measured: slower than 200 ms: 3 of 4500 with remedy, 30 of 4500 without, ratio 0.10 to 1.50)
        215 s: off: gain_unproven (measured: slower than 200 ms: 3 of 22500 with remedy, 30 of 22500 without, ratio 0.10 to 1.50)
        275 s: dry_run: tries_again (off for 60 s)
    "#]].assert_eq(&recorded.text);
}

#[test]
fn a_dry_run_without_a_gain_begins_again_after_a_window() {
    let mut recorded = Recorded::new();
    recorded.after(LOOK, estimate(DRY_RUN_REQUESTS_MIN, 1.0));
    recorded.after(WINDOW - LOOK - LOOK, estimate(DRY_RUN_REQUESTS_MIN, 0.81));
    assert_eq!(recorded.remedy.status().decisions, 0, "the window is not over");
    recorded.after(LOOK, estimate(DRY_RUN_REQUESTS_MIN - 1, 0.81));
    assert_eq!(recorded.remedy.status().decisions, 0, "too few requests");
    recorded.after(LOOK, estimate(DRY_RUN_REQUESTS_MIN, 0.81));
    assert_eq!((recorded.state(), recorded.remedy.status().decisions), (RemedyState::DryRun, 1));
    assert!(recorded.text.contains("no_gain_estimated"), "{}", recorded.text);
}

#[test]
fn a_trial_needs_requests_on_both_sides_to_prove_nothing() {
    let mut recorded = Recorded::new();
    recorded.after(LOOK, estimate(5_000, 0.5));
    recorded.after(WINDOW + WINDOW, shares(SIDE_REQUESTS_MIN - 1, UNPROVEN));
    assert_eq!(recorded.state(), RemedyState::Trial);
    recorded.after(LOOK, shares(SIDE_REQUESTS_MIN, UNPROVEN));
    assert_eq!(recorded.state(), RemedyState::Off);
}

#[test]
fn no_gain_switches_off_at_once() {
    for is_on in [false, true] {
        let mut recorded = Recorded::new();
        if is_on {
            recorded.prove();
        } else {
            recorded.after(LOOK, estimate(5_000, 0.5));
        }
        recorded.after(LOOK, shares(500, NO_GAIN));
        assert_eq!(recorded.state(), RemedyState::Off);
        assert!(recorded.text.contains(": no_gain ("), "{}", recorded.text);
    }
}

#[test]
fn the_wait_doubles_with_each_failed_trial_up_to_an_hour_and_a_proof_resets_it() {
    let mut recorded = Recorded::new();
    let fail = |recorded: &mut Recorded| {
        recorded.after(LOOK, estimate(5_000, 0.5));
        recorded.after(LOOK, shares(2_500, NO_GAIN));
        let woken = recorded.remedy.poll_timeout().expect("it is off");
        let wait = woken.since(recorded.now);
        recorded.after(wait - Duration::from_ms(1), RemedyEvent::Woke);
        assert_eq!(recorded.state(), RemedyState::Off, "woken too early");
        recorded.after(Duration::from_ms(1), RemedyEvent::Woke);
        assert_eq!(recorded.state(), RemedyState::DryRun);
        assert_eq!(recorded.remedy.poll_timeout(), None);
        wait
    };
    let waits: Vec<Duration> = (0..8).map(|_| fail(&mut recorded)).collect();
    let minutes = |n: u64| Duration::from_secs(60 * n);
    assert_eq!(waits[..6], [1_u64, 2, 4, 8, 16, 32].map(minutes));
    assert_eq!(waits[6..], [OFF_MAX, OFF_MAX]);
    recorded.prove();
    recorded.after(LOOK, shares(500, NO_GAIN));
    let woken = recorded.remedy.poll_timeout().expect("it is off");
    assert_eq!(woken.since(recorded.now), OFF_MIN);
}

/// Every sequence of events to a depth of six keeps the invariants.
#[test]
fn on_follows_only_a_proof_and_late_evidence_changes_nothing() {
    let events = [
        estimate(DRY_RUN_REQUESTS_MIN, 0.5),
        estimate(DRY_RUN_REQUESTS_MIN, 1.0),
        shares(SIDE_REQUESTS_MIN, GAIN),
        shares(SIDE_REQUESTS_MIN, UNPROVEN),
        shares(SIDE_REQUESTS_MIN, NO_GAIN),
        RemedyEvent::Woke,
    ];
    let depth = 6;
    for nth in 0..events.len().pow(depth) {
        let (mut remedy, mut now, mut rest) = (Remedy::new(), Instant::ZERO, nth);
        for _ in 0..depth {
            let event = events[rest % events.len()];
            rest /= events.len();
            now = now + WINDOW;
            let before = remedy.status();
            remedy.handle(now, event);
            let (after, effect) = (remedy.status(), remedy.poll_effect());
            assert_eq!(effect.is_some(), after.decisions > before.decisions);
            assert_eq!(effect.map_or(before.state, |decided| decided.effect), after.state);
            assert_eq!(remedy.poll_effect(), None);
            assert_eq!(remedy.poll_timeout().is_some(), after.state == RemedyState::Off);
            let is_proof = matches!(event, RemedyEvent::Measured(s) if s.ratio_high == GAIN.1);
            if after.state == RemedyState::On && effect.is_some() {
                assert!(is_proof, "{before:?} {event:?}");
                assert!(matches!(before.state, RemedyState::Trial | RemedyState::On));
            }
            if after.state == RemedyState::Trial && effect.is_some() {
                let is_from = matches!(before.state, RemedyState::DryRun | RemedyState::On);
                assert!(is_from, "{before:?} {event:?}");
            }
        }
    }
}

#[test]
fn half_of_the_requests_are_held_in_a_trial_and_few_when_it_is_on() {
    let few = Ratio::new(0.02).expect("a ratio");
    let share = |state: RemedyState, on| state.holdout_ratio(on).map(Ratio::get);
    assert_eq!(share(RemedyState::Trial, Some(few)), Some(0.5));
    assert_eq!(share(RemedyState::On, Some(few)), Some(0.02));
    assert_eq!(share(RemedyState::On, None), Some(0.1));
    assert_eq!(share(RemedyState::DryRun, Some(few)), None);
    assert_eq!(share(RemedyState::Off, Some(few)), None);
}
