//! The metrics of the server: its counters, and the page that Prometheus scrapes.
//!
//! **Limits**: the number of series is fixed; nothing that clients send becomes a label.

mod catalogue;

use catalogue as table;
use curtail_api::{MetricsPage, QueryMetrics};
use curtail_ingest::{IngestMetrics, LogMetrics};
use curtail_metrics::process::{self, Usage};
use curtail_metrics::{
    Counter, CounterVec, Counts, Family, FamilyCollector, Instrument as _, MetricsForm,
    MetricsSnapshot, ReloadResult, render,
};
use curtail_sketch::AtomicHistogram;
use curtail_store::Store;
use curtail_units::Duration;
use std::sync::Arc;

/// The reference page of all metrics, in Markdown.
#[must_use]
pub fn metrics_reference() -> String {
    let snapshot = Snapshot::default();
    let metrics: Vec<_> = snapshot.families().iter().map(|family| family.metric).collect();
    curtail_metrics::reference_table(&metrics)
}

/// A kind of maintenance that can fail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MaintenanceTask {
    Flush,
    Upkeep,
}

curtail_units::labels!(MaintenanceTask { Flush => "flush", Upkeep => "upkeep", });

#[derive(Debug, Default)]
pub(crate) struct MaintenanceMetrics {
    pub(crate) flushes: AtomicHistogram,
    pub(crate) compactions: AtomicHistogram,
    failures: CounterVec<MaintenanceTask>,
}

impl MaintenanceMetrics {
    pub(crate) fn failed(&self, task: MaintenanceTask) {
        self.failures.add(&task, 1);
    }
}

/// The counters of all parts of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerCounters {
    pub(crate) ingest: Arc<IngestMetrics>,
    pub(crate) log: Arc<LogMetrics>,
    pub(crate) queries: Arc<QueryMetrics>,
    pub(crate) maintenance: Arc<MaintenanceMetrics>,
    pub(crate) reloads: Arc<CounterVec<ReloadResult>>,
    /// Since 1970.
    pub(crate) started: Duration,
}

#[derive(Debug)]
pub(crate) struct ServerMetrics {
    pub(crate) store: Arc<Store>,
    pub(crate) counters: ServerCounters,
}

impl MetricsPage for ServerMetrics {
    fn render(&self, form: MetricsForm) -> (&'static str, Vec<u8>) {
        let Self { store, counters } = self;
        let tables = store.trees().iter().map(|tree| {
            let bytes =
                tree.table().is_logged().then(|| tree.active_bytes() + tree.waiting_bytes());
            (tree.table().name, bytes, tree.size().1)
        });
        let snapshot = Snapshot {
            counters: counters.clone(),
            tables: tables.collect(),
            backlog_bytes: store.waiting_bytes(),
            usage: Usage::now(),
        };
        render(form, snapshot)
    }
}

/// All values of one scrape.
#[derive(Debug, Default)]
struct Snapshot {
    counters: ServerCounters,
    /// Each table with the bytes of its memtables, if it has any, and the number of its runs.
    tables: Vec<(&'static str, Option<usize>, usize)>,
    backlog_bytes: usize,
    usage: Usage,
}

/// Returns a series for each count, with the value of `label` that belongs to the count.
fn by<'a>(
    label: &'static str,
    counts: Counts,
) -> impl Iterator<Item = ([(&'a str, &'a str); 1], u64)> {
    counts.into_iter().map(move |(value, count)| ([(label, value)], count))
}

impl MetricsSnapshot for Snapshot {
    fn families(&self) -> Vec<Family<'_>> {
        let ServerCounters { ingest, queries, reloads, started, .. } = &self.counters;
        let mut out = FamilyCollector::default();
        self.ingest(&mut out);
        self.tables(&mut out);
        self.queries(&mut out);
        let connections = [("otlp", ingest.connections.get()), ("api", queries.connections.get())];
        let connections = connections.map(|(listener, open)| ([("listener", listener)], open));
        out.add(&table::CONNECTIONS_OPEN, connections);
        out.reloads(&reloads.read());
        process::add_families(&mut out, &self.usage, *started);
        process::add_file_families(&mut out);
        out.into_families()
    }
}

/// One function for each part of the server. It adds the metrics of that part, in the order of the catalogue.
impl Snapshot {
    fn ingest(&self, out: &mut FamilyCollector<'_>) {
        let ServerCounters { ingest, log, .. } = &self.counters;
        let one = |counter: &Counter| [([], counter.read())];
        out.add(&table::INGEST_BATCHES, by("signal", ingest.batches.read()));
        out.add(&table::INGEST_ROWS, by("signal", ingest.rows.read()));
        out.add(&table::INGEST_BYTES, by("signal", ingest.bytes.read()));
        out.add(&table::INGEST_DUPLICATES, one(&ingest.duplicates));
        out.add(&table::INGEST_REJECTED, by("reason", ingest.rejected.read()));
        out.add(&table::INGEST_ROWS_REJECTED, one(&ingest.rows_rejected));
        out.add(&table::INGEST_ACKNOWLEDGED, [([], ingest.acknowledged.snapshot())]);
        out.add(&table::INGEST_WAITING, [([], ingest.waiting.get())]);
        out.add(&table::LOG_BYTES, one(&log.bytes));
        out.add(&table::LOG_WRITES, [([], log.writes.snapshot())]);
        out.add(&table::LOG_FAILURES, one(&log.failures));
    }

    fn tables(&self, out: &mut FamilyCollector<'_>) {
        let maintenance = &self.counters.maintenance;
        let bytes =
            self.tables.iter().filter_map(|&(table, bytes, _)| Some(([("table", table)], bytes?)));
        out.add(&table::MEMTABLE_BYTES, bytes);
        out.add(&table::FLUSH_BACKLOG, [([], self.backlog_bytes)]);
        let runs = self.tables.iter().map(|&(table, _, runs)| ([("table", table)], runs));
        out.add(&table::RUNS, runs);
        out.add(&table::FLUSHES, [([], maintenance.flushes.snapshot())]);
        out.add(&table::COMPACTIONS, [([], maintenance.compactions.snapshot())]);
        out.add(&table::MAINTENANCE_FAILURES, by("task", maintenance.failures.read()));
    }

    fn queries(&self, out: &mut FamilyCollector<'_>) {
        let QueryMetrics { kinds, incomplete, .. } = &*self.counters.queries;
        let outcomes = kinds.iter().flat_map(|(kind, metrics)| {
            let counts = metrics.outcomes.read().into_iter();
            counts.map(move |(outcome, count)| ([("kind", *kind), ("outcome", outcome)], count))
        });
        out.add(&table::QUERIES, outcomes);
        let durations =
            kinds.iter().map(|(kind, metrics)| (("kind", *kind), metrics.durations.snapshot()));
        out.histograms(&table::QUERY_DURATION, durations);
        out.add(&table::QUERIES_INCOMPLETE, by("kind", incomplete.read()));
    }
}

#[cfg(test)]
mod tests;
