use super::{
    Difference, Goal, Number, Numbers, Percentile, Rule, Test, Verdict, error_of_mean, numbers,
    percentiles, student,
};
use crate::calibrate::planted;
use crate::stalls::Stalls;
use crate::{Failure, Latencies, LatencyKind};
use curtail_units::{Duration, Quantile, Rng};

const SEED: u64 = 20;

fn compared(a: &[Latencies], b: &[Latencies]) -> Vec<Percentile> {
    percentiles(a, b, LatencyKind::Response, &Rule::default())
}

fn at<'a>(percentiles: &'a [Percentile], name: &str) -> &'a Percentile {
    percentiles.iter().find(|percentile| percentile.name == name).expect("one of the list")
}

/// `count` blocks of `requests` latencies each, exponentially distributed around 5 ms times `factor`.
fn independent(rng: &mut Rng, count: usize, requests: usize, factor: f64) -> Vec<Latencies> {
    let block = |_| {
        let mut block = Latencies::new();
        for _ in 0..requests {
            block.response.record(Duration::from_ms(5).mul_f64(rng.exponential() * factor));
        }
        block
    };
    (0..count).map(block).collect()
}

#[test]
fn equal_arms_are_equivalent() {
    let blocks = Stalls::new().blocks(&mut Rng::new(SEED), 20);
    let found = compared(&blocks, &blocks);
    assert_eq!(found.len(), 6);
    for percentile in found.iter().filter(|percentile| percentile.exceedances >= 100) {
        let difference = percentile.difference.expect("there is enough");
        assert_eq!((difference.ratio, difference.interval), (1.0, (1.0, 1.0)), "{percentile:?}");
        assert_eq!(difference.p_value, 1.0);
        assert_eq!(percentile.verdict, Verdict::Equivalent);
    }
}

#[test]
fn the_order_of_the_arms_does_not_matter() {
    let (model, mut rng) = (Stalls::new(), Rng::new(SEED));
    let (a, b) = (model.blocks(&mut rng, 20), model.blocks(&mut rng, 20));
    for (forth, back) in compared(&a, &b).iter().zip(&compared(&b, &a)) {
        let (Some(forth), Some(back)) = (forth.difference, back.difference) else {
            panic!("there is enough for an interval: {forth:?}");
        };
        assert!((forth.ratio * back.ratio - 1.0).abs() < 1e-9);
        assert!((forth.interval.0 * back.interval.1 - 1.0).abs() < 1e-9);
        assert!((forth.p_value / back.p_value - 1.0).abs() < 1e-6);
    }
}

#[test]
fn an_interval_leaves_out_one_exactly_when_the_test_finds_a_difference() {
    let mut rng = Rng::new(SEED);
    let (mut out, mut within) = (0, 0);
    for nth in 0..150_u32 {
        let factor = 1.0 + 0.002 * f64::from(nth % 50);
        let a = independent(&mut rng, 12, 1_000, 1.0);
        let b = independent(&mut rng, 12, 1_000, factor);
        for percentile in compared(&a, &b).iter().filter(|percentile| percentile.exceedances >= 100)
        {
            let Difference { interval: (low, high), p_value, confidence, .. } =
                percentile.difference.expect("there is enough");
            let is_found = p_value <= 1.0 - confidence;
            assert_eq!(is_found, low > 1.0 || high < 1.0, "{percentile:?}");
            assert_eq!(is_found, percentile.verdict.is_difference(), "{percentile:?}");
            *(if is_found { &mut out } else { &mut within }) += 1;
        }
    }
    assert!(out > 50 && within > 50, "{out} and {within}");
}

