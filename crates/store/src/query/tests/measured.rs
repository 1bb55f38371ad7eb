//! What is measured is what can be computed from all that was sent.

use super::*;
use crate::query::measure::{AggregateError, EXACT_MAX};
use crate::query::partial::{GroupKey, Partial};
use crate::schema::envelope::ATTRIBUTES_DOUBLE;

const QUANTILES: [Quantile; 3] = [Quantile::P50, Quantile::P99, Quantile::P999];

fn duration() -> SpanField {
    SpanField::Column(DURATION)
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
            let query = AggregateQuery {
                filter,
                what: Aggregate::Quantiles(duration(), QUANTILES.to_vec()),
                by: vec![SpanField::Column(SERVICE), SpanField::Attribute("shop.price".to_owned())],
                step_ns: Some(MINUTE_NS),
            };
            let result = tree.measure(&query).await.expect("few groups");
            let minute = i64::try_from(MINUTE_NS).expect("small");
            let mut want = BTreeMap::<_, Vec<i64>>::new();
            for sent in all.iter().filter(|sent| sent.tenant == "shop" && same(sent)) {
                let price = sent.price.map(|price| price.to_string());
                let values = vec![Some(sent.service.to_owned()), price];
                let step = sent.start_ns / minute * minute;
                want.entry((step, values)).or_default().push(sent.duration_ns.max(0));
            }
            assert_eq!(result.groups.len(), want.len());
            for (group, ((start_ns, values), mut durations)) in result.groups.iter().zip(want) {
                durations.sort_unstable();
                let numbers = QUANTILES.map(|quantile| at_rank(&durations, quantile) as f64);
                let numbers = Numbers::Quantiles(numbers.to_vec());
                let count = durations.len() as u64;
                assert_eq!(group, &Group { start_ns, values, count, numbers });
            }
            assert!(result.error.abs() < f64::EPSILON);
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
    let price = || SpanField::Attribute("shop.price".to_owned());
    let buckets = [(0.0, -3.0), (2.0, 1.5), (16.0, 10.0)].map(|(bucket, bucket_price)| {
        (bucket, prices.iter().filter(|price| **price == bucket_price).count() as u64)
    });
    let quantiles = QUANTILES.map(|quantile| at_rank(&prices, quantile)).to_vec();
    run(async {
        let tree = filled(&all).await;
        for (what, numbers) in [
            (Aggregate::Quantiles(price(), QUANTILES.to_vec()), Numbers::Quantiles(quantiles)),
            (Aggregate::Extremes(price()), Numbers::Extremes { min: -3.0, max: 10.0, sum }),
            (Aggregate::Buckets(price()), Numbers::Buckets(buckets.to_vec())),
        ] {
            let filter = Filter::of("shop");
            let query = AggregateQuery { filter, what, by: Vec::new(), step_ns: None };
            let result = tree.measure(&query).await.expect("one group");
            assert_eq!(result.groups, [Group { start_ns: 0, values: Vec::new(), count, numbers }]);
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
        let what = Aggregate::Count;
        let query = AggregateQuery { filter, what, by: Vec::new(), step_ns: Some(1) };
        assert_eq!(tree.measure(&query).await.err(), Some(AggregateError::Groups));
        let by = vec![SpanField::Column(SERVICE); 5];
        let many = AggregateQuery { by, ..query.clone() };
        assert_eq!(tree.measure(&many).await.err(), Some(AggregateError::By));
        let by_start = AggregateQuery { by: vec![duration()], ..query.clone() };
        assert_eq!(tree.measure(&by_start).await.err(), Some(AggregateError::Field));
        let of_ids = AggregateQuery {
            what: Aggregate::Extremes(SpanField::Column(SPAN_ID)),
            ..query.clone()
        };
        assert_eq!(tree.measure(&of_ids).await.err(), Some(AggregateError::Field));
        let query = AggregateQuery { step_ns: None, ..query };
        let result = tree.measure(&query).await.expect("one group");
        let expected = all.iter().filter(|sent| sent.tenant == "shop").count();
        assert_eq!(result.groups[0].count, expected as u64);
    });
}

#[test]
fn results_do_not_depend_on_parts_and_threads() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=6_000).map(|span_id| sent(&mut rng, span_id)).collect();
    let price = || SpanField::Attribute("shop.price".to_owned());
    let aggregates = || {
        [duration(), price()].into_iter().flat_map(|field| {
            let quantiles = Aggregate::Quantiles(field.clone(), QUANTILES.to_vec());
            [
                Aggregate::Count,
                quantiles,
                Aggregate::Extremes(field.clone()),
                Aggregate::Buckets(field),
            ]
        })
    };
    let results = |runtime: tokio::runtime::Runtime, parts: u64| {
        runtime.block_on(async {
            let tree = filled_in(&all, parts).await;
            let mut results = Vec::new();
            for (filter, _) in filters().into_iter().step_by(6) {
                for what in aggregates() {
                    let by = vec![SpanField::Column(SERVICE), price(), SpanField::Column(NAME)];
                    let (filter, step_ns) = (filter.clone(), Some(MINUTE_NS));
                    let query = AggregateQuery { filter, what, by, step_ns };
                    results.push(tree.measure(&query).await.expect("few groups").groups);
                }
            }
            results
        })
    };
    let one = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let four = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build();
    let results = [results(one(), 3), results(one(), 24), results(four.expect("threads"), 24)];
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

