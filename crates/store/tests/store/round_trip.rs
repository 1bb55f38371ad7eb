//! Rows that are read are equal to the rows that were written: nothing is lost on the way into a run and back.

use crate::batch_rows::{BatchRows, LOG_ROWS, POINT_ROWS, SPAN_ROWS};
use crate::random::{batch, facts, logs, points, trace_id};
use bytes::Bytes;
use curtail_otlp::{BatchWriter, LogRow, ResourceText, ScopeText, SpanRow};
use curtail_store::batch::write_span;
use curtail_store::run::{PAGE_ROWS, Run, RunError, RunWriter, Wanted};
use curtail_store::schema::{
    Table,
    logs::{self as log_fields, LOGS},
    spans::{NAME, SPANS, START, TRACE_ID},
};
use curtail_store::{Columns, Memtable};
use curtail_units::Rng;
use std::ops::Range;

const SEED: u64 = 20_801;

fn file(table: &'static Table, memtable: &Memtable) -> Bytes {
    let mut writer = RunWriter::new(table);
    for group in memtable.sorted() {
        writer.write(&group);
    }
    assert_eq!(writer.rows(), memtable.len() as u64);
    writer.finish().into()
}

pub(crate) fn open(table: &'static Table, file: &Bytes) -> Run {
    Run::open(table, file, file.len() as u64).expect("a run")
}

/// The wanted bytes of a file.
fn within(wanted: &Wanted, file: &Bytes) -> Vec<Bytes> {
    let at = |offset: u64| usize::try_from(offset).expect("the file is in memory");
    wanted.ranges.iter().map(|range| file.slice(at(range.start)..at(range.end))).collect()
}

pub(crate) fn read(
    run: &Run,
    file: &Bytes,
    group: usize,
    rows: Range<usize>,
) -> Result<Columns, RunError> {
    let fields: Vec<_> = (0..run.schema().fields().len()).collect();
    let wanted = run.want(group, &fields, rows);
    run.read(&wanted, &within(&wanted, file))
}

fn again(writer: &mut BatchWriter, rows: &Columns) {
    for row in 0..rows.len() {
        write_span(writer, rows, row).expect("what was written is plain JSON");
    }
}

/// Puts batches into a memtable, and that into a run; the rows of both have the same facts.
fn come_back(table_rows: BatchRows, batches: &[Vec<u8>], facts: fn(&[u8]) -> Vec<String>) {
    let table = (table_rows.table)();
    let mut expected: Vec<_> = batches.iter().flat_map(|batch| facts(batch)).collect();
    expected.sort();
    let memtable = table_rows.memtable(batches);
    assert_eq!(memtable.len(), expected.len());
    let in_memory = (table_rows.batch)(&[memtable.columns().clone()]);
    assert_eq!(facts(&in_memory), expected, "{} {} in memory", expected.len(), table.name);
    let file = file(table, &memtable);
    let run = open(table, &file);
    let groups = (0..run.groups()).map(|group| read(&run, &file, group, 0..run.rows(group)));
    let groups: Vec<_> = groups.map(|rows| rows.expect("a good run")).collect();
    let in_file = (table_rows.batch)(&groups);
    assert_eq!(facts(&in_file), expected, "{} {} in a run", expected.len(), table.name);
}

#[test]
fn every_field_of_every_row_comes_back() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    for rows in [1, 7, 300, 3_000] {
        let mut batches = |batch: fn(&mut Rng, usize, usize) -> Vec<u8>| -> Vec<_> {
            (0..5).map(|_| batch(&mut rng, rows, rows.div_ceil(4))).collect()
        };
        come_back(SPAN_ROWS, &batches(batch), facts);
        come_back(LOG_ROWS, &batches(logs::batch), logs::facts);
        come_back(POINT_ROWS, &batches(points::batch), points::facts);
    }
}

#[test]
fn every_field_of_golden_rows_comes_back() {
    let golden = [
        include_bytes!("../../../otlp/tests/golden/traces.pb").as_slice(),
        include_bytes!("../../../otlp/tests/golden/logs.pb"),
        include_bytes!("../../../otlp/tests/golden/metrics.pb"),
    ];
    let [spans, of_logs, of_points] = golden.map(|batch| [batch.to_vec()]);
    come_back(SPAN_ROWS, &spans, facts);
    come_back(LOG_ROWS, &of_logs, logs::facts);
    come_back(POINT_ROWS, &of_points, points::facts);
}

/// Rows of no trace come first, and no page of theirs is looked at for a trace.
#[test]
fn the_records_of_a_trace_are_found_by_their_pages() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let batches: Vec<_> = (0..12).map(|_| logs::batch(&mut rng, 3_000, 500)).collect();
    let memtable = LOG_ROWS.memtable(&batches);
    let file = file(&LOGS, &memtable);
    let run = open(&LOGS, &file);
    let whole = read(&run, &file, 0, 0..run.rows(0)).expect("a good run");
    let (ids, times) = (whole.wide(log_fields::TRACE_ID), whole.longs(log_fields::TIME));
    assert!(ids.iter().zip(times).is_sorted() && run.groups() == 1);
    let of_none = ids.partition_point(|id| *id == 0);
    assert!(of_none > PAGE_ROWS && ids.len() - of_none > PAGE_ROWS);
    for nth in 0..500 {
        let id = trace_id(nth);
        let rows = ids.iter().filter(|each| **each == id).count();
        assert!(rows > 0, "trace {id:x}");
        let pages: Vec<_> = run.rows_between(0, log_fields::TRACE_ID, id, id).collect();
        let in_pages = pages.iter().flat_map(|page| &ids[page.clone()]);
        assert_eq!(in_pages.filter(|each| **each == id).count(), rows, "trace {id:x}");
        assert!(pages.len() <= 2 && pages[0].end > of_none, "trace {id:x}: {pages:?}");
    }
}

