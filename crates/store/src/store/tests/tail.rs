//! The tail of an old day is kept, and the results of queries stay right.

use super::ranges::{SMALL, open_with};
use super::*;
use crate::query::{Aggregate, AggregateQuery, AggregateResult, Filter, Numbers, SpanField};
use crate::schema::traces;
use crate::tail::Tail;
use curtail_sketch::rank;
use curtail_units::{Quantile, Ratio};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

const DAY_MS: i64 = 86_400_000;

/// The inverse of the sampling rate of the rest.
const SAMPLE: u32 = 10;

const TRACES: usize = 30_000;

/// Of days that have been over for two.
fn tail() -> Tail {
    let (slowest, sample) = (Ratio::new(0.01), NonZeroU32::new(SAMPLE));
    Tail { after_days: 2, slowest: slowest.expect("a share"), sample: sample.expect("not zero") }
}

/// A trace: a root, which calls a service below it.
#[derive(Clone, Debug)]
struct Sent {
    id: u128,
    name: &'static str,
    duration_ns: u64,
    /// Of the span below the root.
    has_failed: bool,
}

fn sent(rng: &mut Rng, id: u128) -> Sent {
    // Two kinds of responses, one of them slow and rare.
    let typical = if rng.chance(0.02) { 0.5 } else { 0.005 };
    let took = std::time::Duration::from_secs_f64(typical * (0.3 * rng.normal()).exp());
    let duration_ns = u64::try_from(took.as_nanos()).expect("seconds");
    let name = ["GET /cart", "GET /items", "POST /cart"][rng.below(3)];
    Sent { id, name, duration_ns, has_failed: rng.chance(0.003) }
}

/// A batch of the roots, or of what is below them.
fn record(traces: &[Sent], is_root: bool) -> Record {
    let service = if is_root { "gateway" } else { "items" };
    let attributes = &format!(r#"{{"service.name":"{service}"}}"#);
    let resource = ResourceText { attributes, ..RESOURCE };
    let mut writer = BatchWriter::new();
    for sent in traces {
        let row = SpanRow {
            trace_id: sent.id,
            span_id: if is_root { 1 } else { 2 },
            parent_id: u64::from(!is_root),
            start_ns: 1_000,
            end_ns: 1_000 + if is_root { sent.duration_ns } else { 500 },
            name: if is_root { sent.name } else { "SELECT" },
            status: if !is_root && sent.has_failed { 2 } else { 0 },
            ..SpanRow::default()
        };
        writer.span(&resource, &SCOPE, &row).expect("plain JSON");
    }
    let batch = writer.finish().into();
    Record { signal: Signal::Traces, tenant: "shop".into(), received_ns: NOON_NS, batch }
}

/// Writes runs; no run has a whole trace.
async fn write(parts: &mut StoreParts, all: &[Sent], segments: std::ops::RangeInclusive<u64>) {
    let store = Arc::clone(&parts.store);
    let half = segments.clone().count() / 2;
    let pieces: Vec<_> = all.chunks(all.len().div_ceil(half)).collect();
    let records = pieces
        .iter()
        .map(|part| record(part, true))
        .chain(pieces.iter().map(|part| record(part, false)));
    for (record, segment) in records.zip(segments) {
        insert(&store, segment, &[record]);
        store.seal(segment);
        parts.flusher.flush(NOW_MS).await.expect("written");
    }
}

/// The quantiles of spans by their names.
async fn quantiles(store: &Store, requested: &[Quantile]) -> AggregateResult {
    let query = AggregateQuery {
        filter: Filter::of("shop"),
        what: Aggregate::Quantiles(SpanField::Column(spans::DURATION), requested.to_vec()),
        by: vec![SpanField::Column(spans::NAME)],
        step_ns: None,
    };
    let result = store.spans().measure(&query).await.expect("four groups");
    assert!(result.unread.is_empty() && result.error.abs() < f64::EPSILON);
    result
}

/// The number of kept spans, and their weight, by trace.
async fn kept_traces(store: &Store) -> BTreeMap<u128, (usize, i64)> {
    let mut all = BTreeMap::new();
    for run in store.spans().run_set().runs() {
        for group in 0..run.run().groups() {
            let rows = row_group(&run, &**store.spans().objects(), group).await;
            for (row, id) in rows.wide(spans::TRACE_ID).iter().enumerate() {
                let weight = rows.coded(spans::WEIGHT).int(row).unwrap_or(1);
                let (count, of_trace) = all.entry(*id).or_insert((0, weight));
                *count += 1;
                assert_eq!(*of_trace, weight);
            }
        }
    }
    all
}

/// The traces of an operation, the slowest first.
fn slowest<'a>(all: &'a [Sent], name: &str) -> Vec<&'a Sent> {
    let mut traces: Vec<_> = all.iter().filter(|sent| sent.name == name).collect();
    traces.sort_by_key(|sent| std::cmp::Reverse(sent.duration_ns));
    traces
}

