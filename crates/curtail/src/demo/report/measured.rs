//! A measurement of one or two arms at the same time, as a table.

use crate::demo::cpu::CoresUsed;
use crate::demo::measurement::ArmMeasurement;
use curtail_load::{LatencyKind, lag};
use curtail_report::figures::Figure;
use curtail_text::numbers::{percent_to, rounded_latency};
use curtail_text::{Columns, Left, Right, WIDTH, wrapped};
use curtail_units::{Duration, Quantile};
use serde::Serialize;
use std::fmt::Write as _;

/// The share of the machine's cores above which the queueing of the demo itself adds to every latency.
const BUSY: f64 = 0.7;

/// The number of cores above which other programs delay reads.
const OTHERS_MAX: f64 = 0.25;

/// The arms of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) names: Vec<String>,
    /// In the order of `names`.
    pub(crate) arms: Vec<ArmMeasurement>,
    pub(crate) circumstances: Circumstances,
}

/// The conditions of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// Its duration so far.
    pub(crate) measured: Duration,
    pub(crate) cores_used: CoresUsed,
}

/// The figures of one arm. A percentile is absent with fewer than ten reads beyond it, or if it lies among failures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ArmReport {
    name: String,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    p999_ms: Option<f64>,
    #[serde(skip)]
    figures: [Figure; 4],
    /// The number of executions at the servers, divided by the number of needed ones, less 1; unknown while reads run.
    pub(super) extra_requests_ratio: Option<f64>,
    /// The number of reads.
    requests: u64,
    errors: u64,
}

impl Measured {
    fn all(&self) -> impl Iterator<Item = ArmReport> {
        self.names.iter().zip(&self.arms).map(|(name, arm)| ArmReport::new(name, arm))
    }

    /// The figures of the arms, of which there are `N`.
    pub(super) fn reports<const N: usize>(&self) -> [ArmReport; N] {
        let all: Vec<ArmReport> = self.all().collect();
        all.try_into().expect("each measurement has a fixed number of arms")
    }

    /// Why the figures must not be used; absent if they may.
    pub(super) fn late(&self) -> Option<String> {
        self.names.iter().zip(&self.arms).find_map(|(name, arm)| {
            let late = lag::excessive(&arm.latencies)?;
            Some(format!("{name} reads: {late}"))
        })
    }

    /// A line for each arm, below a line with the names of the columns.
    pub(super) fn table(&self) -> Vec<String> {
        let numbers = [9, 9, 9, 14, 7, 7].map(Right);
        let columns = Columns::new(std::iter::once(Left(16)).chain(numbers));
        let names = ["", "p50", "p95", "p99", "more requests", "reads", "errors"];
        let line = |arm: ArmReport| {
            let counts = [arm.requests, arm.errors].map(|count| count.to_string());
            let extra = arm.extra_percent();
            // A demo has too few reads for a p99.9.
            let [p50, p95, p99, _] = arm.figures.map(shown);
            let figures = [p50, p95, p99, extra].into_iter().chain(counts);
            columns.row(std::iter::once(arm.name).chain(figures))
        };
        std::iter::once(columns.row(names)).chain(self.all().map(line)).collect()
    }

    /// The screen during the measurement of `seconds`.
    pub(crate) fn live(&self, step: &str, seconds: u64, cores: f64) -> Vec<String> {
        let measured = self.circumstances.measured.as_secs_f64();
        let mut lines = vec![String::new(), format!("{step}: {measured:.0} of {seconds} s")];
        lines.extend(self.table());
        lines.extend(self.warnings(cores));
        lines
    }

    /// A line for a log: the p95 of all arms, because at first no arm has ten reads beyond p99.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{:>4.0} s  p95:", self.circumstances.measured.as_secs_f64());
        for arm in self.all() {
            let [_, p95, ..] = arm.figures;
            write!(line, "  {} {}", arm.name, shown(p95))
                .expect("writing to a String does not fail");
        }
        line
    }

    /// Reasons not to trust the figures on a machine of `cores` cores.
    pub(super) fn warnings(&self, cores: f64) -> Vec<String> {
        let CoresUsed { own, others } = self.circumstances.cores_used;
        let mut warnings = Vec::new();
        if let Some(others) = others.filter(|others| *others > OTHERS_MAX) {
            let used = format!("Other programs use {others:.1} of {cores} cores");
            let text = format!("This machine is busy. {used}, and every latency includes that.");
            warnings.extend(wrapped("", &text, WIDTH));
        }
        if own.is_some_and(|used| used > BUSY * cores) {
            warnings.push("The demo keeps this machine busy: try a lower --rate.".to_owned());
        }
        warnings
    }

    /// The cores that the demo used.
    pub(super) fn cpu(&self, cores: f64) -> Option<String> {
        let used = self.circumstances.cores_used.own?;
        Some(format!("CPU: {used:.2} of {cores} cores, everything included."))
    }
}

impl ArmReport {
    fn new(name: &str, measured: &ArmMeasurement) -> Self {
        let ArmMeasurement { latencies, extra_requests_ratio, .. } = measured;
        let p95 = Quantile::new(0.95).expect("a quantile");
        let figures = [Quantile::P50, p95, Quantile::P99, Quantile::P999]
            .map(|quantile| Figure::of(latencies, LatencyKind::Response, quantile));
        let [p50_ms, p95_ms, p99_ms, p999_ms] =
            figures.map(|figure| figure.latency().map(Duration::as_ms_f64));
        Self {
            name: name.to_owned(),
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

    pub(super) fn p99(&self) -> String {
        shown(self.figures[2])
    }

    pub(super) fn extra_percent(&self) -> String {
        self.extra_requests_ratio.map_or_else(|| "n/a".to_owned(), |ratio| percent_to(ratio, 2))
    }
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
