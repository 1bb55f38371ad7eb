//! The metrics of the server: its counters, and the page that Prometheus scrapes.
//!
//! **Limits**: the number of series is fixed; nothing that clients send becomes a label.

mod catalogue;

use catalogue as table;
use curtail_api::{MetricsPage, QueryCounts, QueryMetrics};
use curtail_ingest::{IngestCounts, IngestMetrics, LogCounts, LogMetrics};
use curtail_metrics::process::{self, Usage};
use curtail_metrics::{
    CounterVec, Counts, Family, FamilyCollector, MetricsForm, MetricsSnapshot, ReloadCounters,
    SeriesValue, render,
};
use curtail_sketch::{AtomicHistogram, Histogram, Precision};
use curtail_store::Store;
use curtail_units::Duration;
use std::sync::Arc;
use std::time::SystemTime;

/// The reference page of all metrics, in Markdown.
#[must_use]
pub fn metrics_reference() -> String {
    curtail_metrics::reference_table(table::ALL)
}

/// A kind of maintenance that can fail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MaintenanceTask {
    Flush,
    Upkeep,
}

const TASKS: &[&str] = &["flush", "upkeep"];

/// Counters of the maintenance thread.
#[derive(Debug)]
pub(crate) struct MaintenanceMetrics {
    flushes: AtomicHistogram,
    compactions: AtomicHistogram,
    failures: CounterVec,
}

impl Default for MaintenanceMetrics {
    fn default() -> Self {
        Self {
            flushes: AtomicHistogram::new(Precision::COARSE),
            compactions: AtomicHistogram::new(Precision::COARSE),
            failures: CounterVec::new(TASKS, TASKS),
        }
    }
}

impl MaintenanceMetrics {
    pub(crate) fn flushed(&self, took: std::time::Duration) {
        self.flushes.record(took.into());
    }

    pub(crate) fn compacted(&self, took: std::time::Duration) {
        self.compactions.record(took.into());
    }

    pub(crate) fn failed(&self, task: MaintenanceTask) {
        self.failures.add(task as usize, 1);
    }
}

/// All counters of a server.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    pub(crate) store: Arc<Store>,
    pub(crate) ingest: Arc<IngestMetrics>,
    pub(crate) log: Arc<LogMetrics>,
    pub(crate) queries: Arc<QueryMetrics>,
    pub(crate) maintenance: Arc<MaintenanceMetrics>,
    pub(crate) reloads: Arc<ReloadCounters>,
    /// Since 1970.
    pub(crate) started: Duration,
}

impl ServerMetrics {
    /// The time since 1970.
    pub(crate) fn now() -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().into()
    }

    fn read(&self) -> Snapshot {
        let Self { store, .. } = self;
        let (spans, logs, points) = (store.spans(), store.logs(), store.points());
        let tables = [
            ("spans", spans.active_bytes() + spans.waiting_bytes(), spans.size().1),
            ("logs", logs.active_bytes() + logs.waiting_bytes(), logs.size().1),
            ("points", points.active_bytes() + points.waiting_bytes(), points.size().1),
        ];
        Snapshot {
            ingest: self.ingest.read(),
            log: self.log.read(),
            tables,
            trace_runs: store.traces().runs().len(),
            backlog_bytes: store.waiting_bytes(),
            flushes: self.maintenance.flushes.snapshot(),
            compactions: self.maintenance.compactions.snapshot(),
            maintenance_failures: self.maintenance.failures.read(),
            queries: self.queries.read(),
            reloads: self.reloads.read(),
            usage: Usage::now(),
            started: self.started,
        }
    }
}

impl MetricsPage for ServerMetrics {
    fn render(&self, form: MetricsForm) -> (&'static str, Vec<u8>) {
        render(form, self.read())
    }
}

