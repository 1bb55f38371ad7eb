use super::AutoRemedy;
use crate::holdout::Holdout;
use curtail_http::clock::Clock;
use curtail_policy::{Reason, RemedyState, RemedyStatus, UpstreamConfig};
use curtail_units::{Duration, Instant, Ratio};

fn status(state: RemedyState, decisions: u64) -> RemedyStatus {
    RemedyStatus { state, decisions, threshold: Duration::from_ms(100) }
}

#[test]
fn the_share_of_the_holdout_follows_the_state_of_the_machine() {
    let clock = Clock::start();
    let few = Ratio::new(0.02).expect("a ratio");
    let auto = AutoRemedy::new(Some(few), clock.now());
    assert_eq!(auto.holdout_ratio(), None, "a dry run has no holdout");
    let shares = [
        (RemedyState::Trial, Some(0.5)),
        (RemedyState::On, Some(0.02)),
        (RemedyState::Trial, Some(0.5)),
        (RemedyState::Off, None),
        (RemedyState::DryRun, None),
    ];
    for (nth, (state, share)) in (1..).zip(shares) {
        auto.follow(clock, status(state, nth), None);
        assert_eq!(auto.holdout_ratio().map(Ratio::get), share, "{state:?}");
        assert_eq!(auto.read(clock.now()).state, state);
    }
}

#[test]
fn the_measurement_of_the_holdout_is_about_one_share() {
    let clock = Clock::start();
    let auto = AutoRemedy::new(None, clock.now());
    let holdout = Holdout::new(Ratio::ONE, &UpstreamConfig::default());
    let half_measured = || {
        let drawn = crate::holdout::tests::drawn(true);
        let ok = crate::metrics::ResponseClass::Status(http::StatusCode::OK);
        for nth in 0..2_000_u64 {
            let now = Instant::ZERO + Duration::from_ms(5 * nth);
            holdout.record(now, drawn, (ok, Duration::from_ms(1)), 1);
        }
        holdout.read(Instant::ZERO + Duration::from_secs(60)).periods[0].requests.without
    };
    auto.follow(clock, status(RemedyState::Trial, 1), Some(&holdout));
    assert_eq!(half_measured(), 2_000);
    // The same share: the measurement goes on. Another one: it begins again.
    auto.follow(clock, status(RemedyState::Trial, 2), Some(&holdout));
    assert_eq!(holdout.read(Instant::ZERO).periods[0].requests.without, 2_000);
    auto.follow(clock, status(RemedyState::On, 3), Some(&holdout));
    assert_eq!(holdout.read(Instant::ZERO).periods[0].requests.without, 0);
}

#[test]
fn the_end_of_a_dry_run_is_known_until_the_next_one() {
    let clock = Clock::start();
    let auto = AutoRemedy::new(None, clock.now());
    let end_age = || auto.read(clock.now()).dry_run_end_age;
    assert_eq!(end_age(), None);
    auto.follow(clock, status(RemedyState::Trial, 1), None);
    let of_trial = end_age().expect("it has ended");
    auto.follow(clock, status(RemedyState::On, 2), None);
    assert!(end_age().expect("it has ended") >= of_trial, "a later decision is not its end");
    auto.follow(clock, status(RemedyState::DryRun, 3), None);
    assert_eq!(end_age(), None);
}

#[test]
fn the_state_page_has_the_state_and_the_reason_for_it() {
    let clock = Clock::start();
    let auto = AutoRemedy::new(None, clock.now());
    assert_eq!(auto.read(clock.now()).to_json()["reason"], serde_json::Value::Null);
    let waited = Duration::from_secs(60);
    auto.decided("api", RemedyState::DryRun, Reason::TriesAgain { waited });
    auto.follow(clock, status(RemedyState::DryRun, 1), None);
    let json = auto.read(clock.now()).to_json();
    assert_eq!((&json["state"], &json["reason"]), (&"dry_run".into(), &"tries_again".into()));
    assert_eq!((&json["reason_detail"], &json["slow_ms"]), (&"off for 60 s".into(), &100.0.into()));
    assert_eq!(json["holdout_ratio"], serde_json::Value::Null);
}
