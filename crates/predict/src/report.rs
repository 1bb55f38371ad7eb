//! The report of a prediction: as text for people, and as JSON for programs.

mod json;
mod table;

use crate::json_zero::without_negative_zeros;
use crate::prediction::Prediction;
use curtail_units::Duration;
use serde_json::Value;

/// Timeouts that fit the latencies with the recommended remedy, or without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The timeout of a request: three times the upper end of p99.9, so that it rarely cuts one that would succeed.
    pub request: Duration,
    /// The first backoff: the median latency, the time in which a busy replica serves one request.
    pub backoff: Duration,
    /// The truncation of the backoff: p99.9.
    pub backoff_max: Duration,
}

impl Prediction {
    /// The report as text, at most 80 columns wide.
    #[must_use]
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// The report as one JSON object (`curtail.predict/1`).
    #[must_use]
    pub fn json(&self) -> String {
        self.json_value().to_string()
    }

    /// The same with the [table](Self::table) as its member `text`.
    #[must_use]
    pub fn json_with_text(&self) -> String {
        let mut json = self.json_value();
        json["text"] = self.table().into();
        json.to_string()
    }

    fn json_value(&self) -> Value {
        without_negative_zeros(json::render(self))
    }

    /// The timeouts that fit the latencies; [`None`] if p99.9 is a failed request.
    #[must_use]
    pub fn timeouts(&self) -> Option<Timeouts> {
        let best = self.recommendation.remedy.map_or(&self.modelled, |nth| &self.remedies[nth]);
        let [p50, _, p999] = best.latencies;
        if !p999.value.is_finite() || !p999.band.1.is_finite() {
            return None;
        }
        // Whole milliseconds, upwards: nobody configures nanoseconds.
        let ms = |ns: f64| Duration::from_ns_f64((ns / 1e6).ceil() * 1e6);
        let (request, backoff, backoff_max) =
            (ms(3.0 * p999.band.1), ms(p50.value), ms(p999.value));
        Some(Timeouts { request, backoff, backoff_max })
    }
}

#[cfg(test)]
mod tests;
