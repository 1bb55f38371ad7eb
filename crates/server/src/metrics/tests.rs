use super::{MaintenanceMetrics, MaintenanceTask, ServerCounters, Snapshot};
use curtail_metrics::process::Usage;
use curtail_metrics::render_text;
use curtail_units::{Bytes, Duration};
use std::sync::Arc;

fn snapshot() -> Snapshot {
    let maintenance = MaintenanceMetrics::default();
    maintenance.failed(MaintenanceTask::Flush);
    Snapshot {
        counters: ServerCounters {
            maintenance: Arc::new(maintenance),
            ..ServerCounters::default()
        },
        tables: vec![("spans", Some(7), 2), ("logs", Some(0), 0), ("traces", None, 3)],
        backlog_bytes: 5,
        usage: Usage { cpu: Some(Duration::from_ms(1_250)), resident: Some(Bytes::from_kib(64)) },
    }
}

#[test]
fn every_series_carries_the_labels_that_the_table_says() {
    for family in curtail_metrics::MetricsSnapshot::families(&snapshot()) {
        assert!(!family.series.is_empty(), "{}", family.metric.name());
        for series in &family.series {
            let labels: Vec<_> = series.labels.iter().map(|(name, _)| *name).collect();
            assert_eq!(labels, family.metric.labels, "{}", family.metric.name());
        }
    }
}

#[test]
fn tables_are_shown_with_their_memory_and_runs() {
    let text = render_text(snapshot());
    for line in [
        "curtail_memtable_bytes{table=\"spans\"} 7",
        "curtail_flush_backlog_bytes 5",
        "curtail_runs{table=\"spans\"} 2",
        "curtail_runs{table=\"traces\"} 3",
        "curtail_maintenance_failures_total{task=\"flush\"} 1",
        "curtail_queries_total{kind=\"search\",outcome=\"ok\"} 0",
    ] {
        assert!(text.lines().any(|shown| shown == line), "no line {line} in\n{text}");
    }
}

#[test]
fn every_metric_has_a_meaning() {
    for family in curtail_metrics::MetricsSnapshot::families(&snapshot()) {
        let help = family.metric.help;
        assert!(help.ends_with('.') && !help.contains('|'), "{help}");
    }
}