#[test]
fn intervals_hold_the_true_ratio_as_often_as_they_say() {
    let (model, mut rng) = (Stalls::new(), Rng::new(SEED));
    let (mut missed, mut all) = (0, 0);
    // Only p99 is compared at half the level, 2.5 %: the others are at 1 % and less.
    for _ in 0..300 {
        let (a, b) = (model.blocks(&mut rng, 12), model.blocks(&mut rng, 12));
        let found = compared(&a, &b);
        let difference = at(&found, "p99").difference.expect("there is enough");
        let (low, high) = difference.interval;
        missed += u32::from(low > 1.0 || high < 1.0);
        all += 1;
    }
    // 7.5 are expected, with a standard deviation of 2.7.
    assert!(missed <= 18, "{missed} of {all}");
}

/// The reason for the method, measured: see the module's head.
#[test]
fn shares_find_more_than_percentiles_of_blocks() {
    let (model, mut rng) = (Stalls::new(), Rng::new(SEED));
    let p99_log = |block: &Latencies| {
        let p99 = block.quantile(LatencyKind::Response, Quantile::P99).expect("no failures");
        libm::log(p99.as_ns_f64())
    };
    let by_blocks = |a: &[Latencies], b: &[Latencies]| {
        let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| p99_log(b) - p99_log(a)).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        student::two_sided(mean / error_of_mean(&logs), logs.len() as f64 - 1.0)
    };
    let by_shares = |a: &[Latencies], b: &[Latencies]| {
        at(&compared(a, b), "p99").difference.expect("there is enough").p_value
    };
    let (mut found, mut alarms) = ([0, 0], [0, 0]);
    for _ in 0..100 {
        let (a, b) = (model.blocks(&mut rng, 40), model.blocks(&mut rng, 40));
        let shifted: Vec<Latencies> =
            b.iter().map(|block| planted(block, LatencyKind::Response, 1.1)).collect();
        for (nth, p_value) in [by_blocks(&a, &shifted), by_shares(&a, &shifted)].iter().enumerate()
        {
            found[nth] += u32::from(*p_value <= 0.05);
        }
        for (nth, p_value) in [by_blocks(&a, &b), by_shares(&a, &b)].iter().enumerate() {
            alarms[nth] += u32::from(*p_value <= 0.05);
        }
    }
    // 5 are expected, with a standard deviation of 2.2.
    assert!(alarms.iter().all(|alarms| *alarms <= 11), "{alarms:?}");
    assert_eq!(found, [57, 74], "by percentiles of blocks, and by shares");
}

#[test]
fn what_is_too_little_says_how_much_is_missing() {
    let mut rng = Rng::new(SEED);
    let a = independent(&mut rng, 20, 500, 1.0);
    let b = independent(&mut rng, 20, 500, 1.0);
    let found = compared(&a, &b);
    assert!(!matches!(at(&found, "p99").verdict, Verdict::NotEnough { .. }));
    assert_eq!(at(&found, "p99").exceedances, 100);
    let indicative = at(&found, "p99.9");
    assert_eq!(indicative.exceedances, 10);
    assert!(indicative.difference.is_some_and(|difference| difference.confidence == 0.95));
    assert_eq!(indicative.verdict, Verdict::NotEnough { blocks: 180 });
    let nothing = at(&found, "p99.99");
    assert_eq!((nothing.exceedances, nothing.difference), (1, None));
    assert_eq!(nothing.verdict, Verdict::NotEnough { blocks: 1_980 });
    assert_eq!(nothing.verdict.to_string(), "not enough: over 1,000 more blocks");
    assert_eq!(
        Verdict::Undecided { blocks: 74_941 }.to_string(),
        "undecided: over 1,000 more blocks"
    );
    assert_eq!(
        Verdict::Undecided { blocks: 1_000 }.to_string(),
        "undecided: about 1000 more blocks"
    );

    let none = compared(&[], &[]);
    assert_eq!(none[0].verdict, Verdict::NotEnough { blocks: 10 });
    assert_eq!((none[0].a, none[0].difference), (None, None));
}

