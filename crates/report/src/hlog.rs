//! The run as an interval log of `HdrHistogram` (`.hlog`, version 1.3): one line for each block and clock.
//!
//! **Form**: a tag, when the interval began, how long it lasted, the longest latency in milliseconds, and the histogram
//! of nanoseconds, compressed. The tag of an arm's response is its name, that of the service clock `NAME.service`; what
//! would end a tag stands as `_` in it. Blocks for warming up have `.warm-up` at their end, so that nobody merges them by
//! error.
//! **Hurts when** requests failed: the form has no place for them. Comments say how many, and the results file has them
//! all.
//! **Source**: `HistogramLogWriter` of `HdrHistogram` 2.2 (Java).

use super::{figures, hdr};
use crate::Results;
use curtail_load::Clock;
use curtail_text::lines::one_line;
use curtail_text::numbers::utc;
use curtail_units::Instant;
use std::fmt::Write as _;

#[cfg(test)]
mod tests;

/// The log.
///
/// # Panics
/// Never: writing to a text cannot fail.
#[must_use]
pub fn render(results: &Results) -> String {
    let mut text = String::new();
    let mut line = |args: std::fmt::Arguments<'_>| {
        text.write_fmt(args).expect("writing to a text cannot fail");
        text.push('\n');
    };
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
        for (clock, ending) in [(Clock::Response, ""), (Clock::Service, ".service")] {
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
