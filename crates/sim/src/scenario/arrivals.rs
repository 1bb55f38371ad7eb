//! The keys of arrivals, which may be recorded, and the checks of rates that change.

use crate::model::Model;
use crate::recorded::RecordedTimeline;
use curtail_config::Section;
use curtail_model::arrivals::RATES;
use curtail_model::{Arrivals, Rate, Spacing};
use curtail_units::{Duration, Instant};
use std::sync::Arc;

/// Maximum mean number of changes of the rate from one request to the next; each costs as much as an arrival.
const CHANGES_MAX: f64 = 1_000.0;

/// Maximum mean number of changes of the rate in a time without requests, which nothing interrupts: some seconds.
const CHANGES_WITHOUT_REQUEST_MAX: f64 = 1e8;

const RECORDED: &str = "File with one time of an arrival on each line, in rising order. The first request arrives \
        at the start. After the last, the arrivals begin again.";

/// Reads the keys of arrivals; absent keys have the values of `base`, if there is one.
pub(super) fn read(
    s: &mut Section<'_>,
    base: Option<&Arrivals>,
) -> (Arrivals, Option<Arc<RecordedTimeline>>) {
    let Some(times) = s.file_values("recorded_file", RECORDED) else {
        return (Arrivals::read(s, base), None);
    };
    let timeline = timeline(s, &times);
    let lasts = timeline.lasts.as_secs_f64();
    let rate = if lasts > 0.0 { times.len() as f64 / lasts } else { 1.0 };
    let recorded = Arrivals::steady(Spacing::Poisson, Rate::PerSecond(rate));
    if Arrivals::read(s, Some(&recorded)) != recorded {
        s.error("recorded_file", "expected either this or the other keys of arrivals");
    }
    (recorded, Some(Arc::new(timeline)))
}

/// The timeline of recorded arrivals. It begins again a mean distance after the last arrival.
fn timeline(s: &mut Section<'_>, times: &[Duration]) -> RecordedTimeline {
    if let Some(nth) = times.windows(2).position(|pair| pair[1] < pair[0]) {
        let (line, before) = (nth + 2, times[nth]);
        let text = format!("line {line}: expected at least the time of the line before ({before})");
        s.error("recorded_file", text);
    }
    let first = times.first().copied().unwrap_or_default();
    let span = times.last().copied().unwrap_or_default() - first;
    if span == Duration::ZERO {
        s.error("recorded_file", "there is no rate: expected at least two different times");
    }
    let gaps = times.len().saturating_sub(1).max(1) as f64;
    RecordedTimeline {
        arrivals: times.iter().map(|at| Instant::ZERO + (*at - first)).collect(),
        works: Vec::new(),
        slow_periods: Vec::new(),
        lasts: span.mul_f64(1.0 + 1.0 / gaps),
    }
}

/// Checks the rates between changes, and their number; in a variant, only if they differ from the base.
pub(super) fn check_changes(s: &mut Section<'_>, model: &Model, base: Option<&Model>) {
    let mean = model.requests_per_second();
    let is_of_base =
        |base: &Model| base.arrivals == model.arrivals && base.requests_per_second() == mean;
    if !RATES.contains(&mean) || base.is_some_and(is_of_base) {
        return;
    }
    let (lowest, highest) = model.arrivals.factor_range();
    // Bursts without a mean duration are reported already.
    let is_wrong = |rate: &&f64| rate.is_finite() && !RATES.contains(rate);
    if let Some(rate) = [lowest * mean, highest * mean].iter().find(is_wrong) {
        let (low, high) = (RATES.start(), RATES.end());
        let text = format!("the rate changes to {rate:e} requests per second");
        s.error("arrivals", format!("{text}: expected {low} to {high}"));
    }
    let changes = model.arrivals.changes_without_request(mean);
    if changes.is_finite() && changes > CHANGES_WITHOUT_REQUEST_MAX {
        let text = format!("the rate changes {changes:.0} times while no request arrives");
        let expected = format!("expected at most {CHANGES_WITHOUT_REQUEST_MAX} times");
        s.error("arrivals", format!("{text}: {expected}"));
        return;
    }
    let changes = model.arrivals.changes_per_request(mean);
    if changes.is_finite() && changes > CHANGES_MAX {
        let text = format!("the rate changes {changes:.0} times from one request to the next");
        s.error("arrivals", format!("{text}: expected at most {CHANGES_MAX} times"));
    }
}
