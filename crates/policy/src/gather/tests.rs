use super::{
    CALLS_MAX, CallId, Gather, GatherConfig, GatherEffect, GatherEvent, GatherOutcome,
    GatherReason, RestMode,
};
use alloc::borrow::ToOwned as _;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Rng};
use expect_test::{Expect, expect};

const fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

const fn ended(call: u32, success: bool) -> GatherEvent {
    GatherEvent::CallEnded { call: CallId(call), success }
}

/// What a gather decides on each event, one line an event.
fn check(config: GatherConfig, events: &[(u64, GatherEvent)], expected: &Expect) {
    let mut gather = Gather::new(config);
    let mut text = String::new();
    for (ms, event) in events {
        gather.handle(at(*ms), *event);
        let effects = core::iter::from_fn(|| gather.poll_effect()).map(|decided| {
            let effect = match decided.effect {
                GatherEffect::StartCall { call } => format!("start {}", call.0),
                GatherEffect::AbandonCall { call } => format!("abandon {}", call.0),
                GatherEffect::Done { outcome } => format!("{outcome:?}"),
            };
            format!("{effect} ({})", decided.reason)
        });
        let effects: Vec<_> = effects.collect();
        let effects = if effects.is_empty() { "-".to_owned() } else { effects.join(", ") };
        text.push_str(&format!("{ms} ms: {effects}\n"));
    }
    expected.assert_eq(&text);
}

