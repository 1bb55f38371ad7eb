//! The report: what each step of the loop found, as lines for people and as JSON.
//!
//! **Decides** which statements the measurements support. [`curtail_report::figures`] decides which percentiles
//! are given, [`curtail_load::lag`] whether the generator kept up, and [`curtail_load::compare`] how the two arms differ.
//! The explanation and the prediction are those of the server; the conclusion states only results of all these.
//! Every line has at most [`WIDTH`] columns.

mod measured;

pub(crate) use measured::{Circumstances, Measured};

use super::proxies::Arm;
use curtail_load::LatencyKind;
use curtail_load::compare::{self, Rule};
use curtail_predict::{PredictedEffect, ScoreVerdict};
use curtail_text::numbers::{percent_to, rounded_latency};
use curtail_text::{Columns, Left, Right, WIDTH, wrapped};
use curtail_units::{Duration, Quantile};
use serde::Serialize;
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// The relative error of a ratio of two latencies from coarse histograms. A smaller difference counts as no difference.
const RESOLUTION: f64 = 0.008;

/// The findings that the demo prints.
const FINDINGS_SHOWN: usize = 3;

/// The result of each step so far.
#[derive(Debug)]
pub(crate) struct Report {
    seed: u64,
    /// Reads a second through each proxy.
    reads_per_second: f64,
    /// The arm without a remedy, alone.
    measured: Measured,
    /// The response of `/api/v1/explain`, or why there is none.
    pub(crate) explained: Result<Value, String>,
    /// The response of `/api/v1/predict`, or why there is none.
    pub(crate) predicted: Result<Value, String>,
    /// The arm without a remedy and the one with it, at the same time.
    verified: Option<Measured>,
}

/// The factor of a reduction of p99 with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct P99Reduction {
    factor: f64,
    interval_low: f64,
    /// Absent when the reads do not bound the factor.
    interval_high: Option<f64>,
    confidence: f64,
}

/// A prediction beside its measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Score {
    remedy: String,
    predicted_p99_ms: f64,
    predicted_p99_band_ms: [f64; 2],
    measured_p99_ms: f64,
    is_within_band: bool,
    predicted_extra_requests_ratio: f64,
    measured_extra_requests_ratio: f64,
}

impl Report {
    pub(crate) fn new(seed: u64, reads_per_second: f64, measured: Measured) -> Self {
        let none = || Err("interrupted".to_owned());
        let (explained, predicted) = (none(), none());
        Self { seed, reads_per_second, measured, explained, predicted, verified: None }
    }

    /// Adds the measurement of both arms.
    pub(crate) fn verify(&mut self, verified: Measured) {
        self.verified = Some(verified);
    }

    /// The arm with the recommended remedy, if one is recommended.
    pub(crate) fn recommended(&self) -> Option<Arm> {
        let remedy = self.recommended_remedy()?;
        Some(Arm::recommended(remedy["name"].as_str()?, remedy["config"].as_str()?))
    }

    fn recommended_remedy(&self) -> Option<&Value> {
        let predicted = self.predicted.as_ref().ok()?;
        let name = predicted["recommended"].as_str()?;
        predicted["remedies"].as_array()?.iter().find(|remedy| remedy["name"] == name)
    }

    /// Whether the figures must not be used.
    pub(crate) fn is_void(&self) -> bool {
        self.void().is_some()
    }

    fn void(&self) -> Option<String> {
        self.measured.late().or_else(|| self.verified.as_ref()?.late())
    }

    pub(crate) fn measure_step(&self) -> Vec<String> {
        let seconds = self.measured.circumstances.measured.as_secs_f64();
        let rate = self.reads_per_second;
        let title =
            format!("1 MEASURE  {rate} reads a second for {seconds:.0} s, without a remedy");
        let mut lines = vec![String::new(), title];
        lines.extend(self.measured.table());
        lines.push(Self::marks());
        lines
    }

    pub(crate) fn explain_step(&self, server: &str) -> Vec<String> {
        let command = "curtail explain --service direct";
        let mut lines = step(&format!("2 EXPLAIN  {command}"), server);
        let explained = match &self.explained {
            Ok(explained) => explained,
            Err(why) => {
                lines.extend(wrapped("  ", &format!("Not explained: {why}."), WIDTH));
                return lines;
            }
        };
        let findings = explained["findings"].as_array().map_or(&[][..], Vec::as_slice);
        for finding in findings.iter().take(FINDINGS_SHOWN) {
            let text = finding["text"].as_str().unwrap_or_default();
            let interval = &finding["interval"];
            let bounds = [&interval[0], &interval[1]]
                .map(|bound| percent_to(bound.as_f64().unwrap_or(f64::NAN), 0));
            let text = format!("{text} ({} to {})", bounds[0], bounds[1]);
            lines.extend(wrapped("  ", &format!("- {text}"), WIDTH));
        }
        if findings.len() > FINDINGS_SHOWN {
            lines.push(format!("  - and {} more", findings.len() - FINDINGS_SHOWN));
        }
        let why = explained["why"].as_str().filter(|_| findings.is_empty());
        lines.extend(why.map(|why| format!("  {why}")));
        if let Some(rest) = explained["unexplained_ratio"].as_f64().filter(|_| why.is_none()) {
            lines.push(format!("  unexplained: {} of the slow reads", percent_to(rest, 0)));
        }
        lines
    }

