//! The run as an interval log of `HdrHistogram` (`.hlog`, version 1.3): one line for each block and clock.
//!
//! **Form**: a tag, start and duration of the interval, the longest latency in milliseconds, and the compressed
//! histogram of nanoseconds. The tag is the name of the arm, with `.service` for the service clock and `.warm-up` for
//! warm-ups; `_` replaces separators in the name.
//! **Limits**: the form has no place for failures, so comments have their counts.
//! **Source**: `HistogramLogWriter` of `HdrHistogram` 2.2 (Java).

use super::{figures, hdr};
use crate::Results;
use curtail_load::LatencyKind;
use curtail_text::lines::one_line;
use curtail_text::numbers::utc;
use curtail_units::Instant;

#[cfg(test)]
mod tests;

/// The log.
pub(crate) fn render(results: &Results) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| text += &format!("{line}\n");
    let began = results.began_unix_ns as f64 / 1e9;
    line(format_args!(
        "#[{}, seed {}: {}]",
        one_line(&results.name),
        results.seed,
        one_line(&results.load)
    ));
    line(format_args!("#[Histogram log format version 1.3]"));
    line(format_args!(
        "#[StartTime: {began:.3} (seconds since epoch), {}]",
        utc(results.began_unix_ns)
    ));
    line(format_args!("#[BaseTime: {began:.3} (seconds since epoch)]"));
    line(format_args!(
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
    ));
    for (nth, block) in (1..).zip(&results.blocks) {
        let merged = block.merged();
        let failed = merged.failures.total();
        if failed > 0 {
            let reasons: Vec<String> = figures::reasons(&merged.failures)
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            line(format_args!(
                "#[in block {nth}, which follows, {failed} requests failed: {}]",
                reasons.join(" ")
            ));
        }
        let name = results.arms.get(block.arm).map_or("", |arm| arm.name.as_str());
        for (clock, ending) in [(LatencyKind::Response, ""), (LatencyKind::Service, ".service")] {
            let responses = merged.responses(clock);
            let began = block.began.since(Instant::ZERO).as_secs_f64();
            let lasted = block.lasted.as_secs_f64();
            let max = responses.max().map_or(0.0, |max| max.as_ms_f64());
            let warm_up = if block.is_warm_up { ".warm-up" } else { "" };
            let tag = format!("{}{ending}{warm_up}", tag(name));
            line(format_args!(
                "Tag={tag},{began:.3},{lasted:.3},{max:.3},{}",
                hdr::encode(responses)
            ));
        }
    }
    text
}

/// A name without what ends a tag or a line.
fn tag(name: &str) -> String {
    name.replace([',', ' ', '\n', '\r', '\t'], "_")
}
