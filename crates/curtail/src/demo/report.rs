//! The report: the figures of all arms, for people in a table and for programs in JSON.
//!
//! Every line has at most 80 columns.

use super::arm::Arm;
use super::tally::Tallies;
use curtail_units::{Duration, Quantile};
use serde::Serialize;
use std::fmt::Write as _;

#[cfg(test)]
mod tests;

/// Beyond this share of its cores a machine adds queueing of its own to everything.
const BUSY: f64 = 0.7;

/// The figures of all arms at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema: &'static str,
    seed: u64,
    /// Of the direct and of the hedged arm, each.
    reads_per_second: f64,
    /// Measured, in seconds.
    seconds: f64,
    arms: Vec<ArmReport>,
    /// How late the client was with one read in a thousand, in milliseconds; part of all latencies.
    client_lag_p999_ms: Option<f64>,
    /// Cores that everything together used.
    cpu_cores: Option<f64>,
}

/// The figures of one arm.
#[derive(Debug, Serialize)]
struct ArmReport {
    name: &'static str,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    p999_ms: Option<f64>,
    /// Executions that the servers began, for each request to a shard that the client sent, less one.
    extra_requests_ratio: f64,
    /// Reads.
    requests: u64,
    errors: u64,
}

/// What the reads were done with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    pub(crate) seed: u64,
    /// Direct reads a second, and as many hedged ones.
    pub(crate) rate: f64,
    pub(crate) measured: Duration,
    pub(crate) cpu_cores: Option<f64>,
}

impl Report {
    /// The figures of `tallies`; `executions` tells how many the servers have begun for an arm.
    pub(crate) fn new(
        tallies: &Tallies,
        executions: impl Fn(Arm) -> u64,
        of: Circumstances,
    ) -> Self {
        let arm = |arm: Arm| {
            let tally = tallies.of(arm);
            let ms = |q| tally.quantile(q).map(Duration::as_ms_f64);
            ArmReport {
                name: arm.name(),
                p50_ms: ms(Quantile::P50),
                p95_ms: ms(Quantile::new(0.95).expect("a quantile")),
                p99_ms: ms(Quantile::P99),
                p999_ms: ms(Quantile::P999),
                extra_requests_ratio: extra_ratio(executions(arm), tally.sent),
                requests: tally.reads(),
                errors: tally.errors,
            }
        };
        Self {
            schema: "curtail.demo/1",
            seed: of.seed,
            reads_per_second: of.rate,
            seconds: of.measured.as_secs_f64(),
            arms: Arm::ALL.map(arm).into(),
            client_lag_p999_ms: tallies.lag(Quantile::P999).map(Duration::as_ms_f64),
            cpu_cores: of.cpu_cores,
        }
    }

    /// A line for each arm, under a line that names the columns.
    pub(crate) fn table(&self) -> Vec<String> {
        let header = format!(
            "{:<8}{:>10}{:>10}{:>10}{:>10}{:>15}{:>8}{:>8}",
            "", "p50", "p95", "p99", "p99.9", "more requests", "reads", "errors"
        );
        let line = |arm: &ArmReport| {
            let [p50, p95, p99, p999] =
                [arm.p50_ms, arm.p95_ms, arm.p99_ms, arm.p999_ms].map(shown_ms);
            let extra = format!("{:.2} %", arm.extra_requests_ratio * 100.0);
            format!(
                "{:<8}{p50:>10}{p95:>10}{p99:>10}{p999:>10}{extra:>15}{:>8}{:>8}",
                arm.name, arm.requests, arm.errors
            )
        };
        std::iter::once(header).chain(self.arms.iter().map(line)).collect()
    }

    /// One line for a log: the p99.9 of all arms.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{:>4.0} s  p99.9:", self.seconds);
        for arm in &self.arms {
            write!(line, "  {} {}", arm.name, shown_ms(arm.p999_ms).trim())
                .expect("a String takes everything");
        }
        line
    }

    /// What hedging did, in one line, if there is something to compare.
    pub(crate) fn verdict(&self) -> Option<String> {
        let [direct, hedged] = [Arm::Direct, Arm::Hedged].map(|arm| &self.arms[arm.index()]);
        let (before, after) = (direct.p999_ms?, hedged.p999_ms?);
        let [shown_before, shown_after] = [before, after].map(|ms| shown_ms(Some(ms)));
        let extra = hedged.extra_requests_ratio * 100.0;
        // Below that, the difference between two longest reads may be chance.
        let factor = before / after;
        let share = if factor >= 2.0 { format!(" (1/{factor:.0})") } else { String::new() };
        Some(format!(
            "Hedging: p99.9 from {shown_before} to {shown_after}{share}, for {extra:.2} % more requests."
        ))
    }

    /// Reasons not to trust the figures on a machine of `cores` cores.
    pub(crate) fn doubts(&self, cores: f64) -> Vec<String> {
        let mut doubts = Vec::new();
        let fastest = self.arms.iter().filter_map(|arm| arm.p50_ms).fold(f64::INFINITY, f64::min);
        if self.client_lag_p999_ms.is_some_and(|lag| lag > fastest) {
            doubts.push(
                "The client itself was late: this machine is busy with other things.".to_owned(),
            );
        }
        if self.cpu_cores.is_some_and(|used| used > BUSY * cores) {
            doubts.push("The demo kept this machine busy: try a lower --rate.".to_owned());
        }
        let few: Vec<&str> =
            self.arms.iter().filter(|arm| arm.requests < 1_000).map(|arm| arm.name).collect();
        if !few.is_empty() {
            let few = few.join(", ");
            doubts.push(format!("Under 1,000 reads, p99.9 is the longest read: {few}."));
        }
        doubts
    }

    /// How busy the demo kept the machine.
    pub(crate) fn cpu(&self, cores: f64) -> Option<String> {
        self.cpu_cores.map(|used| format!("CPU: {used:.2} of {cores} cores, everything included."))
    }
}

fn extra_ratio(executions: u64, sent: u64) -> f64 {
    // Reads under way have been sent and may not have begun anywhere: that is no saving.
    if sent == 0 { 0.0 } else { (executions as f64 / sent as f64 - 1.0).max(0.0) }
}

/// Milliseconds to a tenth, from 100 on to a whole one, from 1,000 on with the thousands apart.
fn shown_ms(ms: Option<f64>) -> String {
    match ms {
        None => "-".to_owned(),
        Some(ms) if ms < 99.95 => format!("{ms:.1} ms"),
        Some(ms) if ms < 999.5 => format!("{ms:.0} ms"),
        Some(ms) => {
            let whole = ms.round();
            format!("{:.0},{:03.0} ms", (whole / 1_000.0).floor(), whole % 1_000.0)
        }
    }
}