#[test]
fn a_fan_out_is_done_when_all_have_succeeded() {
    let events =
        [(0, GatherEvent::Arrived), (3, ended(1, true)), (4, ended(0, true)), (9, ended(2, true))];
    check(
        GatherConfig::all_of(3),
        &events,
        &expect![[r#"
            0 ms: start 0 (first wave), start 1 (first wave), start 2 (first wave)
            3 ms: -
            4 ms: -
            9 ms: Complete (3 calls succeeded, 3 needed)
        "#]],
    );
}

#[test]
fn the_first_failure_of_a_fan_out_abandons_the_rest() {
    let events = [(0, GatherEvent::Arrived), (3, ended(1, false)), (4, ended(0, true))];
    check(
        GatherConfig::all_of(3),
        &events,
        &expect![[r#"
            0 ms: start 0 (first wave), start 1 (first wave), start 2 (first wave)
            3 ms: Failed (1 of 3 calls failed, 3 needed), abandon 0 (1 of 3 calls failed, 3 needed), abandon 2 (1 of 3 calls failed, 3 needed)
            4 ms: -
        "#]],
    );
}

#[test]
fn a_quorum_may_finish_after_it_is_done_and_after_the_client_has_left() {
    let config = GatherConfig { needed: 2, rest: RestMode::Finish, ..GatherConfig::all_of(3) };
    let events = [
        (0, GatherEvent::Arrived),
        (1, ended(2, true)),
        (2, ended(0, true)),
        (3, GatherEvent::Abandoned),
        (4, ended(1, false)),
    ];
    check(
        config,
        &events,
        &expect![[r#"
            0 ms: start 0 (first wave), start 1 (first wave), start 2 (first wave)
            1 ms: -
            2 ms: Complete (2 calls succeeded, 2 needed)
            3 ms: -
            4 ms: -
        "#]],
    );
}

#[test]
fn a_good_enough_response_at_the_deadline_is_partial() {
    let deadline = Some(Duration::from_ms(50));
    let config = GatherConfig { needed: 3, deadline, ..GatherConfig::all_of(4) };
    let events = [
        (0, GatherEvent::Arrived),
        (9, ended(2, true)),
        (10, ended(0, false)),
        (50, GatherEvent::Woke),
    ];
    check(
        config,
        &events,
        &expect![[r#"
            0 ms: start 0 (first wave), start 1 (first wave), start 2 (first wave), start 3 (first wave)
            9 ms: -
            10 ms: -
            50 ms: Partial (1 calls succeeded within 50 ms (deadline 50 ms), 3 needed), abandon 1 (1 calls succeeded within 50 ms (deadline 50 ms), 3 needed), abandon 3 (1 calls succeeded within 50 ms (deadline 50 ms), 3 needed)
        "#]],
    );
}

#[test]
fn canaries_hold_back_the_others_until_they_have_succeeded() {
    let config = GatherConfig { canaries: 2, ..GatherConfig::all_of(4) };
    let events = [(0, GatherEvent::Arrived), (1, ended(1, true)), (2, ended(0, true))];
    check(
        config,
        &events,
        &expect![[r#"
            0 ms: start 0 (first wave), start 1 (first wave)
            1 ms: -
            2 ms: start 2 (all 2 canaries succeeded), start 3 (all 2 canaries succeeded)
        "#]],
    );
    let events = [(0, GatherEvent::Arrived), (1, ended(1, false))];
    check(
        GatherConfig { needed: 1, ..config },
        &events,
        &expect![[r#"
        0 ms: start 0 (first wave), start 1 (first wave)
        1 ms: Failed (one of 2 canaries failed), abandon 0 (one of 2 canaries failed)
    "#]],
    );
}

#[test]
fn numbers_that_make_no_sense_are_corrected() {
    let nothing = [(0, GatherEvent::Arrived)];
    check(
        GatherConfig::all_of(0),
        &nothing,
        &expect![[r#"
        0 ms: Complete (0 calls succeeded, 0 needed)
    "#]],
    );
    let config = GatherConfig { needed: 9, ..GatherConfig::all_of(1) };
    check(
        config,
        &[(0, GatherEvent::Arrived), (1, ended(0, true))],
        &expect![[r#"
        0 ms: start 0 (first wave)
        1 ms: Complete (1 calls succeeded, 1 needed)
    "#]],
    );
    let mut most = Gather::new(GatherConfig::all_of(u32::MAX));
    most.handle(at(0), GatherEvent::Arrived);
    assert_eq!(core::iter::from_fn(|| most.poll_effect()).count(), CALLS_MAX as usize);
}

#[test]
fn two_thousand_shards_that_end_in_any_order() {
    const CALLS: u32 = 2_000;
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let needed = 1 + u32::try_from(rng.below(CALLS as usize)).expect("below 2,000");
        let mut gather = Gather::new(GatherConfig { needed, ..GatherConfig::all_of(CALLS) });
        gather.handle(at(0), GatherEvent::Arrived);
        let started = core::iter::from_fn(|| gather.poll_effect());
        let first = |decided: crate::Decided<_, _>| decided.reason == GatherReason::FirstWave;
        assert_eq!(started.filter(|decided| first(*decided)).count(), CALLS as usize);
        let mut open: BTreeSet<CallId> = (0..CALLS).map(CallId).collect();
        let (mut succeeded, mut failed) = (0, 0);
        loop {
            let nth = rng.below(open.len());
            let call = *open.iter().nth(nth).expect("it is below the number of them");
            open.remove(&call);
            let success = rng.chance(0.9);
            (succeeded, failed) = (succeeded + u32::from(success), failed + u32::from(!success));
            gather.handle(at(1), GatherEvent::CallEnded { call, success });
            let done = gather.poll_effect().map(|decided| decided.effect);
            let outcome = if succeeded == needed {
                GatherOutcome::Complete
            } else if failed > CALLS - needed {
                GatherOutcome::Failed
            } else {
                assert_eq!(done, None, "seed {seed}");
                continue;
            };
            assert_eq!(done, Some(GatherEffect::Done { outcome }), "seed {seed}");
            break;
        }
        let abandoned = core::iter::from_fn(|| gather.poll_effect()).map(|decided| decided.effect);
        let expected = open.into_iter().map(|call| GatherEffect::AbandonCall { call });
        assert!(abandoned.eq(expected), "seed {seed}");
        assert!(gather.is_over(), "seed {seed}");
    }
}
