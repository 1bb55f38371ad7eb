use super::{BLOCK, Switchback, WASHOUT, is_off};
use crate::holdout::{EffectVerdict, PeriodEffects};
use curtail_units::{Duration, Ratio};

const START_NS: u64 = 1_795_000_000_000_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;

fn ratio(ratio: f64) -> Ratio {
    Ratio::new(ratio).expect("a ratio")
}

fn blocks(count: u64) -> impl Iterator<Item = u64> {
    let first = START_NS / BLOCK.as_ns();
    (first..first + count).map(|number| number * BLOCK.as_ns())
}

fn p50(effects: &PeriodEffects) -> Option<(f64, f64, EffectVerdict)> {
    let p50 = effects.percentiles.iter().find(|of| of.name == "p50")?;
    let ms = |latency: Option<Duration>| latency.expect("no failures").as_ms_f64().round();
    Some((ms(p50.latency.without), ms(p50.latency.with), p50.verdict()))
}

#[test]
fn the_share_of_blocks_is_off_and_larger_shares_include_smaller_ones() {
    let count = |share| blocks(10_000).filter(|at| is_off(ratio(share), *at)).count();
    // Four standard deviations of a binomial count.
    assert!((880..=1_120).contains(&count(0.1)), "{}", count(0.1));
    assert!((4_800..=5_200).contains(&count(0.5)), "{}", count(0.5));
    assert!(blocks(10_000).all(|at| !is_off(ratio(0.1), at) || is_off(ratio(0.5), at)));
    let end = BLOCK.as_ns() - 1;
    assert!(blocks(1_000).all(|at| is_off(ratio(0.5), at) == is_off(ratio(0.5), at + end)));
}

/// Records requests for this time, ten a second: those that arrive in a block without the remedy take 1 to
/// `off_ms`, and the others 1 to `on_ms`.
fn record(switchback: &mut Switchback, from_ns: u64, length_ns: u64, off_ms: u64, on_ms: u64) {
    for nth in 0..length_ns / 100_000_000 {
        let arrived_ns = from_ns + nth * 100_000_000;
        let ms = if is_off(switchback.share(), arrived_ns) { off_ms } else { on_ms };
        let latency = Duration::from_ms(1 + nth % ms);
        switchback.record((arrived_ns, arrived_ns + latency.as_ns()), latency, 1);
    }
}

#[test]
fn it_states_the_effect_of_a_day_and_then_begins_again() {
    let mut switchback = Switchback::new(ratio(0.5), START_NS);
    record(&mut switchback, START_NS, HOUR_NS / 2, 101, 53);
    assert_eq!(p50(&switchback.effects()), None, "too few blocks");
    record(&mut switchback, START_NS + HOUR_NS / 2, 2 * HOUR_NS, 101, 53);
    let effects = switchback.effects();
    assert_eq!(p50(&effects), Some((51.0, 27.0, EffectVerdict::Better)));
    assert_eq!((effects.period, effects.is_complete), ("day", false));
    let requests = effects.requests.without + effects.requests.with;
    let all = 2.5 * 36_000.0;
    let measured = 1.0 - WASHOUT.as_secs_f64() / BLOCK.as_secs_f64();
    // Blocks at the ends are not counted, or not yet.
    assert!((requests as f64 - measured * all).abs() < 1_000.0, "{requests}");

    // Nothing for two days: the day is over, and its figures stay until there are new ones.
    switchback.advance(START_NS + 50 * HOUR_NS);
    assert!(switchback.effects().is_complete);
    record(&mut switchback, START_NS + 50 * HOUR_NS, 3 * HOUR_NS, 101, 151);
    let effects = switchback.effects();
    assert_eq!(p50(&effects), Some((51.0, 77.0, EffectVerdict::Worse)));
    assert!(!effects.is_complete);
}

#[test]
fn a_request_counts_in_the_block_in_which_it_arrived() {
    let block = BLOCK.as_ns();
    let start = START_NS / block * block + block;
    let late = |ended_ns: u64| {
        let mut switchback = Switchback::new(ratio(0.5), start - 1);
        let arrived_ns = start + block - 1;
        switchback.record((arrived_ns, ended_ns), Duration::from_ns(ended_ns - arrived_ns), 1);
        switchback.advance(start + 4 * block);
        let requests = switchback.effects().requests;
        if is_off(ratio(0.5), start) { requests.without } else { requests.with }
    };
    assert_eq!(late(start + 2 * block - 1), 1, "it ends within the next block");
    assert_eq!(late(start + 2 * block), 0, "it ends later");
}

#[test]
fn the_begin_of_a_block_and_the_first_block_are_not_measured() {
    let mut switchback = Switchback::new(ratio(0.5), START_NS);
    let next = (START_NS / BLOCK.as_ns() + 1) * BLOCK.as_ns();
    let washout = next + WASHOUT.as_ns();
    for (arrived_ns, counted) in [(START_NS, 0), (next, 0), (washout - 1, 0), (washout, 1)] {
        switchback.record((arrived_ns, arrived_ns), Duration::from_ms(1), 1);
        let mut later = switchback.clone();
        later.advance(next + 3 * BLOCK.as_ns());
        let requests = later.effects().requests;
        assert_eq!(requests.without + requests.with, counted, "{arrived_ns}");
    }
}
