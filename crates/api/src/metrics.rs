//! Counters of queries, by kind and outcome.

use crate::sql;
use curtail_metrics::{CounterVec, Gauge, MetricsForm};
use curtail_sketch::AtomicHistogram;
use curtail_units::Label as _;
use http::StatusCode;
use std::fmt::Debug;
use std::time::Instant;

/// The page of `/metrics`, which the server renders.
pub trait MetricsPage: Debug + Send + Sync {
    /// Renders one scrape; returns the media type and the bytes.
    fn render(&self, form: MetricsForm) -> (&'static str, Vec<u8>);
}

/// A kind of query. Requests of Tempo's and Jaeger's API with the same purpose are of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are their names in metrics")]
pub enum QueryKind {
    Trace,
    Logs,
    Search,
    Tags,
    Metrics,
    Sql,
    Explain,
    Predict,
    Other,
}

curtail_units::labels!(QueryKind {
    Trace => "trace",
    Logs => "logs",
    Search => "search",
    Tags => "tags",
    Metrics => "metrics",
    Sql => "sql",
    Explain => "explain",
    Predict => "predict",
    Other => "other",
});

impl QueryKind {
    /// The kind of a request with this path.
    pub(crate) fn of_path(path: &str) -> Self {
        let under = |prefixes: &[&str]| prefixes.iter().any(|prefix| path.starts_with(prefix));
        match path {
            sql::PATH => Self::Sql,
            "/api/v1/explain" => Self::Explain,
            "/api/v1/predict" => Self::Predict,
            "/api/search" | "/jaeger/api/traces" | "/jaeger/api/v3/trace-summaries" => Self::Search,
            "/jaeger/api/services" | "/jaeger/api/v3/services" => Self::Tags,
            "/jaeger/api/operations" | "/jaeger/api/v3/operations" => Self::Tags,
            _ if under(&["/api/metrics/"]) => Self::Metrics,
            _ if under(&["/api/search/", "/api/v2/search/", "/jaeger/api/services/"]) => Self::Tags,
            _ if under(&["/api/v1/traces/"]) && path.ends_with("/logs") => Self::Logs,
            _ if under(&["/api/traces/", "/api/v2/traces/"]) => Self::Trace,
            _ if under(&["/jaeger/api/traces/", "/jaeger/api/v3/traces/"]) => Self::Trace,
            _ => Self::Other,
        }
    }
}

/// The outcome of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryOutcome {
    /// Any other status.
    Ok,
    /// A status of 4xx.
    Rejected,
    /// A status of 5xx other than 504.
    Failed,
    /// The status 504.
    TimedOut,
    /// The client disconnected.
    Cancelled,
}

curtail_units::labels!(QueryOutcome {
    Ok => "ok",
    Rejected => "rejected",
    Failed => "failed",
    TimedOut => "timed_out",
    Cancelled => "cancelled",
});

impl QueryOutcome {
    fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::GATEWAY_TIMEOUT => Self::TimedOut,
            status if status.is_server_error() => Self::Failed,
            status if status.is_client_error() => Self::Rejected,
            _ => Self::Ok,
        }
    }
}

/// Counters of the query API since the start.
#[derive(Debug)]
pub struct QueryMetrics {
    /// Each kind of query with its counters.
    pub kinds: Box<[(&'static str, KindMetrics)]>,
    /// Results that lack the rows of unreadable runs, by kind.
    pub incomplete: CounterVec<QueryKind>,
    /// Open connections.
    pub connections: Gauge,
}

/// Counters of one kind of query.
#[derive(Debug, Default)]
pub struct KindMetrics {
    /// Queries by outcome.
    pub outcomes: CounterVec<QueryOutcome>,
    /// Times until the responses began.
    pub durations: AtomicHistogram,
}

impl Default for QueryMetrics {
    fn default() -> Self {
        Self {
            kinds: QueryKind::NAMES.iter().map(|name| (*name, KindMetrics::default())).collect(),
            incomplete: CounterVec::default(),
            connections: Gauge::default(),
        }
    }
}

impl QueryMetrics {
    /// Begins to measure a request.
    pub(crate) fn begin(&self, path: &str) -> QueryTimer<'_> {
        let kind = QueryKind::of_path(path);
        QueryTimer { metrics: self, kind, began: Instant::now(), outcome: QueryOutcome::Cancelled }
    }
}

/// A request in progress; counted when this is dropped.
#[derive(Debug)]
pub(crate) struct QueryTimer<'a> {
    metrics: &'a QueryMetrics,
    kind: QueryKind,
    began: Instant,
    outcome: QueryOutcome,
}

impl QueryTimer<'_> {
    /// Notes that the response begins.
    pub(crate) fn end(mut self, status: StatusCode, is_incomplete: bool) {
        self.outcome = QueryOutcome::of(status);
        if is_incomplete {
            self.metrics.incomplete.add(&self.kind, 1);
        }
    }
}

impl Drop for QueryTimer<'_> {
    fn drop(&mut self) {
        let (_, kind) = &self.metrics.kinds[self.kind as usize];
        kind.outcomes.add(&self.outcome, 1);
        kind.durations.record(self.began.elapsed().into());
    }
}

#[cfg(test)]
mod tests {
    use super::{QueryKind, QueryMetrics};
    use curtail_metrics::Instrument as _;
    use http::StatusCode;

    #[test]
    fn requests_of_tempo_and_of_jaeger_for_the_same_are_of_one_kind() {
        for (path, kind) in [
            ("/api/traces/1", QueryKind::Trace),
            ("/api/v2/traces/1", QueryKind::Trace),
            ("/jaeger/api/v3/traces/1", QueryKind::Trace),
            ("/jaeger/api/traces/1", QueryKind::Trace),
            ("/api/v1/traces/1/logs", QueryKind::Logs),
            ("/api/search", QueryKind::Search),
            ("/jaeger/api/traces", QueryKind::Search),
            ("/api/search/tags", QueryKind::Tags),
            ("/jaeger/api/services/cart/operations", QueryKind::Tags),
            ("/api/metrics/query_range", QueryKind::Metrics),
            ("/api/v1/sql", QueryKind::Sql),
            ("/", QueryKind::Other),
        ] {
            assert_eq!(QueryKind::of_path(path), kind, "{path}");
        }
    }

    #[test]
    fn a_request_counts_once_with_its_outcome() {
        let metrics = QueryMetrics::default();
        for (status, is_incomplete) in [(200, true), (400, false), (500, false), (504, false)] {
            let status = StatusCode::from_u16(status).expect("a status");
            metrics.begin("/api/search").end(status, is_incomplete);
        }
        drop(metrics.begin("/api/search"));
        let (_, search) =
            metrics.kinds.iter().find(|(name, _)| *name == "search").expect("it is listed");
        let outcomes = search.outcomes.read();
        assert!(outcomes.iter().all(|(_, count)| *count == 1), "{outcomes:?}");
        assert_eq!(search.durations.snapshot().count(), 5);
        assert_eq!(metrics.incomplete.sum(), 1);
    }
}
