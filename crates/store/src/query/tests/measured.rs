//! What is measured is what can be computed from all that was sent.

use super::*;
use crate::query::gathered::Gathered;
use crate::query::measure::EXACT_MAX;

const QUANTILES: [Quantile; 3] = [Quantile::P50, Quantile::P99, Quantile::P999];

fn duration() -> Of {
    Of::Column(DURATION)
}

fn at_rank<T: Copy>(sorted: &[T], quantile: Quantile) -> T {
    sorted[usize::try_from(rank(quantile, sorted.len() as u64)).expect("small") - 1]
}

#[test]
fn quantiles_are_durations_of_that_rank() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=20_000).map(|span_id| sent(&mut rng, span_id)).collect();
    run(async {
        let tree = filled(&all).await;
        for (filter, same) in filters() {
            let of = MeasureOf {
                filter,
                what: What::Quantiles(duration(), QUANTILES.to_vec()),
                by: vec![Of::Column(SERVICE), Of::Attribute("shop.price".to_owned())],
                step_ns: Some(MINUTE_NS),
            };
            let answer = tree.measure(&of).await.expect("few groups");
            let minute = i64::try_from(MINUTE_NS).expect("small");
            let mut want = BTreeMap::<_, Vec<i64>>::new();
            for sent in all.iter().filter(|sent| sent.tenant == "shop" && same(sent)) {
                let price = sent.price.map(|price| price.to_string());
                let values = vec![Some(sent.service.to_owned()), price];
                let step = sent.start_ns / minute * minute;
                want.entry((step, values)).or_default().push(sent.duration_ns.max(0));
            }
            assert_eq!(answer.groups.len(), want.len());
            for (group, ((start_ns, values), mut durations)) in answer.groups.iter().zip(want) {
                durations.sort_unstable();
                let numbers = QUANTILES.map(|quantile| at_rank(&durations, quantile) as f64);
                let numbers = Numbers::Quantiles(numbers.to_vec());
                let count = durations.len() as u64;
                assert_eq!(group, &Group { start_ns, values, count, numbers });
            }
            assert!(answer.error.abs() < f64::EPSILON);
        }
    });
}

#[test]
fn numbers_of_attributes_are_measured() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=9_000).map(|span_id| sent(&mut rng, span_id)).collect();
    let mut prices: Vec<_> =
        all.iter().filter(|sent| sent.tenant == "shop").filter_map(|sent| sent.price).collect();
    prices.sort_by(f64::total_cmp);
    let (count, sum) = (prices.len() as u64, prices.iter().sum());
    let price = || Of::Attribute("shop.price".to_owned());
    let buckets = [(0.0, -3.0), (2.0, 1.5), (16.0, 10.0)]
        .map(|(bucket, of)| (bucket, prices.iter().filter(|price| **price == of).count() as u64));
    let quantiles = QUANTILES.map(|quantile| at_rank(&prices, quantile)).to_vec();
    run(async {
        let tree = filled(&all).await;
        for (what, numbers) in [
            (What::Quantiles(price(), QUANTILES.to_vec()), Numbers::Quantiles(quantiles)),
            (What::Extremes(price()), Numbers::Extremes { min: -3.0, max: 10.0, sum }),
            (What::Buckets(price()), Numbers::Buckets(buckets.to_vec())),
        ] {
            let filter = Filter::of("shop");
            let of = MeasureOf { filter, what, by: Vec::new(), step_ns: None };
            let answer = tree.measure(&of).await.expect("one group");
            assert_eq!(answer.groups, [Group { start_ns: 0, values: Vec::new(), count, numbers }]);
        }
    });
}