/// Everything that one scrape shows.
#[derive(Debug)]
struct Snapshot {
    ingest: IngestCounts,
    log: LogCounts,
    /// Each table with the bytes of its memtables and the number of its runs.
    tables: [(&'static str, usize, usize); 3],
    trace_runs: usize,
    backlog_bytes: usize,
    flushes: Histogram,
    compactions: Histogram,
    maintenance_failures: Counts,
    queries: QueryCounts,
    reloads: [(&'static str, u64); 2],
    usage: Usage,
    started: Duration,
}

/// Counts with one label as series.
fn by<'a>(
    label: &'static str,
    counts: &'a Counts,
) -> impl Iterator<Item = ([(&'a str, &'a str); 1], u64)> {
    counts.iter().map(move |&(value, count)| ([(label, value)], count))
}

fn one(durations: &Histogram) -> [([(&str, &str); 0], SeriesValue<'_>); 1] {
    [([], SeriesValue::Histogram(durations))]
}

/// One function for each part of the server, in the order of the catalogue.
impl MetricsSnapshot for Snapshot {
    fn families(&self) -> Vec<Family<'_>> {
        let mut out = FamilyCollector::default();
        self.ingest(&mut out);
        self.tables(&mut out);
        self.queries(&mut out);
        let connections = [("otlp", self.ingest.connections), ("api", self.queries.connections)];
        let connections = connections.map(|(listener, open)| ([("listener", listener)], open));
        out.add(&table::CONNECTIONS_OPEN, connections);
        out.reloads(self.reloads);
        process::add_families(&mut out, &self.usage, self.started);
        process::add_file_families(&mut out);
        out.into_families()
    }
}

impl Snapshot {
    fn ingest<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let Self { ingest, log, .. } = self;
        out.add(&table::INGEST_BATCHES, by("signal", &ingest.batches));
        out.add(&table::INGEST_ROWS, by("signal", &ingest.rows));
        out.add(&table::INGEST_BYTES, by("signal", &ingest.bytes));
        out.add(&table::INGEST_DUPLICATES, [([], ingest.duplicates)]);
        out.add(&table::INGEST_REJECTED, by("reason", &ingest.rejected));
        out.add(&table::INGEST_ROWS_REJECTED, [([], ingest.rows_rejected)]);
        out.add(&table::INGEST_ACKNOWLEDGED, one(&ingest.acknowledged));
        out.add(&table::INGEST_WAITING, [([], ingest.waiting)]);
        out.add(&table::LOG_BYTES, [([], log.bytes)]);
        out.add(&table::LOG_WRITES, one(&log.writes));
        out.add(&table::LOG_FAILURES, [([], log.failures)]);
    }

    fn tables<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let bytes = self.tables.iter().map(|&(table, bytes, _)| ([("table", table)], bytes));
        out.add(&table::MEMTABLE_BYTES, bytes);
        out.add(&table::FLUSH_BACKLOG, [([], self.backlog_bytes)]);
        let runs = self.tables.iter().map(|&(table, _, runs)| (table, runs));
        let runs = runs.chain([("traces", self.trace_runs)]);
        out.add(&table::RUNS, runs.map(|(table, runs)| ([("table", table)], runs)));
        out.add(&table::FLUSHES, one(&self.flushes));
        out.add(&table::COMPACTIONS, one(&self.compactions));
        out.add(&table::MAINTENANCE_FAILURES, by("task", &self.maintenance_failures));
    }

    fn queries<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let kinds =
            || self.queries.kinds.iter().map(|(kind, ..)| ("kind", *kind)).zip(&self.queries.kinds);
        out.counts(
            &table::QUERIES,
            kinds().map(|(kind, (_, outcomes, _))| (kind, "outcome", outcomes)),
        );
        out.histograms(
            &table::QUERY_DURATION,
            kinds().map(|(kind, (.., durations))| (kind, durations)),
        );
        out.add(&table::QUERIES_INCOMPLETE, by("kind", &self.queries.incomplete));
    }
}

#[cfg(test)]
mod tests;
