//! Percentile distributions in the text form of `HdrHistogram` (`.hgrm`).
//!
//! **Form**: four columns (latency in milliseconds, quantile, number of requests up to this latency, 1/(1 - quantile)),
//! and five lines for each halving of the share of longer requests. Plotters ignore lines that begin with `#`.
//! **Invariant**: quantiles are those of all requests, and the lines end where the failures begin.
//! **Source**: `AbstractHistogram.outputPercentileDistribution` of `HdrHistogram` 2.2 (Java).

use super::figures::quantile;
use curtail_load::{Latencies, LatencyKind};
use curtail_text::lines::one_line;

#[cfg(test)]
mod tests;

/// Lines for each halving of the share of longer requests.
const LINES_A_HALVING: i32 = 5;
/// Maximum number of halvings; more would need more requests than a u64 counts.
const HALVINGS_MAX: i32 = 64;

/// The distribution of one arm on one clock; `about` is its first line.
pub(crate) fn render(latencies: &Latencies, clock: LatencyKind, about: &str) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| text += &format!("{line}\n");
    let responses = latencies.responses(clock);
    let count = latencies.count();
    line(format_args!("#[{}]", one_line(about)));
    line(format_args!(
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    ));
    for share in shares() {
        let Some(latency) = latencies.quantile(clock, quantile(share)) else { break };
        let no_longer = count - above(latencies, clock, share);
        let rarity = 1.0 / (1.0 - share);
        line(format_args!(
            "{:>12.6} {share:>2.12} {no_longer:>10} {rarity:>14.2}",
            latency.as_ms_f64()
        ));
        // A quantile beyond the last request adds nothing.
        if no_longer == count || rarity > count as f64 {
            break;
        }
    }
    let ms = |duration: Option<curtail_units::Duration>| duration.map_or(0.0, |d| d.as_ms_f64());
    let failed = latencies.failures.total();
    if failed == 0 && count > 0 {
        line(format_args!("{:>12.6} {:>2.12} {count:>10}", ms(responses.max()), 1.0));
    }
    line(format_args!(
        "#[Mean    = {:>12.3}, Responses        = {:>12}]",
        ms(responses.mean()),
        responses.count()
    ));
    line(format_args!("#[Max     = {:>12.3}, Total count    = {count:>12}]", ms(responses.max())));
    line(format_args!("#[Failed  = {failed:>12}, longer than every response]"));
    text
}

/// The quantiles of the lines: 0, 0.1, …, 0.5, 0.55, …, 0.75, 0.775, ….
fn shares() -> impl Iterator<Item = f64> {
    (0..HALVINGS_MAX).flat_map(|halving| {
        let left = 0.5_f64.powi(halving);
        (0..LINES_A_HALVING)
            .map(move |nth| 1.0 - left * (1.0 - 0.5 * f64::from(nth) / f64::from(LINES_A_HALVING)))
    })
}

/// The number of requests beyond the bucket of the quantile.
fn above(latencies: &Latencies, clock: LatencyKind, share: f64) -> u64 {
    let responses = latencies.responses(clock);
    let longer = latencies
        .quantile(clock, quantile(share))
        .map_or(0, |latency| responses.count_above(latency));
    longer + latencies.failures.total()
}
