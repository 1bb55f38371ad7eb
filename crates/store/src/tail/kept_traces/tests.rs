use super::*;
use crate::memtable::Memtable;
use crate::schema::spans::SPANS;
use crate::schema::traces::TRACES;
use crate::tail::Durations;
use crate::tail::tests::trace;
use curtail_otlp::{BatchWriter, Decoded, Limits, ResourceText, ScopeText, Signal, SpanRow};
use curtail_units::{Ratio, Rng};

const SEED: u64 = 89;

fn kept(rows: &Columns, slowest: f64, sample: u32) -> KeptTraces {
    let mut durations = Durations::default();
    durations.take(rows);
    let bars = durations.bars(Ratio::new(slowest).expect("a share"));
    let mut kept = KeptTraces::new(bars, NonZeroU32::new(sample).expect("not zero"));
    kept.take(rows).expect("few");
    kept
}

/// The sum of the weights, as an estimate of how many traces there were, and how far off it may be.
fn estimated(ids: impl Iterator<Item = u128>, sample: u32) -> (f64, f64, f64) {
    let mut rows = Columns::new(TRACES.schema());
    ids.for_each(|id| trace(&mut rows, "shop", id, Some(("a", 1)), 0));
    let kept = kept(&rows, 0.0, sample);
    let sum: f64 = kept.whose.iter().map(|(_, weight)| f64::from(weight.get())).sum();
    let count = rows.len() as f64;
    (sum, count, (count * f64::from(sample - 1)).sqrt())
}

#[test]
fn weights_add_up_to_what_there_was_whatever_ids_are_made_of() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    for sample in [2, 10, 100] {
        let random = |_| u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        let all = [
            estimated(
                (0..100_000).map(random).collect::<std::collections::BTreeSet<_>>().into_iter(),
                sample,
            ),
            estimated(1..=100_000, sample),
            // With a clock in the upper half, or the lower one always the same.
            estimated((1..=100_000).map(|nth| nth << 64 | 7), sample),
            estimated(
                (1..=100_000).map(|nth| ((1_795_348_800 + nth) << 96) | (nth * 1_000)),
                sample,
            ),
        ];
        for (sum, count, deviation) in all {
            assert!((sum - count).abs() < 4.0 * deviation, "{sum} for {count}, one in {sample}");
        }
    }
}

#[test]
fn the_sample_is_the_same_for_ever() {
    let sampled = (0..1_000_u128).filter(|id| mixed(*id).is_multiple_of(100));
    assert_eq!(sampled.collect::<Vec<_>>(), [128, 140, 423, 706, 724, 829, 910, 946]);
}

#[test]
fn what_has_failed_or_was_slow_stays_with_a_weight_of_one() {
    let mut rows = Columns::new(TRACES.schema());
    for id in 1..=100 {
        let (errors, duration_ns) = (i64::from(id == 3), i64::from(id == 5));
        trace(&mut rows, "shop", id, Some(("a", duration_ns)), errors);
    }
    let kept = kept(&rows, 0.01, u32::MAX);
    assert_eq!(kept.ids, [3, 5]);
    assert!(kept.whose.iter().all(|whose| *whose == (0, NonZeroU32::MIN)));
}

/// Spans of a tenant and a trace each, in the order of a run.
fn spans_of(all: &[(&str, u128)]) -> Columns {
    let mut memtable = Memtable::new(&SPANS);
    for (tenant, trace_id) in all {
        let row = SpanRow { trace_id: *trace_id, span_id: 1, ..SpanRow::default() };
        let mut writer = BatchWriter::new();
        writer.span(&ResourceText::default(), &ScopeText::default(), &row).expect("no JSON");
        let batch = writer.finish();
        let (spans, _) =
            Decoded::of(Signal::Traces, &batch, &Limits::default()).expect("a good batch");
        memtable.insert(tenant, &batch, &spans);
    }
    memtable.sorted().next().expect("a row group")
}

#[test]
fn rows_stay_that_are_of_a_trace_that_stays_and_of_its_tenant() {
    let mut rows = Columns::new(TRACES.schema());
    for (tenant, id, errors) in [("a", 2, 1), ("a", 4, 0), ("b", 4, 1), ("a", 5, 1), ("b", 5, 1)] {
        trace(&mut rows, tenant, id, Some(("a", 1)), errors);
    }
    let kept = kept(&rows, 0.0, u32::MAX);
    let groups = [
        spans_of(&[("a", 1), ("a", 2), ("a", 2), ("b", 2), ("a", 4)]),
        spans_of(&[("b", 4), ("a", 4), ("a", 5), ("b", 5), ("c", 5), ("a", 6)]),
    ];
    let mut at = 0;
    let kept_rows = groups.each_ref().map(|group| {
        let rest = kept.of(group, &mut at);
        let whose = (0..rest.len()).map(|row| {
            let weight = rest.coded(spans::WEIGHT).int(row);
            (rest.coded(TENANT).text(row).to_owned(), rest.wide(spans::TRACE_ID)[row], weight)
        });
        whose.collect::<Vec<_>>()
    });
    let want = |all: &[(&str, u128)]| -> Vec<_> {
        all.iter().map(|(tenant, id)| ((*tenant).to_owned(), *id, Some(1))).collect()
    };
    assert_eq!(kept_rows[0], want(&[("a", 2), ("a", 2)]));
    assert_eq!(kept_rows[1], want(&[("b", 4), ("a", 5), ("b", 5)]));
}
