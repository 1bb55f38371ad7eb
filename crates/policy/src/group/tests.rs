use super::{Group, GroupConfig, SAMPLES_MIN};
use crate::{
    AttemptId, BalanceConfig, Call, Effect, Event, HedgeConfig, Outcome, Reason, Request, Upstream,
    UpstreamConfig,
};
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Rng};

const USUAL: Duration = Duration::from_ms(5);

fn config() -> UpstreamConfig {
    let plain = UpstreamConfig::plain(BalanceConfig::Random);
    UpstreamConfig { hedge: Some(HedgeConfig::default()), ..plain }
}

fn shard(seed: u64) -> Upstream {
    Upstream::new(config(), 2, &Rng::new(seed))
}

fn handle(
    shard: &mut Upstream,
    group: Option<&mut Group>,
    (call, now, event): (&mut Call, Instant, Event),
) -> Vec<(Effect, Reason)> {
    shard.in_group(group, |shard| {
        call.handle(shard, now, event);
        let effects = core::iter::from_fn(|| shard.poll_effect());
        effects.map(|decided| (decided.effect, decided.reason)).collect()
    })
}

/// Serves requests at the usual latency, one after the other; returns the time at which the last one ends.
fn usual(shard: &mut Upstream, mut group: Option<&mut Group>, requests: u64) -> Instant {
    let mut now = Instant::ZERO;
    for _ in 0..requests {
        let mut call = Call::new(Request::READ);
        handle(shard, group.as_deref_mut(), (&mut call, now, Event::Arrived));
        now = now + USUAL;
        let attempt = AttemptId(0);
        let responded = Event::Responded { attempt, outcome: Outcome::Good };
        handle(shard, group.as_deref_mut(), (&mut call, now, responded));
        let ended = Event::Ended { attempt, whole: true };
        handle(shard, group.as_deref_mut(), (&mut call, now, ended));
    }
    now
}

#[test]
fn a_shard_without_traffic_uses_the_latencies_and_the_budget_of_its_group() {
    let mut group = Group::new(GroupConfig::from(&config()));
    let (mut busy, mut quiet) = (shard(1), shard(2));
    let now = usual(&mut busy, Some(&mut group), SAMPLES_MIN);
    // The first request of the other shard; no response comes.
    let mut call = Call::new(Request::READ);
    handle(&mut quiet, Some(&mut group), (&mut call, now, Event::Arrived));
    let due = call.poll_timeout().expect("the request is open");
    let delay = due.since(now).as_ms_f64() / USUAL.as_ms_f64();
    assert!((delay - 1.0).abs() < 0.1, "a hedge is due after {delay} × the usual latency");
    let woke = handle(&mut quiet, Some(&mut group), (&mut call, due, Event::Woke));
    assert!(
        matches!(woke[..], [(Effect::Send { .. }, Reason::SlowerThanQuantile { .. })]),
        "{woke:?}"
    );
    for shard in [&mut busy, &mut quiet] {
        let counts = shard.in_group(Some(&mut group), |shard| shard.budget_counts(due));
        assert_eq!(counts, (SAMPLES_MIN + 1, 1), "the shards share one budget");
        assert_eq!(shard.budget_counts(due), (0, 0), "nothing was counted outside the group");
    }
}

#[test]
fn without_a_group_a_shard_has_its_own_latencies_and_budget() {
    let (mut busy, mut quiet) = (shard(1), shard(2));
    let now = usual(&mut busy, None, SAMPLES_MIN);
    let mut call = Call::new(Request::READ);
    handle(&mut quiet, None, (&mut call, now, Event::Arrived));
    let due = call.poll_timeout().expect("the request is open");
    assert_eq!(due.since(now), HedgeConfig::default().delay.max, "the shard has no latencies");
    let woke = handle(&mut quiet, None, (&mut call, due, Event::Woke));
    assert!(
        matches!(woke[..], [(Effect::Skip, Reason::BudgetSpent { requests: 1, .. })]),
        "{woke:?}"
    );
}
