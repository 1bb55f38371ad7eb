//! The results of a run: the content of reports and of a results file.
//!
//! A run measures **arms** (a target in one state: A, B, each rate of a sweep) in **blocks**, stretches of load on one
//! arm. Comparisons use blocks, and tables use the merged blocks of an arm. No percentile is averaged.

use crate::file::wire;
use curtail_load::lag::{self, ExcessiveLag};
use curtail_load::{Latencies, Share, Timeline};
use curtail_units::{Duration, Instant};
use serde::{Deserialize, Deserializer, Serialize};

/// The results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The name of the suite, or the target.
    pub name: String,
    /// The command line, to run it again.
    pub command: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The start, in nanoseconds since 1970 (UTC).
    pub began_unix_ns: u64,
    /// The machine of the generator.
    pub machine: Machine,
    /// The parts of the plan that were sent; a file without them is older, and has all parts.
    #[serde(default = "Shares::all")]
    pub shares: Shares,
    /// Whether the run is valid.
    pub state: State,
    /// The load, in words: rate, spacing, duration.
    pub load: String,
    /// The arms, in order.
    pub arms: Vec<Arm>,
    /// The groups of requests.
    pub series: Vec<Series>,
    /// The blocks, in the order of their start.
    pub blocks: Vec<Block>,
    /// Measures of the servers, beside the latencies.
    pub measures: Vec<Measure>,
    /// Faults and other events.
    pub events: Vec<Event>,
}

/// The parts of a plan that generators sent: each sends every `of`th request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// The number of parts of the plan.
    pub of: usize,
    /// The parts that were sent, from 1 on, in ascending order.
    pub sent: Vec<usize>,
}

impl Shares {
    /// The whole plan, sent by one generator.
    #[must_use]
    pub fn all() -> Self {
        Self::from(Share::ALL)
    }

    /// The fraction of the plan's requests that was sent.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.sent.len() as f64 / self.of.max(1) as f64
    }
}

impl From<Share> for Shares {
    fn from(Share { nth, of }: Share) -> Self {
        Self { of, sent: vec![nth + 1] }
    }
}

impl std::fmt::Display for Shares {
    /// As in `--share`: `1/3`, or `1/3 and 2/3`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, nth) in self.sent.iter().enumerate() {
            let and = if place > 0 { " and " } else { "" };
            write!(f, "{and}{nth}/{}", self.of)?;
        }
        Ok(())
    }
}

/// The machine on which the generator ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The model of the processor.
    pub cpu: String,
    /// The cores that the process could use.
    pub cores: usize,
    /// The operating system and its release.
    pub kernel: String,
}

impl Machine {
    /// The machine of this process.
    #[must_use]
    pub fn this() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            cpu: model.map_or("unknown", |(_, name)| name).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        }
    }
}

/// Whether a run is valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum State {
    /// The run ended as planned, and the generator kept up.
    Complete,
    /// The run was interrupted.
    Partial {
        /// The reason, in words.
        why: String,
    },
    /// The generator was too late, so the figures are not the server's.
    Void {
        /// The reason, in words.
        why: String,
    },
}

/// A target in one state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// The name in tables.
    pub name: String,
    /// The target of the arm, or its difference from the other arm, in words.
    pub about: String,
    /// The average requests per second of the whole plan; unknown if a request leads to others (journeys).
    #[serde(rename = "rate_per_second")]
    pub rate: Option<f64>,
}

/// A kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Series {
    /// The name of the request.
    pub query: String,
    /// The tenant; empty without tenants.
    pub tenant: String,
    /// The size of the tenant, in a unit of the suite; 0 when unknown.
    pub tenant_size: u64,
}

/// A stretch of load on one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The index of its arm.
    pub arm: usize,
    /// The intended time of its first request, from the start of the run on.
    #[serde(rename = "began_ns")]
    pub began: Instant,
    /// The time from `began` to the end of the last request.
    #[serde(rename = "lasted_ns")]
    pub lasted: Duration,
    /// The recordings of each series, in the order of the series.
    #[serde(with = "wire::latencies")]
    pub latencies: Vec<Latencies>,
    /// All series together, from the start of the block on.
    #[serde(with = "wire::timeline")]
    pub timeline: Timeline,
    /// Received bytes of responses.
    pub received_bytes: u64,
    /// Opened connections.
    pub connections: u64,
    /// Resends of requests that the server did not process.
    #[serde(default, skip_serializing_if = "wire::is_zero")]
    pub resent: u64,
    /// CPU time of the generator.
    #[serde(rename = "generator_cpu_ns")]
    pub generator_cpu: Duration,
    /// CPU time of the servers, where it was measured.
    #[serde(rename = "servers_cpu_ns")]
    pub servers_cpu: Option<Duration>,
    /// Whether the block is a warm-up, which is shown over time and is part of no percentile.
    pub is_warm_up: bool,
}

impl Block {
    /// All series together.
    #[must_use]
    pub fn merged(&self) -> Latencies {
        Latencies::merged(&self.latencies)
    }
}

/// The measure of a process: processors in use.
pub const CPU_RATIO: &str = "cpu_ratio";

/// The measure of a process: memory that is resident.
pub const RESIDENT_BYTES: &str = "resident_bytes";

/// The measure of a virtual machine: each pause of its garbage collector.
pub const GC_PAUSE_NS: &str = "gc_pause_ns";

/// A measure of a server over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// The name of the process or node.
    pub of: String,
    /// The name, with its unit: [`CPU_RATIO`], [`RESIDENT_BYTES`], [`GC_PAUSE_NS`], or one of the suite.
    pub name: String,
    /// Values, with their times from the start of the run on.
    #[serde(deserialize_with = "null_as_nan")]
    pub points: Vec<(Instant, f64)>,
}

/// JSON has no NaN, so NaN is written as `null`.
fn null_as_nan<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<(Instant, f64)>, D::Error> {
    let points = Vec::<(Instant, Option<f64>)>::deserialize(from)?;
    Ok(points.into_iter().map(|(at, value)| (at, value.unwrap_or(f64::NAN))).collect())
}

/// A fault, or another event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The start of the event, from the start of the run on.
    #[serde(rename = "at_ns")]
    pub at: Instant,
    /// The duration of the event; zero for an instant.
    #[serde(rename = "lasted_ns")]
    pub lasted: Duration,
    /// The description of the event: "node 2 paused".
    pub what: String,
}

impl Results {
    /// The blocks without warm-ups, in their order.
    pub fn measured(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| !block.is_warm_up)
    }

    /// Whether the arms are the same load at several rates.
    #[must_use]
    pub fn is_sweep(&self) -> bool {
        self.arms.len() > 2 && self.arms.iter().all(|arm| arm.rate.is_some())
    }

    /// The recordings of one arm in all its blocks, without warm-ups, for each series.
    #[must_use]
    pub fn of_arm(&self, arm: usize) -> Vec<Latencies> {
        let mut merged = vec![Latencies::new(); self.series.len()];
        for block in self.measured().filter(|block| block.arm == arm) {
            for (all, more) in merged.iter_mut().zip(&block.latencies) {
                all.merge(more);
            }
        }
        merged
    }

    /// The lowest reported quantile at which the generator was too late in any arm, if there is one.
    #[must_use]
    pub fn excessive_lag(&self) -> Option<ExcessiveLag> {
        let of_arm = |arm| lag::excessive(&Latencies::merged(&self.of_arm(arm)));
        let late = (0..self.arms.len()).filter_map(of_arm);
        late.min_by(|one, other| one.quantile.get().total_cmp(&other.quantile.get()))
    }
}