#[test]
fn slow_requests_of_few_blocks_are_no_evidence() {
    let block = |slow| {
        let mut block = Latencies::new();
        block.response.record_n(Duration::from_ms(1), 1_000 - slow);
        block.response.record_n(Duration::from_ms(9), slow);
        block
    };
    let mut a = vec![block(0); 20];
    a[..5].fill(block(200));
    let found = compared(&a, &a);
    let p99 = at(&found, "p99");
    assert_eq!((p99.exceedances, p99.blocks), (200, 5));
    assert_eq!(p99.verdict, Verdict::NotEnough { blocks: 20 });
}

#[test]
fn failures_are_longer_than_every_response() {
    let (model, mut rng) = (Stalls::new(), Rng::new(SEED));
    let (mut a, mut b) = (model.blocks(&mut rng, 20), model.blocks(&mut rng, 20));
    for block in &mut b {
        block.failures.add_n(Failure::Timeout, 300 + rng.below(20) as u64);
    }
    let found = compared(&a, &b);
    let p99 = at(&found, "p99");
    assert!(p99.a.is_some() && p99.b.is_none());
    let difference = p99.difference.expect("there is enough");
    assert_eq!((difference.ratio, difference.interval.1), (f64::INFINITY, f64::INFINITY));
    assert_eq!(p99.verdict, Verdict::Worse);
    let turned = compared(&b, &a);
    assert_eq!(at(&turned, "p99").verdict, Verdict::Better);
    assert_eq!(at(&turned, "p99").difference.map(|d| (d.ratio, d.interval.0)), Some((0.0, 0.0)));
    for block in &mut a {
        block.failures.add_n(Failure::Closed, 300);
    }
    assert_eq!(at(&compared(&a, &b), "p99").verdict, Verdict::Failed);
    assert_ne!(at(&compared(&a, &b), "p90").verdict, Verdict::Failed);
}

#[test]
fn a_block_without_a_partner_is_left_out() {
    let blocks = Stalls::new().blocks(&mut Rng::new(SEED), 5);
    let (a, b) = blocks.split_at(3);
    assert_eq!(compared(a, b), compared(&a[..2], b));
}

/// The advice is the arithmetic of standard errors: four times the pairs for half the error.
#[test]
fn undecided_says_about_how_many_more_blocks_would_do() {
    let test = Test { difference: 1.0, error: 1.0, pairs: 61 };
    let wanted = student::critical(0.05, 60.0) + super::POWER_DEVIATION;
    let difference = Difference {
        ratio: 2.0,
        interval: (0.9, 4.0),
        confidence: 0.95,
        p_value: test.p_value(),
        design_effect: 1.0,
    };
    let times = wanted * wanted;
    let expected = Verdict::Undecided { blocks: super::whole(61.0 * (times - 1.0)) };
    assert_eq!(test.verdict(&difference, 0.05, 0.05), expected);
    // Nearly the same on both sides: it is sooner shown to be equivalent than to differ.
    let close = Test { difference: 1e-6, ..test };
    let (low, high) = (1.0 / 1.07, 1.07);
    let difference = Difference { ratio: 1.0, interval: (low, high), p_value: 1.0, ..difference };
    let Verdict::Undecided { blocks } = close.verdict(&difference, 0.05, 0.05) else {
        panic!("it is wider than the margin");
    };
    let error = 1.07_f64.ln() / student::critical(0.05, 60.0);
    let expected = 61.0 * ((wanted * error / 1.05_f64.ln()).powi(2) - 1.0);
    assert!((blocks as f64 - expected).abs() <= 1.0, "{blocks} and {expected}");
}

fn one(a: &[f64], b: &[f64], goal: Goal) -> Number {
    numbers(&[Numbers { a, b, goal }], &Rule::default())[0]
}

/// Values with this mean, and pairs that move together.
fn pairs(rng: &mut Rng, count: usize, means: (f64, f64)) -> (Vec<f64>, Vec<f64>) {
    let pair = |_| {
        let shared = 0.1 * rng.normal();
        (
            means.0 * (1.0 + shared + 0.02 * rng.normal()),
            means.1 * (1.0 + shared + 0.02 * rng.normal()),
        )
    };
    (0..count).map(pair).unzip()
}

