//! The report: the figures of all arms, as a table and as JSON.
//!
//! **Decides** which statements the measurements support. [`curtail_report::figures`] decides which percentiles
//! are given, [`curtail_load::lag`] whether the generator kept up, and [`curtail_load::compare`] how
//! direct and hedged reads differ. The conclusion states only the results of these three modules.
//! Every line has at most [`WIDTH`] columns.

use super::arm::Arm;
use super::cpu::CoresUsed;
use super::measurement::ArmMeasurement;
use curtail_load::LatencyKind;
use curtail_load::compare::{self, Difference, Rule};
use curtail_load::lag;
use curtail_report::figures::Figure;
use curtail_text::numbers::{percent_to, rounded_latency};
use curtail_text::{Columns, Left, Right, WIDTH, wrapped};
use curtail_units::{Duration, Quantile};
use serde::Serialize;
use std::fmt::Write as _;

#[cfg(test)]
mod tests;

/// The share of the machine's cores above which the queueing of the demo itself adds to every latency.
const BUSY: f64 = 0.7;

/// The relative error of a ratio of two latencies from coarse histograms. A smaller difference counts as no difference.
const RESOLUTION: f64 = 0.008;

/// The number of cores above which other programs delay reads.
const OTHERS_MAX: f64 = 0.25;

/// The figures of all arms at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema: &'static str,
    seed: u64,
    /// The rate of direct reads, and also of hedged reads.
    reads_per_second: f64,
    /// The measured time.
    seconds: f64,
    arms: Vec<ArmReport>,
    /// The p99 of direct reads divided by the p99 of hedged reads; absent with too few reads.
    hedged_p99: Option<P99Reduction>,
    /// The reason why the figures must not be used; absent if they may.
    void: Option<String>,
    /// Average cores used by the demo.
    cpu_cores: Option<f64>,
    /// Average cores used by other programs.
    other_cpu_cores: Option<f64>,
}

/// The figures of one arm. A percentile is absent with fewer than ten reads beyond it, or if it lies among failures.
#[derive(Debug, Serialize)]
struct ArmReport {
    name: &'static str,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    p999_ms: Option<f64>,
    #[serde(skip)]
    figures: [Figure; 4],
    /// The number of executions at the servers, divided by the number of needed ones, less 1; unknown while reads run.
    extra_requests_ratio: Option<f64>,
    /// The number of reads.
    requests: u64,
    errors: u64,
}

/// The factor of a reduction with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct P99Reduction {
    factor: f64,
    interval_low: f64,
    /// Absent when the reads do not bound the factor.
    interval_high: Option<f64>,
    confidence: f64,
}

/// The conditions of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    pub(crate) seed: u64,
    /// The rate of direct reads a second, and also of hedged reads.
    pub(crate) rate: f64,
    pub(crate) measured: Duration,
    pub(crate) cores_used: CoresUsed,
}

impl Report {
    /// The figures of the arms, in the order of [`Arm::ALL`].
    pub(crate) fn new(measurements: &[ArmMeasurement], of: Circumstances) -> Self {
        let arms = || Arm::ALL.into_iter().zip(measurements);
        let late = |(arm, measured): (Arm, &ArmMeasurement)| {
            let late = lag::excessive(&measured.latencies)?;
            Some(format!("{} reads: {late}", arm.name()))
        };
        Self {
            schema: "curtail.demo/2",
            seed: of.seed,
            reads_per_second: of.rate,
            seconds: of.measured.as_secs_f64(),
            arms: arms().map(|(arm, measured)| ArmReport::new(arm.name(), measured)).collect(),
            hedged_p99: compare_p99(measurements),
            void: arms().find_map(late),
            cpu_cores: of.cores_used.own,
            other_cpu_cores: of.cores_used.others,
        }
    }

    /// Whether the figures must not be used.
    pub(crate) const fn is_void(&self) -> bool {
        self.void.is_some()
    }

    /// Renders a line for each arm, below a line with the names of the columns.
    pub(crate) fn table(&self) -> Vec<String> {
        let numbers = [9, 9, 9, 9, 14, 7, 7].map(Right);
        let columns = Columns::new(std::iter::once(Left(8)).chain(numbers));
        let names = ["", "p50", "p95", "p99", "p99.9", "more requests", "reads", "errors"];
        let line = |arm: &ArmReport| {
            let counts = [arm.requests, arm.errors].map(|count| count.to_string());
            let extra = arm.extra_percent();
            let figures = arm.figures.map(shown).into_iter().chain([extra]).chain(counts);
            columns.row(std::iter::once(arm.name.to_owned()).chain(figures))
        };
        std::iter::once(columns.row(names)).chain(self.arms.iter().map(line)).collect()
    }

    /// Renders the measured time so far and its end, `seconds`.
    pub(crate) fn progress(&self, seconds: u64) -> String {
        format!("{:.0} of {seconds} s", self.seconds)
    }