#[test]
fn the_tail_is_there_as_a_whole_and_quantiles_and_counts_stay_right() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    // IDs as tracers make them that count.
    let all: Vec<_> = (1..=TRACES).map(|nth| sent(&mut rng, nth as u128)).collect();
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        write(&mut parts, &all, 1..=6).await;
        let store = Arc::clone(&parts.store);
        let now_ms = NOW_MS + 3 * DAY_MS;
        let early = parts
            .compactor
            .keep_tail(&tail(), now_ms - DAY_MS, "early")
            .await
            .expect("nothing to do");
        assert_eq!(early, None);
        let kept = parts
            .compactor
            .keep_tail(&tail(), now_ms, "tail")
            .await
            .expect("kept")
            .expect("it is due");
        assert_eq!(
            (kept.day.to_string(), kept.before),
            ("2024-10-04".to_owned(), 2 * TRACES as u64)
        );
        let kept_traces = kept_traces(&store).await;
        // One root in a hundred and one error in 300, and of the others a tenth.
        assert_eq!(kept.after, 2 * kept_traces.len() as u64);
        assert!(kept_traces.values().all(|(spans, _)| *spans == 2), "traces are whole");
        let share = kept_traces.len() as f64 / TRACES as f64;
        assert!((share - 0.112).abs() < 0.01, "{share}");
        let failed = all.iter().filter(|sent| sent.has_failed).map(|sent| sent.id);
        let mut certain: BTreeSet<_> = failed.collect();
        for name in ["GET /cart", "GET /items", "POST /cart"] {
            let slowest = slowest(&all, name);
            certain.extend(slowest[..slowest.len().div_ceil(100)].iter().map(|sent| sent.id));
        }
        for (id, (_, weight)) in &kept_traces {
            assert_eq!(*weight, if certain.contains(id) { 1 } else { i64::from(SAMPLE) });
        }
        assert!(
            certain.iter().all(|id| kept_traces.contains_key(id)),
            "all that is slow or has failed"
        );
        right(&store, &all).await;
        // As it was written, so it is read again; and there is nothing left to do.
        let (mut again, _) = open(&files, &objects).await.expect("a table");
        right(&again.store, &all).await;
        for parts in [&mut parts, &mut again] {
            assert_eq!(
                parts.compactor.keep_tail(&tail(), now_ms, "again").await.expect("nothing"),
                None
            );
        }
        summarized(&store, &kept_traces).await;
    });
}

/// Quantiles and counts by weight are those of what was sent, but for five standard errors of the sample.
async fn right(store: &Store, all: &[Sent]) {
    let requested = [0.1, 0.5, 0.9, 0.99, 0.999].map(|q| Quantile::new(q).expect("a share"));
    let result = quantiles(store, &requested).await;
    assert_eq!(result.groups.len(), 4);
    for group in result.groups {
        let name = group.values[0].clone().expect("each has a name");
        if name == "SELECT" {
            continue;
        }
        let mut durations: Vec<_> =
            slowest(all, &name).iter().map(|sent| sent.duration_ns).collect();
        durations.reverse();
        let count = durations.len() as f64;
        // What is not certain was drawn with a chance of one in SAMPLE.
        let error = 5.0 * (f64::from(SAMPLE - 1) / count).sqrt();
        assert!((group.count as f64 - count).abs() < error * count, "{} {count}", group.count);
        let Numbers::Quantiles(quantiles) = &group.numbers else { panic!("{group:?}") };
        for (got, quantile) in quantiles.iter().zip(requested) {
            let q = quantile.get();
            // Beyond the slowest hundredth all are there, and only how many there are in all is estimated.
            let off = if q <= 0.99 { error * (q * (1.0 - q)).sqrt() } else { error * (1.0 - q) };
            let at = |q: f64| {
                let rank = rank(
                    Quantile::new(q.clamp(0.0, 1.0)).expect("a share"),
                    durations.len() as u64,
                );
                durations[usize::try_from(rank.max(1)).expect("few") - 1] as f64
            };
            assert!((at(q - off)..=at(q + off)).contains(got), "{name} {q}: {got}, {}", at(q));
        }
    }
}

/// The summaries are those of the tail.
async fn summarized(store: &Store, kept_traces: &BTreeMap<u128, (usize, i64)>) {
    let mut summarized = BTreeMap::new();
    for run in store.tree(&traces::TRACES).run_set().runs() {
        for group in 0..run.run().groups() {
            let rows = row_group(&run, &**store.tree(&traces::TRACES).objects(), group).await;
            for (row, id) in rows.wide(traces::TRACE_ID).iter().enumerate() {
                assert_eq!(rows.coded(traces::IS_WHOLE).get(row), Some(&[1][..]));
                let spans = usize::try_from(rows.longs(traces::SPAN_COUNT)[row]).expect("few");
                summarized.insert(*id, (spans, rows.longs(traces::WEIGHT)[row]));
            }
        }
    }
    assert_eq!(&summarized, kept_traces);
}

