use super::{
    MaintenanceMetrics, MaintenanceTask, ServerCounters, Snapshot, catalogue, metrics_reference,
    since_epoch,
};
use curtail_metrics::process::Usage;
use curtail_metrics::render_text;
use curtail_units::{Bytes, Duration};
use std::sync::Arc;

fn snapshot() -> Snapshot {
    let maintenance = MaintenanceMetrics::default();
    maintenance.failed(MaintenanceTask::Flush);
    Snapshot {
        counters: ServerCounters {
            ingest: Arc::default(),
            log: Arc::default(),
            queries: Arc::default(),
            maintenance: Arc::new(maintenance),
            reloads: Arc::default(),
            started: since_epoch(),
        },
        tables: [("spans", 7, 2), ("logs", 0, 0), ("points", 0, 0)],
        trace_runs: 3,
        backlog_bytes: 5,
        usage: Usage { cpu: Some(Duration::from_ms(1_250)), resident: Some(Bytes::from_kib(64)) },
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_table_and_the_exposition_name_the_same_metrics_in_the_same_order() {
    let text = render_text(snapshot());
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let shown: Vec<_> =
        types.filter_map(|line| line.split_once(' ')).map(|(name, _)| name).collect();
    let expected: Vec<_> = catalogue::ALL.iter().map(|metric| metric.name()).collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|name| name.strip_suffix("_total").or(name.strip_suffix("_info")).unwrap_or(name))
        .collect();
    assert_eq!(shown, expected);
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
fn the_reference_names_every_metric_with_its_meaning() {
    assert_eq!(metrics_reference().lines().count(), catalogue::ALL.len() + 2);
    for metric in catalogue::ALL {
        assert!(metric.help.ends_with('.') && !metric.help.contains('|'), "{}", metric.help);
    }
}
