use super::*;
use crate::memtable::Memtable;
use crate::schema::spans::{NAME, SPANS, START, TRACE_ID};
use curtail_otlp::{BatchWriter, Decoded, Limits, ResourceText, ScopeText, Signal, SpanRow};
use curtail_units::Rng;

const SEED: u64 = 17;

/// A sorted run, as row groups of this many rows; names say which run and row.
fn run(
    rng: &mut Rng,
    nth: usize,
    rows: usize,
    in_group: usize,
) -> (Vec<Columns>, Vec<(u128, i64, String)>) {
    let mut writer = BatchWriter::new();
    for row in 0..rows {
        let name = &format!("{nth}.{row}");
        let trace_id = 1 + rng.below(rows.div_ceil(4)) as u128;
        let start_ns = rng.below(9) as u64;
        let row = SpanRow { trace_id, span_id: 1, start_ns, name, ..SpanRow::default() };
        writer.span(&ResourceText::default(), &ScopeText::default(), &row).expect("no JSON");
    }
    let batch = writer.finish();
    let (spans, _) = Decoded::of(Signal::Traces, &batch, &Limits::default()).expect("a good batch");
    let mut memtable = Memtable::new(&SPANS);
    memtable.insert("shop", &batch, &spans);
    let sorted: Vec<_> = memtable.sorted().collect();
    let sources: Vec<_> = sorted.iter().collect();
    let positions: Vec<_> = (0..short(rows)).map(|row| RowPosition { batch: 0, row }).collect();
    let groups = positions.chunks(in_group);
    let groups: Vec<_> =
        groups.map(|positions| Columns::gather(SPANS.schema(), &sources, positions)).collect();
    let facts = groups.iter().flat_map(facts).collect();
    (groups, facts)
}

fn facts(group: &Columns) -> Vec<(u128, i64, String)> {
    let row = |row: usize| {
        let name = group.coded(NAME).text(row).to_owned();
        (group.wide(TRACE_ID)[row], group.longs(START)[row], name)
    };
    (0..group.len()).map(row).collect()
}

/// Merges runs; returns the row groups.
fn merged(runs: Vec<Vec<Columns>>) -> Vec<Columns> {
    let mut merge = Merge::new(&SPANS, runs.len(), true);
    let mut runs: Vec<_> = runs.into_iter().map(Vec::into_iter).collect();
    let mut made = Vec::new();
    loop {
        match merge.step() {
            Step::Needs(run) => match runs[run].next() {
                Some(group) => merge.give(run, group),
                None => merge.end(run),
            },
            Step::Made(group) => made.push(group),
            Step::Done => return made,
        }
    }
}

#[test]
fn all_rows_of_all_runs_come_in_their_common_order() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    for runs in [0, 1, 2, 8] {
        for in_group in [1, 7, 100] {
            let inputs = (0..runs).map(|nth| {
                let rows = rng.below(60);
                run(&mut rng, nth, rows, in_group)
            });
            let (inputs, written_before): (Vec<_>, Vec<_>) = inputs.unzip();
            let mut want: Vec<_> = written_before.into_iter().flatten().collect();
            // What is equal stays in the order of the runs, and within one as it was.
            want.sort_by_key(|(id, start, _)| (*id, *start));
            let made = merged(inputs);
            let got: Vec<_> = made.iter().flat_map(facts).collect();
            assert_eq!(got, want, "{runs} runs of row groups of {in_group}");
        }
    }
}

#[test]
fn long_rows_make_small_row_groups() {
    let long = |nth: usize| {
        // Some MiB each, more than a row group has in all.
        let name = &nth.to_string().repeat(4 << 20);
        let mut writer = BatchWriter::new();
        let row = SpanRow { trace_id: 1 + nth as u128, span_id: 1, name, ..SpanRow::default() };
        writer.span(&ResourceText::default(), &ScopeText::default(), &row).expect("no JSON");
        let batch = writer.finish();
        let (spans, _) =
            Decoded::of(Signal::Traces, &batch, &Limits::default()).expect("a good batch");
        let mut memtable = Memtable::new(&SPANS);
        memtable.insert("shop", &batch, &spans);
        memtable.sorted().collect::<Vec<_>>()
    };
    let made =
        merged((0..10).map(|nth| (0..5).flat_map(|row| long(10 * row + nth)).collect()).collect());
    assert_eq!(made.iter().map(Columns::len).sum::<usize>(), 50);
    assert!(made.len() > 2, "{}", made.len());
    for group in &made {
        assert!(group.bytes() < 3 * GROUP_BYTES, "{} bytes", group.bytes());
    }
}

#[test]
fn row_groups_are_full_but_for_the_last() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let rows = [GROUP_ROWS / 2 + 1, GROUP_ROWS, 3_000];
    let (inputs, written_before): (Vec<_>, Vec<_>) =
        rows.iter().enumerate().map(|(nth, rows)| run(&mut rng, nth, *rows, GROUP_ROWS)).unzip();
    let made = merged(inputs);
    let lens: Vec<_> = made.iter().map(Columns::len).collect();
    let total: usize = rows.iter().sum();
    assert_eq!(lens, [GROUP_ROWS, total - GROUP_ROWS]);
    let mut want: Vec<_> = written_before.into_iter().flatten().collect();
    want.sort_by_key(|(id, start, _)| (*id, *start));
    assert!(made.iter().flat_map(facts).eq(want));
}