/// Numbers of groups at these starts, each a partial of its own, merged.
fn merged(what: &Aggregate, parts: &[(i64, Vec<i64>)]) -> Result<Partial, AggregateError> {
    let mut whole = Partial::new(what);
    for (start_ns, numbers) in parts {
        let mut partial = Partial::new(what);
        let group = partial.group(GroupKey { start_ns: *start_ns, ..GroupKey::default() });
        partial.push_all(&vec![group; numbers.len()], numbers)?;
        whole.merge(partial)?;
    }
    Ok(whole)
}

fn of_all(what: Aggregate) -> AggregateQuery {
    AggregateQuery { filter: Filter::of("shop"), what, by: Vec::new(), step_ns: None }
}

#[test]
fn very_many_are_counted_with_a_known_error() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let query = of_all(Aggregate::Quantiles(duration(), QUANTILES.to_vec()));
    let parts: Vec<_> = (0..17)
        .map(|part| {
            let durations = (0..EXACT_MAX / 16)
                .map(|_| i64::try_from(rng.next_u64() % 100_000_000).expect("small"));
            (part % 2, durations.collect::<Vec<_>>())
        })
        .collect();
    let partial = merged(&query.what, &parts).expect("durations are counted");
    let (groups, error) = partial.finish(&query);
    assert!((error - Precision::FINE.error()).abs() < f64::EPSILON && error <= 0.005);
    for group in &groups {
        let mut all: Vec<_> = parts
            .iter()
            .filter(|(start_ns, _)| *start_ns == group.start_ns)
            .flat_map(|(_, durations)| durations.iter().copied())
            .collect();
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
    let what =
        Aggregate::Quantiles(SpanField::Attribute("shop.price".to_owned()), QUANTILES.to_vec());
    let mut parts = vec![(0, vec![1; EXACT_MAX])];
    assert!(merged(&what, &parts).is_ok());
    parts.push((0, vec![1]));
    assert_eq!(merged(&what, &parts).err(), Some(AggregateError::Numbers));
}

#[test]
fn very_long_ones_among_very_many_have_an_error_of_their_own() {
    let query = of_all(Aggregate::Quantiles(duration(), QUANTILES.to_vec()));
    let (usual, end) = (Precision::FINE.error(), Precision::END.as_ns_f64());
    for (long_ns, share, is_wide) in
        [(8_000_000_000_000, 1_500, false), (8_000_000_000_000, 500, true)]
    {
        let duration = |nth: usize| if nth.is_multiple_of(share) { long_ns } else { 1_000_000 };
        let durations = (0..=EXACT_MAX).map(duration).collect();
        let partial = merged(&query.what, &[(0, durations)]).expect("durations are counted");
        let (groups, error) = partial.finish(&query);
        let Numbers::Quantiles(found) = &groups[0].numbers else { panic!("{groups:?}") };
        if is_wide {
            // The last duration is above an hour; by how much is not known.
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

#[test]
fn maps_without_a_wanted_key_are_not_decoded() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=500).map(|span_id| sent(&mut rng, span_id)).collect();
    run(async {
        let tree = filled(&all).await;
        let run = &tree.run_set().runs()[0];
        let wanted = run.run().want(0, &[ATTRIBUTES_DOUBLE], 0..run.run().rows(0));
        let mut entries = Vec::new();
        for key in ["shop.price", "none"] {
            let wanted = wanted.clone().with_keys(Some(&BTreeSet::from([key.to_owned()])));
            let rows = run.read(&**tree.objects(), &wanted).await.expect("it is there");
            entries.push(rows.lists(ATTRIBUTES_DOUBLE).len());
        }
        let rows = run.read(&**tree.objects(), &wanted).await.expect("it is there");
        assert_eq!(entries, [rows.lists(ATTRIBUTES_DOUBLE).len(), 0]);
        assert!(entries[0] > 0);
    });
}
