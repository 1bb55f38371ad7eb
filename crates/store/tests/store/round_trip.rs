//! What came is what is read: nothing of a span is lost on its way into a run and back.

use crate::random::{batch, told, trace_id};
use bytes::Bytes;
use curtail_otlp::{Limits, Spans, TracesWriter};
use curtail_store::batch::write_span;
use curtail_store::run::{PAGE_ROWS, Run, RunError, RunWriter};
use curtail_store::schema::spans::{SPANS, START, TRACE_ID};
use curtail_store::{Columns, Memtable, SpanRows};
use curtail_units::Rng;
use std::ops::Range;

const SEED: u64 = 20_801;

fn memtable(batches: &[Vec<u8>]) -> Memtable<SpanRows> {
    let mut memtable = Memtable::default();
    for batch in batches {
        let (rows, _) = Spans::decode(batch, &Limits::default()).expect("a good batch");
        memtable.insert("shop", batch, &rows);
    }
    memtable
}

fn file(memtable: &Memtable<SpanRows>) -> Bytes {
    let mut writer = RunWriter::new(SPANS.schema(), Vec::new()).expect("memory");
    for group in memtable.sorted() {
        writer.write(&group).expect("memory");
    }
    assert_eq!(writer.rows(), memtable.len() as u64);
    writer.finish().expect("memory").into()
}

fn open(file: &Bytes) -> Run {
    Run::open(SPANS.schema(), file, file.len() as u64).expect("a run")
}

fn read(run: &Run, file: &Bytes, group: usize, rows: Range<usize>) -> Result<Columns, RunError> {
    let fields: Vec<_> = (0..SPANS.schema().fields().len()).collect();
    let wanted = run.want(group, &fields, rows);
    run.read(&wanted, &wanted.within(file))
}

fn again(writer: &mut TracesWriter, rows: &Columns) {
    for row in 0..rows.len() {
        write_span(writer, rows, row).expect("what was written is plain JSON");
    }
}

#[test]
fn every_field_of_every_span_comes_back() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    for spans in [1, 7, 300, 3_000] {
        let batches: Vec<_> = (0..5).map(|_| batch(&mut rng, spans, spans.div_ceil(4))).collect();
        let mut came: Vec<_> = batches.iter().flat_map(|batch| told(batch)).collect();
        came.sort();
        let memtable = memtable(&batches);
        let mut in_memory = TracesWriter::new();
        again(&mut in_memory, memtable.columns());
        assert_eq!(told(&in_memory.finish()), came, "{spans} spans in memory");
        let file = file(&memtable);
        let run = open(&file);
        let mut in_file = TracesWriter::new();
        for group in 0..run.groups() {
            let rows = read(&run, &file, group, 0..run.rows(group)).expect("a good run");
            again(&mut in_file, &rows);
        }
        assert_eq!(told(&in_file.finish()), came, "{spans} spans in a run");
    }
}

#[test]
fn a_run_is_in_the_order_of_traces_and_starts_and_any_part_of_it_is_read_alone() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    // Two pages, and a part of a third.
    let batches: Vec<_> = (0..9).map(|_| batch(&mut rng, 2_000, 500)).collect();
    let memtable = memtable(&batches);
    let file = file(&memtable);
    let run = open(&file);
    let whole = read(&run, &file, 0, 0..run.rows(0)).expect("a good run");
    assert!(whole.len() > 2 * PAGE_ROWS && run.groups() == 1);
    let order: Vec<_> = whole.wide(TRACE_ID).iter().zip(whole.longs(START)).collect();
    assert!(order.is_sorted());
    for _ in 0..40 {
        let (one, other) = (rng.below(whole.len() + 1), rng.below(whole.len() + 1));
        let rows = one.min(other)..one.max(other).min(one.min(other) + 300);
        let part = read(&run, &file, 0, rows.clone()).expect("a good run");
        assert_eq!(part.len(), rows.len());
        let (mut alone, mut within) = (TracesWriter::new(), TracesWriter::new());
        again(&mut alone, &part);
        for row in rows.clone() {
            write_span(&mut within, &whole, row).expect("plain JSON");
        }
        assert_eq!(told(&alone.finish()), told(&within.finish()), "rows {rows:?}");
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
fn damage_is_said_and_never_read() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let batches = [batch(&mut rng, 400, 50)];
    let file = file(&memtable(&batches));
    let run = open(&file);
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
                // What was hit is not read: the end of the file, or a column of which all rows have nothing.
                let mut read = TracesWriter::new();
                again(&mut read, &rows);
                assert_eq!(told(&read.finish()), told(&batches[0]), "byte {at}");
            }
        }
        // The end is read as well, or refused: it has no checksum.
        drop(Run::open(SPANS.schema(), &damaged, damaged.len() as u64));
    }
    assert!(wrong > 300, "{wrong} of 1,000");
}

#[test]
fn a_file_that_is_cut_off_is_no_run() {
    let mut rng = Rng::new(SEED);
    let file = file(&memtable(&[batch(&mut rng, 40, 5)]));
    for len in [0, 1, 7, 8, 100, file.len() / 2, file.len() - 1] {
        let opened = Run::open(SPANS.schema(), &file.slice(..len), len as u64);
        assert!(opened.is_err(), "{len} bytes");
    }
    // Of a whole one, the end says how much of it is needed.
    let tail = file.slice(file.len() - 8..);
    let Err(RunError::Longer(bytes)) = Run::open(SPANS.schema(), &tail, file.len() as u64) else {
        panic!("eight bytes cannot be enough");
    };
    assert!(bytes > 8 && bytes <= file.len());
}