    pub(crate) fn predict_step(&self, server: &str) -> Vec<String> {
        let mut lines = step("3 PREDICT  curtail predict --service direct", server);
        let predicted = match &self.predicted {
            Ok(predicted) => predicted,
            Err(why) => {
                lines.extend(wrapped("  ", &format!("Not predicted: {why}."), WIDTH));
                return lines;
            }
        };
        let numbers = [9, 9, 22, 14].map(Right);
        let columns = Columns::new(std::iter::once(Left(22)).chain(numbers));
        lines.push(columns.row(["", "p50", "p99", "95 % band", "more requests"]));
        let row = |name: &str, of: &Value| {
            let band = &of["p99_band_ms"];
            let bounds = band[0].as_f64().zip(band[1].as_f64());
            let text = |(low, high)| format!("{} to {}", milliseconds(low), milliseconds(high));
            let figures = ["p50_ms", "p99_ms"].map(|key| of[key].as_f64().map(milliseconds));
            let [p50, p99] = figures.map(|figure| figure.unwrap_or_else(|| "failed".to_owned()));
            let extra = of["extra_requests_ratio"].as_f64().map(|ratio| percent_to(ratio, 2));
            let band = bounds.map(text).unwrap_or_default();
            columns.row([name.to_owned(), p50, p99, band, extra.unwrap_or_default()])
        };
        lines.push(row("measured", &predicted["measured"]));
        lines.push(row("modelled", &predicted["modelled"]));
        for remedy in predicted["remedies"].as_array().map_or(&[][..], Vec::as_slice) {
            lines.push(row(remedy["name"].as_str().unwrap_or_default(), remedy));
        }
        let why = predicted["why"].as_str().unwrap_or_default();
        let nothing = if predicted["recommended"].is_null() { "nothing: " } else { "" };
        lines.extend(wrapped("", &format!("Recommended: {nothing}{why}."), WIDTH));
        lines
    }

    pub(crate) fn cut_step(&self, arm: &Arm) -> Vec<String> {
        let title = match self.recommended_remedy() {
            Some(_) => "4 CUT  a second proxy, with the recommended keys for each shard".to_owned(),
            None => format!("4 CUT  a second proxy, with the {} of Curtail", arm.name),
        };
        // A wrapped line is still YAML.
        let keys = arm.keys.lines().flat_map(|line| wrapped("  ", line, WIDTH));
        [String::new(), title].into_iter().chain(keys).collect()
    }

    pub(crate) fn verify_step(&self, cores: f64) -> Vec<String> {
        let Some(verified) = &self.verified else { return Vec::new() };
        let title = "5 VERIFY  reads through both proxies at the same time".to_owned();
        let mut lines = vec![String::new(), title];
        lines.extend(verified.table());
        lines.push(Self::marks());
        lines.extend(self.conclusion(verified));
        lines.push(String::new());
        lines.extend(self.scorecard());
        lines.extend(verified.warnings(cores));
        lines.extend(verified.cpu(cores));
        lines
    }

    /// The effect of the remedy on p99, if the reads show one.
    fn conclusion(&self, verified: &Measured) -> Vec<String> {
        if let Some(why) = self.void() {
            return wrapped("", &format!("VOID, DO NOT USE: {why}."), WIDTH);
        }
        let name = &verified.names[1];
        let Some(cut) = compare_p99(verified) else {
            let text = "Too few reads for a p99 of both arms: each needs 1,000, and fewer errors.";
            return vec![text.to_owned()];
        };
        let reports: [_; 2] = verified.reports();
        let extra = reports[1].extra_percent();
        let [before, after] = reports.map(|arm| arm.p99());
        wrapped("", &effect((name, &extra), [&before, &after], &cut), WIDTH)
    }

    /// The prediction of the recommended remedy beside its measurement.
    fn scorecard(&self) -> Vec<String> {
        let Some(score) = self.score().filter(|_| !self.is_void()) else {
            let text =
                "SCORECARD  no prediction of a p99 to compare with a measured one".to_owned();
            return vec![text];
        };
        let [low, high] = score.predicted_p99_band_ms.map(milliseconds);
        let verdict =
            if score.is_within_band { ScoreVerdict::WithinBand } else { ScoreVerdict::MissedBand };
        let extra = [score.predicted_extra_requests_ratio, score.measured_extra_requests_ratio]
            .map(|ratio| percent_to(ratio, 2));
        let text = format!(
            "SCORECARD  {}: p99 predicted {} ({low} to {high}), measured {}: {}; more requests predicted {}, \
             measured {}",
            score.remedy,
            milliseconds(score.predicted_p99_ms),
            milliseconds(score.measured_p99_ms),
            verdict.text(),
            extra[0],
            extra[1],
        );
        wrapped("", &text, WIDTH)
    }