#[test]
fn what_comes_late_is_decided_by_itself_and_never_merged_with_what_was_not() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let store = Arc::clone(&parts.store);
        let now_ms = NOW_MS + 3 * DAY_MS;
        let mut ids = 1..;
        for round in 0..9 {
            let all: Vec<_> = ids.by_ref().take(200).map(|id| sent(&mut rng, id)).collect();
            write(&mut parts, &all, 10 * round + 1..=10 * round + 2).await;
            if round == 3 {
                // Eight runs of the day, three of them tails.
                assert_eq!(store.spans().size().1, 3 + 2);
                assert!(!parts.compactor.compact(now_ms, "no").await.expect("nothing to do"));
            }
            let name = format!("tail-{round}");
            let kept = parts
                .compactor
                .keep_tail(&tail(), now_ms, &name)
                .await
                .expect("kept")
                .expect("due");
            assert_eq!(kept.before, 400);
        }
        let before = kept_traces(&store).await;
        assert_eq!(store.spans().size().1, 9);
        // Tails are merged with tails, and stay such.
        assert!(parts.compactor.compact(now_ms, "tails").await.expect("merged"));
        assert_eq!(store.spans().size().1, 2);
        assert_eq!(kept_traces(&store).await, before);
        assert_eq!(parts.compactor.keep_tail(&tail(), now_ms, "no").await.expect("nothing"), None);
    });
}

#[test]
fn the_tail_of_ranges_is_one_run_and_eight_large_tails_become_ranges() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open_with(&files, &objects, SMALL).await;
        let store = Arc::clone(&parts.store);
        let now_ms = NOW_MS + 3 * DAY_MS;
        let mut ids = 1..;
        let all: Vec<_> = ids.by_ref().take(300).map(|id| sent(&mut rng, id)).collect();
        write(&mut parts, &all, 1..=8).await;
        assert!(parts.compactor.compact(now_ms, "ranges").await.expect("merged"));
        assert!(store.spans().run_set().runs().iter().all(|run| run.is_range()));
        for round in 1..=8 {
            // A part of each of these traces is in another run than the rest; in the first round there are also ranges.
            let late: Vec<_> = ids.by_ref().take(100).map(|id| sent(&mut rng, id)).collect();
            write(&mut parts, &late, 10 * round + 1..=10 * round + 2).await;
            let name = format!("tail-{round}");
            let kept = parts
                .compactor
                .keep_tail(&tail(), now_ms, &name)
                .await
                .expect("kept")
                .expect("due");
            assert_eq!(kept.before, if round == 1 { 800 } else { 200 });
            let runs = store.spans().run_set().runs();
            assert_eq!(runs.len() as u64, round);
            assert!(runs.iter().all(|run| run.is_tail() && !run.is_range()));
        }
        let before = kept_traces(&store).await;
        assert!(before.values().all(|(spans, _)| *spans == 2), "traces are whole");
        summarized(&store, &before).await;
        assert!(parts.compactor.compact(now_ms, "tails").await.expect("merged"));
        assert!(!parts.compactor.compact(now_ms, "again").await.expect("nothing to do"));
        let (again, _) = open_with(&files, &objects, SMALL).await;
        for store in [&store, &again.store] {
            let runs = store.spans().run_set().runs();
            assert!(runs.len() == 8 && runs.iter().all(|run| run.is_tail() && run.is_range()));
            assert_eq!(kept_traces(store).await, before);
            summarized(store, &before).await;
        }
        assert_eq!(parts.compactor.keep_tail(&tail(), now_ms, "no").await.expect("nothing"), None);
    });
}

#[test]
fn whatever_fails_a_day_is_there_as_a_whole_or_its_tail_is() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=300).map(|id| sent(&mut rng, id)).collect();
    run(async {
        for when in [When::Before, When::After] {
            for nth in 0.. {
                let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
                let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
                write(&mut parts, &all, 1..=2).await;
                let now_ms = NOW_MS + 3 * DAY_MS;
                objects.arm(nth, when);
                let kept = parts.compactor.keep_tail(&tail(), now_ms, "first").await;
                let has_failed = objects.disarm();
                parts.compactor.refresh().await.expect("nothing fails now");
                let of_first = kept_traces(&parts.store).await;
                let again = parts
                    .compactor
                    .keep_tail(&tail(), now_ms, "second")
                    .await
                    .expect("nothing fails now");
                let of_second = kept_traces(&parts.store).await;
                match again {
                    Some(_) => assert_eq!(of_first.len(), all.len(), "{when:?} {nth}"),
                    None => assert_eq!(of_first, of_second, "{when:?} {nth}"),
                }
                assert!(of_second.len() < all.len() / 2, "{when:?} {nth}");
                assert!(of_second.values().all(|(spans, _)| *spans == 2), "{when:?} {nth}");
                while parts.compactor.summarize(now_ms + DAY_MS).await.expect("nothing fails now") {
                }
                summarized(&parts.store, &of_second).await;
                if !has_failed {
                    assert!(kept.expect("nothing failed").is_some() && nth > 10, "{nth}");
                    break;
                }
            }
        }
    });
}