#[test]
fn a_ratio_at_either_end_of_the_interval_is_just_not_found() {
    let mut rng = Rng::new(SEED);
    for means in [(100.0, 101.0), (5.0, 9.0), (1.0, 0.2)] {
        let (a, b) = pairs(&mut rng, 15, means);
        let difference = one(&a, &b, Goal::Less).difference.expect("enough pairs");
        for ratio in [difference.interval.0, difference.interval.1] {
            let left: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - ratio * a).collect();
            let mean = left.iter().sum::<f64>() / 15.0;
            let p_value = student::two_sided(mean / error_of_mean(&left), 14.0);
            assert!((p_value - 0.05).abs() < 1e-9, "{means:?}: {p_value}");
        }
    }
}

#[test]
fn more_is_better_where_it_is_meant_to_be() {
    let (a, b) = pairs(&mut Rng::new(SEED), 20, (1_000.0, 1_060.0));
    assert_eq!(one(&a, &b, Goal::More).verdict, Verdict::Better);
    assert_eq!(one(&a, &b, Goal::Less).verdict, Verdict::Worse);
    assert_eq!(one(&b, &a, Goal::More).verdict, Verdict::Worse);
    // Far less than the noise of a block, which the pair shares: pairing sees it within the margin.
    let (a, b) = pairs(&mut Rng::new(SEED), 20, (1_000.0, 1_000.0));
    assert_eq!(one(&a, &b, Goal::More).verdict, Verdict::Equivalent);
}

#[test]
fn errors_may_be_none_at_all() {
    let none = [0.0; 12];
    let few = [0.0, 0.01, 0.0, 0.0, 0.02, 0.0, 0.0, 0.0, 0.01, 0.0, 0.0, 0.0];
    let many = [0.1, 0.12, 0.09, 0.11, 0.1, 0.13, 0.1, 0.09, 0.1, 0.12, 0.11, 0.1];
    let same = one(&none, &none, Goal::Less);
    assert_eq!(same.verdict, Verdict::Equivalent);
    assert_eq!(same.difference.map(|d| (d.ratio, d.interval)), Some((1.0, (1.0, 1.0))));
    let appeared = one(&none, &many, Goal::Less);
    assert_eq!(appeared.verdict, Verdict::Worse);
    assert_eq!(appeared.difference.map(|d| d.interval.0), Some(f64::INFINITY));
    assert_eq!(one(&many, &none, Goal::Less).verdict, Verdict::Better);
    let unclear = one(&none, &few, Goal::Less);
    assert!(matches!(unclear.verdict, Verdict::Undecided { .. }), "{unclear:?}");
    assert_eq!(unclear.difference.map(|d| d.interval), Some((0.0, f64::INFINITY)));
    // A's mean cannot be distinguished from 0, B's can: the ratio has a lower end and no upper one.
    let grown = one(&few, &many, Goal::Less);
    assert_eq!(grown.verdict, Verdict::Worse);
    let (low, high) = grown.difference.expect("enough pairs").interval;
    assert!(low > 1.0 && high == f64::INFINITY, "{low} to {high}");
}

#[test]
fn numbers_compared_together_share_the_level() {
    let (a, b) = pairs(&mut Rng::new(SEED), 20, (1_000.0, 1_000.0));
    let inputs = [Numbers { a: &a, b: &b, goal: Goal::Less }; 4];
    let found = numbers(&inputs, &Rule::default());
    for number in found {
        assert_eq!(number.difference.map(|d| d.confidence), Some(1.0 - 0.05 / 4.0));
    }
}

#[test]
fn too_few_blocks_give_no_verdict() {
    let few = one(&[1.0; 4], &[2.0; 4], Goal::Less);
    assert_eq!(few.verdict, Verdict::NotEnough { blocks: 6 });
    assert_eq!(few.verdict.to_string(), "not enough: 6 more blocks");
}
