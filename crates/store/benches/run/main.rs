//! What a span costs on its way into a run and back, in nanoseconds, and what it takes there, in bytes.
//!
//! Batches as services send them (see `batches`), decoded before; everything on one core, in memory.
//!
//! ```sh
//! cargo bench -p curtail-store --bench run
//! ```

mod batches;

use bytes::Bytes;
use curtail_otlp::{Decoded, Limits, Spans};
use curtail_store::merge::{Merge, Step};
use curtail_store::run::{Run, RunWriter, Wanted};
use curtail_store::schema::spans::{SPANS, TRACE_ID};
use curtail_store::schema::traces::TRACES;
use curtail_store::traces::Summaries;
use curtail_store::{Columns, Memtable};
use std::time::Instant;

const ROWS: usize = 400_000;
const ROUNDS: usize = 7;
const SEED: u64 = 1;

fn main() {
    let batches = batches::batches(ROWS, SEED);
    let limits = Limits::default();
    let decoded: Vec<_> = batches
        .iter()
        .map(|batch| Spans::decode(batch, &limits).expect("a good batch").0)
        .collect();
    let rows: usize = decoded.iter().map(|spans| spans.spans.len()).sum();
    let attributes: usize = decoded.iter().map(|spans| spans.attributes.len()).sum();
    let first_id = decoded[0].spans[0].trace_id;
    let decoded: Vec<_> = decoded.into_iter().map(Decoded::Spans).collect();
    let bytes: usize = batches.iter().map(Vec::len).sum();
    println!(
        "{rows} spans, {:.1} attributes and {} bytes each, seed {SEED}; ns a span, median of {ROUNDS}",
        attributes as f64 / rows as f64,
        bytes / rows
    );
    let mut steps: Vec<(&str, Vec<f64>)> =
        ["insert", "sort", "write", "read", "merge", "summaries"]
            .map(|name| (name, Vec::new()))
            .to_vec();
    let (mut in_memory, mut file, mut summaries) = (0, Bytes::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut took = Vec::new();
        let mut memtable = Memtable::new(&SPANS);
        timed(&mut took, || {
            for (batch, spans) in batches.iter().zip(&decoded) {
                memtable.insert("shop", batch, spans);
            }
        });
        let groups: Vec<_> = timed(&mut took, || memtable.sorted().collect());
        file = timed(&mut took, || {
            let mut writer = RunWriter::new(&SPANS);
            groups.iter().for_each(|group| writer.write(group));
            writer.finish().into()
        });
        let run = Run::open(&SPANS, &file, file.len() as u64).expect("a run");
        timed(&mut took, || read(&run, &file));
        let parts: Vec<_> = batches
            .chunks(batches.len().div_ceil(8))
            .zip(decoded.chunks(batches.len().div_ceil(8)))
            .map(|(batches, decoded)| part(batches, decoded))
            .collect();
        let merged = timed(&mut took, || merge(&parts));
        assert!(merged.len() < file.len() * 11 / 10);
        summaries = timed(&mut took, || summarize(&groups));
        for ((_, all), took) in steps.iter_mut().zip(took) {
            all.push(took * 1e9 / rows as f64);
        }
        in_memory = memtable.bytes();
    }
    for (name, mut all) in steps {
        all.sort_by(f64::total_cmp);
        println!("{name:>8} {:>8.1}", all[all.len() / 2]);
    }
    println!("memtable: {} bytes a span", in_memory / rows);
    println!("run: {:.1} bytes a span", file.len() as f64 / rows as f64);
    println!("summaries: {:.1} bytes a span", summaries.len() as f64 / rows as f64);
    let run = Run::open(&SPANS, &file, file.len() as u64).expect("a run");
    one_trace(&run, &file, first_id);
}

fn timed<T>(took: &mut Vec<f64>, step: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = step();
    took.push(began.elapsed().as_secs_f64());
    done
}

/// An eighth of it, as a run of its own.
fn part(batches: &[Vec<u8>], decoded: &[Decoded]) -> Bytes {
    let mut memtable = Memtable::new(&SPANS);
    for (batch, spans) in batches.iter().zip(decoded) {
        memtable.insert("shop", batch, spans);
    }
    let mut writer = RunWriter::new(&SPANS);
    memtable.sorted().for_each(|group| writer.write(&group));
    writer.finish().into()
}

/// The wanted bytes of a file.
fn within(wanted: &Wanted, file: &Bytes) -> Vec<Bytes> {
    let at = |offset: u64| usize::try_from(offset).expect("the file is in memory");
    wanted.ranges.iter().map(|range| file.slice(at(range.start)..at(range.end))).collect()
}

/// Reads runs and writes them as one.
fn merge(parts: &[Bytes]) -> Vec<u8> {
    let fields: Vec<_> = (0..SPANS.schema().fields().len()).collect();
    let open = |file: &Bytes| Run::open(&SPANS, file, file.len() as u64).expect("a run");
    let runs: Vec<_> = parts.iter().map(open).collect();
    let mut next = vec![0; runs.len()];
    let mut merge = Merge::new(&SPANS, runs.len(), true);
    let mut writer = RunWriter::new(&SPANS);
    loop {
        match merge.step() {
            Step::Needs(nth) if next[nth] == runs[nth].groups() => merge.end(nth),
            Step::Needs(nth) => {
                let (run, group) = (&runs[nth], next[nth]);
                let wanted = run.want(group, &fields, 0..run.rows(group));
                merge.give(nth, run.read(&wanted, &within(&wanted, &parts[nth])).expect("a run"));
                next[nth] += 1;
            }
            Step::Made(group) => writer.write(&group),
            Step::Done => return writer.finish(),
        }
    }
}

/// Summarizes the traces of the merged row groups and writes the summaries, as a merge does.
fn summarize(groups: &[Columns]) -> Vec<u8> {
    let mut summaries = Summaries::default();
    let mut writer = RunWriter::new(&TRACES);
    for group in groups.iter().flat_map(|group| summaries.take(group)) {
        writer.write(&group);
    }
    summaries.finish().iter().for_each(|group| writer.write(group));
    writer.finish()
}

/// All of it.
fn read(run: &Run, file: &Bytes) {
    let fields: Vec<_> = (0..SPANS.schema().fields().len()).collect();
    for group in 0..run.groups() {
        let wanted = run.want(group, &fields, 0..run.rows(group));
        let rows = run.read(&wanted, &within(&wanted, file)).expect("a good run");
        assert_eq!(rows.len(), run.rows(group));
    }
}

/// One trace of it.
fn one_trace(run: &Run, file: &Bytes, trace_id: u128) {
    let fields: Vec<_> = (0..SPANS.schema().fields().len()).collect();
    let mut all = Vec::new();
    let mut found = 0;
    for _ in 0..101 {
        let mut took = Vec::new();
        found = 0;
        timed(&mut took, || {
            for group in 0..run.groups() {
                for rows in run.rows_between(group, TRACE_ID, trace_id, trace_id) {
                    let wanted = run.want(group, &[TRACE_ID], rows.clone());
                    let ids = run.read(&wanted, &within(&wanted, file)).expect("a good run");
                    let ids = ids.wide(TRACE_ID);
                    let from = rows.start + ids.partition_point(|id| *id < trace_id);
                    let to = rows.start + ids.partition_point(|id| *id <= trace_id);
                    let wanted = run.want(group, &fields, from..to);
                    found += run.read(&wanted, &within(&wanted, file)).expect("a good run").len();
                }
            }
        });
        all.push(took[0] * 1e6);
    }
    all.sort_by(f64::total_cmp);
    println!("a trace of {found} spans: {:.0} us", all[50]);
}