    /// Renders a line for a log: the p95 of all arms, because in the first minute no arm has ten reads beyond p99.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{:>4.0} s  p95:", self.seconds);
        for arm in &self.arms {
            let [_, p95, ..] = arm.figures;
            write!(line, "  {} {}", arm.name, shown(p95))
                .expect("writing to a String does not fail");
        }
        line
    }

    /// The effect of hedging on p99, if the reads show one.
    pub(crate) fn conclusion(&self) -> Vec<String> {
        if let Some(why) = &self.void {
            return wrapped("", &format!("VOID, DO NOT USE: {why}."), WIDTH);
        }
        let [direct, hedged] = [Arm::Direct, Arm::Hedged].map(|arm| &self.arms[arm.index()]);
        let Some(cut) = self.hedged_p99 else {
            let text = "Too few reads for a p99 of both arms: each needs 1,000, and fewer errors.";
            return vec![text.to_owned()];
        };
        let [.., before, _] = direct.figures.map(shown);
        let [.., after, _] = hedged.figures.map(shown);
        let percent = percent_to(cut.confidence, 0);
        let low = times(cut.interval_low);
        let interval = match cut.interval_high {
            Some(high) => format!("{percent} interval: {low} to {}", times(high)),
            None => format!("{percent} interval: {low} or more"),
        };
        let extra = format!("{} more requests", hedged.extra_percent());
        let text = if cut.interval_low > 1.0 + RESOLUTION {
            let factor = times(cut.factor);
            format!(
                "Hedging cut p99 {factor} times ({interval}), for {extra}: {before} to {after}."
            )
        } else if cut.interval_high.is_some_and(|high| high < 1.0 - RESOLUTION) {
            format!("Hedging increased p99: {before} to {after}, for {extra} (factor {interval}).")
        } else {
            format!(
                "No difference in p99 is shown: {before} direct, {after} hedged, for {extra} \
                 (direct over hedged, {interval})."
            )
        };
        wrapped("", &text, WIDTH)
    }

    /// Returns reasons not to trust the figures on a machine of `cores` cores.
    pub(crate) fn warnings(&self, cores: f64) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(others) = self.other_cpu_cores.filter(|others| *others > OTHERS_MAX) {
            let used = format!("Other programs use {others:.1} of {cores} cores");
            let text = format!("This machine is busy. {used}, and every latency includes that.");
            warnings.extend(wrapped("", &text, WIDTH));
        }
        if self.cpu_cores.is_some_and(|used| used > BUSY * cores) {
            warnings.push("The demo keeps this machine busy: try a lower --rate.".to_owned());
        }
        warnings
    }

    /// The legend of the table's marks.
    pub(crate) fn marks() -> String {
        "~ fewer than 100 reads are longer; n/a fewer than 10 are.".to_owned()
    }

    /// The cores that the demo used.
    pub(crate) fn cpu(&self, cores: f64) -> Option<String> {
        self.cpu_cores.map(|used| format!("CPU: {used:.2} of {cores} cores, everything included."))
    }
}

impl ArmReport {
    fn new(name: &'static str, measured: &ArmMeasurement) -> Self {
        let ArmMeasurement { latencies, extra_requests_ratio, .. } = measured;
        let p95 = Quantile::new(0.95).expect("a quantile");
        let figures = [Quantile::P50, p95, Quantile::P99, Quantile::P999]
            .map(|quantile| Figure::of(latencies, LatencyKind::Response, quantile));
        let [p50_ms, p95_ms, p99_ms, p999_ms] =
            figures.map(|figure| figure.latency().map(Duration::as_ms_f64));
        Self {
            name,
            p50_ms,
            p95_ms,
            p99_ms,
            p999_ms,
            figures,
            extra_requests_ratio: *extra_requests_ratio,
            requests: latencies.count(),
            errors: latencies.failures.total(),
        }
    }

    fn extra_percent(&self) -> String {
        self.extra_requests_ratio.map_or_else(|| "n/a".to_owned(), |ratio| percent_to(ratio, 2))
    }
}

/// Compares the p99 of direct reads with the p99 of hedged reads, block by block.
fn compare_p99(measurements: &[ArmMeasurement]) -> Option<P99Reduction> {
    let blocks = |arm: Arm| &*measurements[arm.index()].blocks;
    let (hedged, direct) = (blocks(Arm::Hedged), blocks(Arm::Direct));
    let compared = compare::percentiles(hedged, direct, LatencyKind::Response, &Rule::default());
    let p99 = compared.iter().find(|found| found.quantile == Quantile::P99)?;
    let Difference { ratio, interval: (low, high), confidence, .. } = p99.difference?;
    ratio.is_finite().then_some(P99Reduction {
        factor: ratio,
        interval_low: low,
        interval_high: Some(high).filter(|bound| bound.is_finite()),
        confidence,
    })
}

/// A figure of the table with its mark.
fn shown(figure: Figure) -> String {
    match figure {
        Figure::Value(latency) => rounded_latency(latency),
        Figure::Indicative(latency) => format!("~{}", rounded_latency(latency)),
        Figure::Failed => "failed".to_owned(),
        Figure::TooFew => "n/a".to_owned(),
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
