//! What is recorded beside the latencies.

use super::check_url;
use curtail_config::Section;
use curtail_units::Duration;
use std::path::PathBuf;

/// The measures as they are written.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuresConfig {
    /// From one look to the next.
    pub every: Duration,
    /// Logs of a JVM's garbage collector, by the name of a process.
    pub gc_logs: Vec<(String, PathBuf)>,
    /// Numbers that servers say of themselves.
    pub http: Vec<GaugeConfig>,
}

/// A number that a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GaugeConfig {
    /// The process whose it is.
    pub of: String,
    /// What it is called, with its unit.
    pub name: String,
    /// Who says it.
    pub url: String,
    /// Where in the response, as a JSON pointer.
    pub pointer: String,
}

/// The most of them.
const GAUGES_MAX: usize = 64;

impl MeasuresConfig {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        let every = s
            .field("every", "From one look to the next.")
            .range(Duration::from_ms(100)..=Duration::from_secs(60))
            .default(Duration::from_secs(1));
        let gc_logs = s.map(
            "gc_logs",
            "Under the name of a process, the log of its JVM's garbage collector \
            (`-Xlog:gc:file=…`, with the decoration `uptime` or `time`): its pauses \
            become the measure `gc_pause_ns`.",
            |name, s| (name.to_owned(), s.field("file", "The file.").alone().required()),
        );
        let http =
            s.list("http", "Numbers that servers say of themselves, in JSON.", GaugeConfig::read);
        if http.len() > GAUGES_MAX {
            s.error("http", format!("{} of them: expected at most {GAUGES_MAX}", http.len()));
        }
        Self { every, gc_logs, http }
    }
}

impl GaugeConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let gauge = Self {
            of: s.field("of", "The name of a process.").required(),
            name: s.field("name", "What it is called, with its unit: heap_used_bytes.").required(),
            url: s.field("url", "Who says it: http://….").required(),
            pointer: s
                .field("pointer", "Where in the response, as a JSON pointer: /jvm/memory/raw/used.")
                .required(),
        };
        check_url(s, "url", &gauge.url);
        if !gauge.pointer.starts_with('/') {
            let text =
                format!("{:?} does not begin with /: expected a JSON pointer", gauge.pointer);
            s.error("pointer", text);
        }
        gauge
    }
}