    fn score(&self) -> Option<Score> {
        let (remedy, [_, measured]) =
            (self.recommended_remedy()?, self.verified.as_ref()?.reports());
        let predicted = PredictedEffect::of(remedy, 0)?;
        let measured_p99_ms = measured.p99_ms?;
        let verdict = ScoreVerdict::on(
            predicted.p99_band_ms,
            Some(measured_p99_ms),
            (measured_p99_ms, Some(measured_p99_ms)),
        );
        Some(Score {
            remedy: remedy["name"].as_str()?.to_owned(),
            predicted_p99_ms: predicted.p99_ms,
            predicted_p99_band_ms: predicted.p99_band_ms,
            measured_p99_ms,
            is_within_band: verdict == ScoreVerdict::WithinBand,
            // Executions, as measured.
            predicted_extra_requests_ratio: remedy["extra_requests_ratio"].as_f64()?,
            measured_extra_requests_ratio: measured.extra_requests_ratio?,
        })
    }

    /// The report for programs: one object.
    pub(crate) fn json(&self) -> Value {
        let step = |step: &Result<Value, String>| match step {
            Ok(value) => value.clone(),
            Err(why) => json!({ "error": why }),
        };
        let verified = self.verified.as_ref();
        let last = verified.unwrap_or(&self.measured).circumstances;
        json!({
            "schema": "curtail.demo/3",
            "seed": self.seed,
            "reads_per_second": self.reads_per_second,
            "seconds": last.measured.as_secs_f64(),
            "measure": self.measured.reports::<1>()[0],
            "explain": step(&self.explained),
            "predict": step(&self.predicted),
            "arms": verified.map(|verified| verified.reports::<2>()),
            "verify": verified.and_then(compare_p99),
            "scorecard": self.score(),
            "void": self.void(),
            "cpu_cores": last.cores_used.own,
            "other_cpu_cores": last.cores_used.others,
        })
    }

    /// The legend of the table's marks.
    fn marks() -> String {
        "~ fewer than 100 reads are longer; n/a fewer than 10 are.".to_owned()
    }
}

/// The head of a step that is a command, which needs `--server`.
fn step(title: &str, server: &str) -> Vec<String> {
    vec![String::new(), format!("{title} --server {server}")]
}

fn milliseconds(ms: f64) -> String {
    rounded_latency(Duration::from_ns_f64(ms * 1e6))
}

/// Compares the p99 of the arm without a remedy with that of the arm with one, block by block.
fn compare_p99(verified: &Measured) -> Option<P99Reduction> {
    let [direct, remedied] = verified.arms.as_slice() else { return None };
    let (direct, remedied) = (&*direct.blocks, &*remedied.blocks);
    let compared = compare::percentiles(remedied, direct, LatencyKind::Response, &Rule::default());
    let p99 = compared.iter().find(|found| found.quantile == Quantile::P99)?;
    let compare::Difference { ratio, interval: (low, high), confidence, .. } = p99.difference?;
    ratio.is_finite().then_some(P99Reduction {
        factor: ratio,
        interval_low: low,
        interval_high: Some(high).filter(|bound| bound.is_finite()),
        confidence,
    })
}

/// The effect of a remedy with its name and its share of extra requests, in a sentence.
fn effect((name, extra): (&str, &str), [before, after]: [&str; 2], cut: &P99Reduction) -> String {
    let percent = percent_to(cut.confidence, 0);
    let low = times(cut.interval_low);
    let interval = match cut.interval_high {
        Some(high) => format!("{percent} interval: {low} to {}", times(high)),
        None => format!("{percent} interval: {low} or more"),
    };
    let extra = format!("{extra} more requests");
    if cut.interval_low > 1.0 + RESOLUTION {
        let factor = times(cut.factor);
        format!("{name} cut p99 {factor} times ({interval}), for {extra}: {before} to {after}.")
    } else if cut.interval_high.is_some_and(|high| high < 1.0 - RESOLUTION) {
        format!("{name} increased p99: {before} to {after}, for {extra} (factor {interval}).")
    } else {
        format!(
            "No difference in p99 is shown: {before} direct, {after} {name}, for {extra} (direct over {name}, \
             {interval})."
        )
    }
}

/// Formats a factor with its reliable digits: one latency is exact to 0.4 %, and a ratio of two to [`RESOLUTION`].
fn times(factor: f64) -> String {
    match factor {
        0.0..1.245 => format!("{factor:.2}"),
        0.0..9.95 => format!("{factor:.1}"),
        0.0..124.5 => format!("{factor:.0}"),
        _ => format!("{:.0}", 10.0 * (factor / 10.0).round()),
    }
}