/// Not one of them has an ID, so the file has nothing of that column.
#[test]
fn records_of_no_trace_come_back() {
    let mut writer = BatchWriter::new();
    for time_ns in 1..=20 {
        let record = LogRow { time_ns, ..LogRow::default() };
        let (resource, scope) = (ResourceText::default(), ScopeText::default());
        writer.record(&resource, &scope, &record).expect("no JSON in it");
    }
    come_back(LOG_ROWS, &[writer.finish()], logs::facts);
}

#[test]
fn a_run_is_in_the_order_of_traces_and_starts_and_any_part_of_it_is_read_alone() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    // Two pages, and a part of a third.
    let batches: Vec<_> = (0..9).map(|_| batch(&mut rng, 2_000, 500)).collect();
    let memtable = SPAN_ROWS.memtable(&batches);
    let file = file(&SPANS, &memtable);
    let run = open(&SPANS, &file);
    let whole = read(&run, &file, 0, 0..run.rows(0)).expect("a good run");
    assert!(whole.len() > 2 * PAGE_ROWS && run.groups() == 1);
    let order: Vec<_> = whole.wide(TRACE_ID).iter().zip(whole.longs(START)).collect();
    assert!(order.is_sorted());
    for _ in 0..40 {
        let (one, other) = (rng.below(whole.len() + 1), rng.below(whole.len() + 1));
        let rows = one.min(other)..one.max(other).min(one.min(other) + 300);
        let part = read(&run, &file, 0, rows.clone()).expect("a good run");
        assert_eq!(part.len(), rows.len());
        let (mut alone, mut within) = (BatchWriter::new(), BatchWriter::new());
        again(&mut alone, &part);
        for row in rows.clone() {
            write_span(&mut within, &whole, row).expect("plain JSON");
        }
        assert_eq!(facts(&alone.finish()), facts(&within.finish()), "rows {rows:?}");
    }
    for nth in 0..500 {
        let id = trace_id(nth);
        let rows = order.iter().filter(|(trace_id, _)| **trace_id == id).count();
        let pages: Vec<_> = run.rows_between(0, TRACE_ID, id, id).collect();
        let found: usize = pages
            .into_iter()
            .map(|rows| {
                let ids = &whole.wide(TRACE_ID)[rows];
                ids.iter().filter(|trace_id| **trace_id == id).count()
            })
            .sum();
        assert_eq!(found, rows, "trace {id:x}");
        assert_eq!(memtable.with_id(id).count(), rows, "trace {id:x}");
    }
}

#[test]
fn spans_with_long_texts_come_in_small_row_groups() {
    let mut batches = Vec::new();
    for nth in 1..=60 {
        let name = &nth.to_string().repeat(1 << 20);
        let mut writer = BatchWriter::new();
        let span = SpanRow { trace_id: nth, span_id: 1, name, ..SpanRow::default() };
        let around = (ResourceText::default(), ScopeText::default());
        writer.span(&around.0, &around.1, &span).expect("no JSON in it");
        batches.push(writer.finish());
    }
    let memtable = SPAN_ROWS.memtable(&batches);
    let file = file(&SPANS, &memtable);
    let run = open(&SPANS, &file);
    assert!(run.groups() > 1, "{} bytes in one", memtable.bytes());
    let mut names = 0;
    for group in 0..run.groups() {
        let rows = read(&run, &file, group, 0..run.rows(group)).expect("a good run");
        for row in 0..rows.len() {
            let nth = rows.wide(TRACE_ID)[row];
            assert!(rows.coded(NAME).text(row) == nth.to_string().repeat(1 << 20), "trace {nth}");
            names += 1;
        }
    }
    assert_eq!(names, 60);
}

#[test]
fn damage_is_an_error_and_never_read() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let batches = [batch(&mut rng, 400, 50)];
    let file = file(&SPANS, &SPAN_ROWS.memtable(&batches));
    let run = open(&SPANS, &file);
    let mut wrong = 0;
    for _ in 0..1_000 {
        let mut bytes = file.to_vec();
        let at = rng.below(bytes.len());
        bytes[at] ^= 1 << rng.below(8);
        let damaged = Bytes::from(bytes);
        match read(&run, &damaged, 0, 0..run.rows(0)) {
            Err(RunError::Damaged { group: 0, .. }) => wrong += 1,
            Err(other) => panic!("byte {at}: {other}"),
            Ok(rows) => {
                // The damaged byte is not read: the end of the file, or a column in which all rows are null.
                let mut read = BatchWriter::new();
                again(&mut read, &rows);
                assert_eq!(facts(&read.finish()), facts(&batches[0]), "byte {at}");
            }
        }
        // Reading the end succeeds or fails: it has no checksum.
        drop(Run::open(&SPANS, &damaged, damaged.len() as u64));
    }
    assert!(wrong > 300, "{wrong} of 1,000");
}

#[test]
fn a_file_that_is_cut_off_is_no_run() {
    let mut rng = Rng::new(SEED);
    let file = file(&SPANS, &SPAN_ROWS.memtable(&[batch(&mut rng, 40, 5)]));
    for len in [0, 1, 7, 8, 100, file.len() / 2, file.len() - 1] {
        let opened = Run::open(&SPANS, &file.slice(..len), len as u64);
        assert!(opened.is_err(), "{len} bytes");
    }
    // Of a whole one, the end says how much of it is needed.
    let tail = file.slice(file.len() - 8..);
    let Err(RunError::Longer(bytes)) = Run::open(&SPANS, &tail, file.len() as u64) else {
        panic!("eight bytes cannot be enough");
    };
    assert!(bytes > 8 && bytes <= file.len());
}
