//! What a run has found: everything that reports are made of, and that a results file holds.
//!
//! A run measures one or more **arms** (a target in one state: A, B, each rate of a sweep) in **blocks**, stretches of
//! load on one arm. What is compared are blocks; what is shown of an arm are its merged blocks. A percentile is never
//! averaged.

use curtail_load::lag::{self, ExcessiveLag};
use curtail_load::{Latencies, Share, Timeline};
use curtail_units::{Duration, Instant};

/// Everything that one run has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// What was run: the name of a suite, or the target.
    pub name: String,
    /// The command line, to run it again.
    pub command: String,
    /// What everything random followed from.
    pub seed: u64,
    /// When it began, in nanoseconds since 1970 (UTC).
    pub began_unix_ns: u64,
    /// On which machine.
    pub machine: Machine,
    /// The parts of the plan that were sent.
    pub shares: Shares,
    /// Whether it can be believed.
    pub state: State,
    /// The load, in words: rate, spacing, how long.
    pub load: String,
    /// What is compared, in order.
    pub arms: Vec<Arm>,
    /// The groups of requests.
    pub series: Vec<Series>,
    /// In the order in which they were run.
    pub blocks: Vec<Block>,
    /// What servers say of themselves, beside the latencies.
    pub measures: Vec<Measure>,
    /// What was done to the servers, and what happened.
    pub events: Vec<Event>,
}

/// The parts of a plan that generators sent: each sends every `of`th request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The number of parts of the plan.
    pub of: usize,
    /// The parts that were sent, from 0 on, in ascending order.
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
        Self { of, sent: vec![nth] }
    }
}

impl std::fmt::Display for Shares {
    /// As in `--share`: `1/3`, or `1/3 and 2/3`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, nth) in self.sent.iter().enumerate() {
            let and = if place > 0 { " and " } else { "" };
            write!(f, "{and}{}/{}", nth + 1, self.of)?;
        }
        Ok(())
    }
}

/// The machine on which the generator ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The model of the processor.
    pub cpu: String,
    /// How many cores this process could use.
    pub cores: usize,
    /// The operating system and its release.
    pub kernel: String,
}

impl Machine {
    /// The one that this process runs on.
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

/// Whether a run can be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It ran to its end, and the generator kept up.
    Complete,
    /// It ended before its end.
    Partial {
        /// Why, in words.
        why: String,
    },
    /// Its figures say more of the generator than of the server.
    Void {
        /// Why, in words.
        why: String,
    },
}

/// A target in one state.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name in tables.
    pub name: String,
    /// Where its requests go, or what is different about it, in words.
    pub about: String,
    /// The average requests per second of the whole plan; unknown if a request leads to others (journeys).
    pub rate: Option<f64>,
}

/// A kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    /// Which request of the battery.
    pub query: String,
    /// Whose; empty when there are no tenants.
    pub tenant: String,
    /// How large the tenant is, in documents or whatever the suite says; 0 when unknown.
    pub tenant_size: u64,
}

/// A stretch of load on one arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its arm, by its place among the arms.
    pub arm: usize,
    /// When its first request was intended, from the start of the run on.
    pub began: Instant,
    /// From then until its last request was over.
    pub lasted: Duration,
    /// What was seen, for each series in their order.
    pub latencies: Vec<Latencies>,
    /// All series together; its slots count from the start of the block.
    pub timeline: Timeline,
    /// Bytes of responses that were received.
    pub received_bytes: u64,
    /// Connections that were made.
    pub connections: u64,
    /// How often requests were sent again because the server had not processed them.
    pub resent: u64,
    /// Processor time of the generator.
    pub generator_cpu: Duration,
    /// Processor time of the servers that are known, where it was measured.
    pub servers_cpu: Option<Duration>,
    /// Whether it was for warming up only: shown over time, part of no percentile.
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

/// Something that a server says of itself, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Whose it is: the name of a process or a node.
    pub of: String,
    /// What it is, with its unit: [`CPU_RATIO`], [`RESIDENT_BYTES`], [`GC_PAUSE_NS`], or what a suite calls it.
    pub name: String,
    /// When, from the start of the run on, and how much.
    pub points: Vec<(Instant, f64)>,
}

/// Something that was done to a server, or happened to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// From when on, counted from the start of the run.
    pub at: Instant,
    /// How long; zero for a moment.
    pub lasted: Duration,
    /// What, in words: "node 2 paused".
    pub what: String,
}

impl Results {
    /// The blocks that count, in the order in which they were run.
    pub fn measured(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| !block.is_warm_up)
    }

    /// Whether its arms are the same load at several rates.
    #[must_use]
    pub fn is_sweep(&self) -> bool {
        self.arms.len() > 2 && self.arms.iter().all(|arm| arm.rate.is_some())
    }

    /// What was seen of one arm in all its blocks, for each series; warming up left out.
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
