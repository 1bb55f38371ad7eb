//! The traces that begin at a service, and all their spans.
//!
//! **Limits**: a batch ends after the span with which it exceeds [`BATCH_BYTES`].

use super::filter::Filter;
use super::scan::{Projection, ScanStopped};
use crate::batch::write_span;
use crate::columns::Columns;
use crate::schema::envelope::SERVICE;
use crate::schema::spans::{DURATION, PARENT_ID, SPANS, START, TRACE_ID};
use crate::tree::{Tree, Unread};
use curtail_otlp::{BadRow, BatchWriter};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The length from which a batch gets no more spans.
const BATCH_BYTES: usize = 8 << 20;

/// The roots of traces: spans without a parent.
#[derive(Debug)]
pub struct RootSpans {
    /// The traces that begin at the service.
    pub ids: HashSet<u128>,
    /// The first start and the last end of their roots, in nanoseconds since 1970.
    pub first_ns: i64,
    /// See [`first_ns`](Self::first_ns).
    pub last_ns: i64,
    /// The number of roots of each service.
    pub services: BTreeMap<String, u64>,
    /// Whether there are more traces than asked for.
    pub is_cut: bool,
    /// Runs that could not be read and may have more roots.
    pub unread: Vec<Unread>,
}

/// The roots among some rows.
#[derive(Debug, Default)]
struct Partial {
    /// The trace, the start and the end of each root of the service.
    roots: Vec<(u128, i64, i64)>,
    services: BTreeMap<String, u64>,
}

impl Tree {
    /// The roots that a filter selects; the traces are those that begin at `service`, at most `max`.
    pub async fn roots(&self, filter: &Filter, service: &str, max: usize) -> RootSpans {
        let projection = Projection::of([TRACE_ID, PARENT_ID, SERVICE, START, DURATION], []);
        let mut found = RootSpans {
            ids: HashSet::new(),
            first_ns: i64::MAX,
            last_ns: i64::MIN,
            services: BTreeMap::new(),
            is_cut: false,
            unread: Vec::new(),
        };
        let service = service.to_owned();
        let partial =
            move |rows: &Columns, selected: Vec<usize>| Partial::of_rows(rows, &selected, &service);
        let scanned = self.scan(filter, projection, partial, |partial: Partial| {
            for (trace_id, start_ns, end_ns) in partial.roots {
                found.ids.insert(trace_id);
                found.first_ns = found.first_ns.min(start_ns);
                found.last_ns = found.last_ns.max(end_ns);
            }
            for (service, count) in partial.services {
                *found.services.entry(service).or_default() += count;
            }
            if found.ids.len() > max { Err(ScanStopped) } else { Ok(()) }
        });
        let (unread, ended) = scanned.await;
        (found.unread, found.is_cut) = (unread, ended.is_err());
        found
    }

    /// Passes all spans of some traces to `take`, among those that a filter selects, in OTLP batches in any order of
    /// spans. The scan ends when `take` returns false. Returns the runs that could not be read.
    pub async fn spans_of(
        &self,
        filter: &Filter,
        ids: Arc<HashSet<u128>>,
        mut take: impl FnMut(Result<Vec<u8>, BadRow>) -> bool,
    ) -> Vec<Unread> {
        let fields = (0..SPANS.schema().fields().len()).collect();
        let projection = Projection { fields, keys: None };
        let batch = move |rows: &Columns, selected: Vec<usize>| {
            let traces = rows.wide(TRACE_ID);
            let (mut writer, mut batches) = (BatchWriter::new(), Vec::new());
            for row in selected.into_iter().filter(|row| ids.contains(&traces[*row])) {
                if let Err(error) = write_span(&mut writer, rows, row) {
                    batches.push(Err(error));
                }
                if writer.bytes() > BATCH_BYTES {
                    batches.push(Ok(std::mem::take(&mut writer).finish()));
                }
            }
            if writer.bytes() > 0 {
                batches.push(Ok(writer.finish()));
            }
            batches
        };
        let take = |batches: Vec<Result<Vec<u8>, BadRow>>| {
            if batches.into_iter().all(&mut take) { Ok(()) } else { Err(ScanStopped) }
        };
        self.scan(filter, projection, batch, take).await.0
    }
}

impl Partial {
    fn of_rows(rows: &Columns, selected: &[usize], service: &str) -> Self {
        let (traces, parents) = (rows.wide(TRACE_ID), rows.narrow(PARENT_ID));
        let (starts, durations) = (rows.longs(START), rows.longs(DURATION));
        let services = rows.coded(SERVICE);
        let mut partial = Self::default();
        let is_root = |row: &&usize| parents.get(**row).copied().unwrap_or(0) == 0;
        for row in selected.iter().filter(is_root) {
            let of_row = services.text(*row);
            match partial.services.get_mut(of_row) {
                Some(count) => *count += 1,
                None => {
                    partial.services.insert(of_row.to_owned(), 1);
                }
            }
            if of_row == service {
                let start_ns = starts[*row];
                let end_ns = start_ns.saturating_add(durations[*row].max(0));
                partial.roots.push((traces[*row], start_ns, end_ns));
            }
        }
        partial
    }
}
