//! The keys of measures.

use super::check_url;
use curtail_config::Section;
use curtail_generator::expect::read_pointer;
use curtail_units::Duration;
use std::path::PathBuf;

/// The configuration of measures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeasuresConfig {
    pub(crate) every: Duration,
    pub(crate) gc_logs: Vec<(String, PathBuf)>,
    pub(crate) http: Vec<GaugeConfig>,
}

/// A number that a server reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GaugeConfig {
    pub(crate) of: String,
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) pointer: String,
}

/// Maximum number of gauges.
const GAUGES_MAX: usize = 64;

impl MeasuresConfig {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        let every = s
            .field("every", "Time between two samples.")
            .range(Duration::from_ms(100)..=Duration::from_secs(60))
            .default(Duration::from_secs(1));
        let gc_logs = s.map(
            "gc_logs",
            "Log of a process's JVM garbage collector, by the name of the process \
                (`-Xlog:gc:file=…`, with the decoration `uptime` or `time`). Its pauses are \
                the measure `gc_pause_ns`.",
            |name, s| (name.to_owned(), s.field("file", "File of the log.").alone().required()),
        );
        let http =
            s.list("http", "Measures read from JSON responses of servers.", GaugeConfig::read);
        s.check_len("http", http.len(), GAUGES_MAX);
        Self { every, gc_logs, http }
    }
}

impl GaugeConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let gauge = Self {
            of: s.field("of", "Name of the process.").required(),
            name: s
                .field("name", "Name of the measure, with its unit, such as heap_used_bytes.")
                .required(),
            url: s.field("url", "URL of the JSON response: http://….").required(),
            pointer: read_pointer(s, "JSON pointer to the number, such as /jvm/memory/raw/used."),
        };
        check_url(s, "url", &gauge.url);
        gauge
    }
}
