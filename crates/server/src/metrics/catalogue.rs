//! The metrics of the server: name, unit, labels and meaning of each.

use curtail_metrics::{Metric, MetricType, Unit, counter, gauge, histogram_seconds, with_unit};

const SIGNAL: &[&str] = &["signal"];
const TABLE: &[&str] = &["table"];
const KIND: &[&str] = &["kind"];

pub(super) static INGEST_BATCHES: Metric =
    counter("curtail_ingest_batches", SIGNAL, "Batches that became durable, without duplicates.");
pub(super) static INGEST_ROWS: Metric = counter(
    "curtail_ingest_rows",
    SIGNAL,
    "Spans (traces), log records (logs) and points (metrics) in durable batches, without duplicates.",
);
pub(super) static INGEST_BYTES: Metric =
    counter_bytes("curtail_ingest", SIGNAL, "Size of durable batches, decompressed.");
pub(super) static INGEST_DUPLICATES: Metric = counter(
    "curtail_ingest_duplicate_batches",
    &[],
    "Duplicates: batches that arrived again within ten minutes. The server acknowledges them, and does not store them again.",
);
pub(super) static INGEST_REJECTED: Metric = counter(
    "curtail_ingest_batches_rejected",
    &["reason"],
    "Rejected requests, by reason. `exhausted` and `unavailable`: the sender may retry later.",
);
pub(super) static INGEST_ROWS_REJECTED: Metric = counter(
    "curtail_ingest_rows_rejected",
    &[],
    "Rows of accepted batches that the server rejected; the response to the sender states why.",
);
pub(super) static INGEST_ACKNOWLEDGED: Metric = histogram_seconds(
    "curtail_ingest_acknowledge_duration",
    &[],
    "Time from the headers of a request to the acknowledgement of its batch.",
);
pub(super) static INGEST_WAITING: Metric =
    gauge("curtail_ingest_batches_waiting", &[], "Batches that wait for the log.");
pub(super) static LOG_BYTES: Metric =
    counter_bytes("curtail_log_written", &[], "Size of the batches written to the log.");
pub(super) static LOG_WRITES: Metric = histogram_seconds(
    "curtail_log_write_duration",
    &[],
    "Time to write and sync one group of batches.",
);
pub(super) static LOG_FAILURES: Metric = counter(
    "curtail_log_write_failures",
    &[],
    "Groups of batches that the server could not write to the log; their senders retry.",
);
pub(super) static MEMTABLE_BYTES: Metric = gauge_bytes(
    "curtail_memtable",
    TABLE,
    "Size of the rows in memory, including rows that wait for a flush.",
);
pub(super) static FLUSH_BACKLOG: Metric = gauge_bytes(
    "curtail_flush_backlog",
    &[],
    "Size of the full memtables that wait for a flush. While four memtables wait, senders wait.",
);
pub(super) static RUNS: Metric = gauge("curtail_runs", TABLE, "Sorted runs of a table.");
pub(super) static FLUSHES: Metric =
    histogram_seconds("curtail_flush_duration", &[], "Time to flush memtables to runs.");
pub(super) static COMPACTIONS: Metric =
    histogram_seconds("curtail_compaction_duration", &[], "Time of one compaction.");
pub(super) static MAINTENANCE_FAILURES: Metric = counter(
    "curtail_maintenance_failures",
    &["task"],
    "Failed tasks of maintenance: `flush`, and `upkeep` for all other tasks. The server retries both.",
);
pub(super) static QUERIES: Metric = counter(
    "curtail_queries",
    &["kind", "outcome"],
    "Queries, by outcome. `rejected`: status 4xx. `failed`: 5xx. `timed_out`: 504. `cancelled`: the client disconnected.",
);
pub(super) static QUERY_DURATION: Metric = histogram_seconds(
    "curtail_query_duration",
    KIND,
    "Time from the headers of a query to the headers of its response.",
);
pub(super) static QUERIES_INCOMPLETE: Metric = counter(
    "curtail_queries_incomplete",
    KIND,
    "Query results that lack rows, because a sorted run could not be read.",
);
pub(super) static CONNECTIONS_OPEN: Metric =
    gauge("curtail_client_connections_open", &["listener"], "Open client connections.");

const fn counter_bytes(
    base: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    with_unit(MetricType::Counter, Unit::Bytes, base, labels, help)
}

const fn gauge_bytes(
    base: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    with_unit(MetricType::Gauge, Unit::Bytes, base, labels, help)
}