#[test]
fn what_cannot_be_measured_is_refused() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=150_000)
        .map(|span_id| Sent {
            start_ns: i64::try_from(span_id).expect("small"),
            ..sent(&mut rng, span_id)
        })
        .collect();
    run(async {
        let tree = filled(&all).await;
        let filter = Filter::of("shop");
        let what = What::Count;
        let of = MeasureOf { filter, what, by: Vec::new(), step_ns: Some(1) };
        assert_eq!(tree.measure(&of).await.err(), Some(NotMeasured::Groups));
        let by = vec![Of::Column(SERVICE); 5];
        let many = MeasureOf { by, ..of.clone() };
        assert_eq!(tree.measure(&many).await.err(), Some(NotMeasured::By));
        let by_start = MeasureOf { by: vec![duration()], ..of.clone() };
        assert_eq!(tree.measure(&by_start).await.err(), Some(NotMeasured::Of));
        let of_ids = MeasureOf { what: What::Extremes(Of::Column(SPAN_ID)), ..of.clone() };
        assert_eq!(tree.measure(&of_ids).await.err(), Some(NotMeasured::Of));
        let of = MeasureOf { step_ns: None, ..of };
        let answer = tree.measure(&of).await.expect("one group");
        let there = all.iter().filter(|sent| sent.tenant == "shop").count();
        assert_eq!(answer.groups[0].count, there as u64);
    });
}

#[test]
fn very_many_are_counted_with_a_known_error() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let what = What::Quantiles(duration(), QUANTILES.to_vec());
    let mut gathered = Gathered::new(&what);
    let mut all = [Vec::new(), Vec::new()];
    let groups = [0, 1].map(|group| gathered.group((group, Vec::new())));
    for _ in 0..EXACT_MAX + 1_000 {
        let which = rng.below(2);
        let duration_ns = i64::try_from(rng.next_u64() % 100_000_000).expect("small");
        gathered.push(groups[which], duration_ns, 1).expect("durations are counted");
        all[which].push(duration_ns);
    }
    let (groups, error) = gathered.answer();
    assert!((error - Precision::FINE.error()).abs() < f64::EPSILON && error <= 0.005);
    for (group, mut all) in groups.iter().zip(all) {
        assert_eq!(group.count, all.len() as u64);
        let Numbers::Quantiles(got) = &group.numbers else { panic!("{group:?}") };
        for (got, quantile) in got.iter().zip(QUANTILES) {
            let nth = usize::try_from(rank(quantile, all.len() as u64)).expect("small") - 1;
            let want = *all.select_nth_unstable(nth).1 as f64;
            assert!((got - want).abs() <= error * want, "{got} {want}");
        }
    }
}

#[test]
fn very_many_numbers_that_are_no_durations_are_refused() {
    let what = What::Quantiles(Of::Attribute("shop.price".to_owned()), QUANTILES.to_vec());
    let mut gathered = Gathered::new(&what);
    let group = gathered.group((0, Vec::new()));
    for _ in 0..EXACT_MAX {
        gathered.push(group, 1, 1).expect("there is room");
    }
    assert_eq!(gathered.push(group, 1, 1), Err(NotMeasured::Numbers));
}

#[test]
fn very_long_ones_among_very_many_have_an_error_of_their_own() {
    let what = What::Quantiles(duration(), QUANTILES.to_vec());
    let (usual, end) = (Precision::FINE.error(), Precision::END.as_ns_f64());
    for (long_ns, share, is_wide) in
        [(8_000_000_000_000, 1_500, false), (8_000_000_000_000, 500, true)]
    {
        let mut gathered = Gathered::new(&what);
        let group = gathered.group((0, Vec::new()));
        for nth in 0..=EXACT_MAX {
            let ns = if nth % share == 0 { long_ns } else { 1_000_000 };
            gathered.push(group, ns, 1).expect("durations are counted");
        }
        let (groups, error) = gathered.answer();
        let Numbers::Quantiles(found) = &groups[0].numbers else { panic!("{groups:?}") };
        if is_wide {
            // The last of them is above an hour, and nobody knows by how much.
            assert!(found[2] > end * 0.99 && error > usual, "{found:?} {error}");
            assert!(
                (found[2] - long_ns as f64).abs() <= error * long_ns as f64,
                "{found:?} {error}"
            );
        } else {
            assert!(found[2] < 1_100_000.0 && (error - usual).abs() < f64::EPSILON, "{error}");
        }
    }
}
