//! The keys of a suite.
//!
//! All errors are found before anything starts, including unknown names of processes and links. Parameters are replaced
//! before the YAML is read. Paths are relative to the folder of the suite.

mod fault;
mod measures;
mod process;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use fault::{FaultAction, FaultConfig};
pub(crate) use measures::{GaugeConfig, MeasuresConfig};
pub(crate) use process::{LinkConfig, ProcessConfig, ReadyConfig, ReadySign, RestartsConfig};
use process::{ScalarText, read_env, read_program};
#[cfg(test)]
pub(crate) use step::BatchFrame;
pub(crate) use step::{CommandConfig, LoadConfig, Source, StepConfig, ValidateConfig};

use curtail_config::{Field, Section};
use curtail_generator::session::{WARM_UP_MAX, WarmUp};
use curtail_generator::target::Protocol;
use curtail_generator::workload::WorkloadConfig;
use curtail_load::Schedule;
use curtail_load::compare::Rule;
use curtail_units::{Duration, Quantile};
use std::path::PathBuf;

/// Maximum number of processes of a suite, and of links. Each process has a log and is checked every 100 ms.
pub(crate) const PROCESSES_MAX: usize = 64;

/// Maximum number of faults of a block.
pub(crate) const FAULTS_MAX: usize = 64;

/// Maximum of all times to wait: a day.
pub(super) const WITHIN_MAX: Duration = Duration::from_secs(86_400);

/// The configuration of a suite.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteConfig {
    pub(crate) name: String,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) setup: Vec<CommandConfig>,
    pub(crate) links: Vec<LinkConfig>,
    pub(crate) processes: Vec<ProcessConfig>,
    pub(crate) prepare: Vec<StepConfig>,
    /// The arms to measure or to compare.
    pub arms: Vec<ArmConfig>,
    pub(crate) workload: WorkloadConfig,
    pub(crate) sending: SendingConfig,
    pub(crate) schedule: Schedule,
    pub(crate) warm_up: WarmUp,
    pub(crate) blocks: usize,
    pub(crate) restarts: Option<RestartsConfig>,
    /// The rule of verdicts.
    pub rule: Rule,
    pub(crate) faults: Vec<FaultConfig>,
    pub(crate) measures: MeasuresConfig,
    pub(crate) validate: Vec<ValidateConfig>,
    pub(crate) teardown: Vec<CommandConfig>,
}

/// The configuration of an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmConfig {
    /// The name in reports.
    pub name: String,
    pub(crate) url: String,
}

/// The configuration of the generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendingConfig {
    pub(crate) protocol: Protocol,
    pub(crate) connections: usize,
    pub(crate) keep_alive: bool,
    pub(crate) timeout: Duration,
    pub(crate) threads: Option<usize>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) insecure: bool,
}

impl SuiteConfig {
    /// Reads the keys.
    pub fn read(s: &mut Section<'_>) -> Self {
        let name: String = s.field("name", "Name of the suite in reports.").required();
        if !is_name(&name) {
            s.error("name", format!("{name:?} is no name: {NAME}"));
        }
        let suite = Self {
            name,
            parameters: read_parameters(s),
            setup: s.list("setup", "Commands to run first, one after another.", |s| {
                CommandConfig::read(s)
            }),
            links: process::read_links(s),
            processes: process::read_processes(s),
            prepare: s.list(
                "prepare",
                "Commands to run and data to load after all processes are ready.",
                StepConfig::read,
            ),
            arms: read_arms(s),
            workload: WorkloadConfig::read(s),
            sending: SendingConfig::read(s),
            schedule: s.section("schedule", "Schedule of requests in each block.", Schedule::read),
            warm_up: s
                .field(
                    "warm_up",
                    "Duration of the warm-up, which no result includes: none, a time, or auto (until latencies are steady).",
                )
                .default(WarmUp::Steady { at_most: WARM_UP_MAX }),
            blocks: s
                .field("blocks", "Number of blocks of each arm; the arms are interleaved.")
                .range(1..=BLOCKS_MAX)
                .default(20),
            restarts: s.optional_section(
                "restarts",
                "Processes to restart between rounds: each start has its own memory layout and compiled code. A warm-up follows each restart.",
                RestartsConfig::read,
            ),
            rule: s.section("verdict", "Level, margin and primary percentile of the verdicts.", read_rule),
            faults: s.list(
                "faults",
                "Faults in each block, the same for all arms.",
                FaultConfig::read,
            ),
            measures: s.section(
                "measures",
                "Measures to record beside latencies. The suite always records CPU time and memory of every process.",
                MeasuresConfig::read,
            ),
            validate: s.list(
                "validate",
                "Conditions that must hold before the first block and after the last block.",
                ValidateConfig::read,
            ),
            teardown: s.list("teardown", "Commands to run last, even after a failure.", |s| {
                CommandConfig::read(s)
            }),
        };
        suite.check(s);
        suite
    }

    /// Checks keys against each other.
    fn check(&self, s: &mut Section<'_>) {
        if !(1..=2).contains(&self.arms.len()) {
            let text = format!("{} of them: expected one, or two to compare", self.arms.len());
            s.error("arms", text);
        }
        s.check_len("processes", self.processes.len(), PROCESSES_MAX);
        s.check_len("links", self.links.len(), PROCESSES_MAX);
        s.check_len("faults", self.faults.len(), FAULTS_MAX);
        for process in self.processes.iter().filter(|process| !is_name(&process.name)) {
            s.error("processes", format!("{:?} is no name: {NAME}", process.name));
        }
        let lasts = self.schedule.lasts();
        for fault in &self.faults {
            if let Some(name) = fault.process() {
                self.check_process(s, "faults", name);
            }
            if let Some(name) = fault.link() {
                let links = self.links.iter().map(|link| &*link.name);
                s.check_known(("faults", "link"), name, links);
            }
            if fault.ends() >= lasts {
                let text = format!(
                    "the fault at {} is over at {}: expected the end before that of a block, \
            {lasts}",
                    fault.at,
                    fault.ends()
                );
                s.error("faults", text);
            }
        }
        for name in self.restarts.iter().flat_map(|restarts| &restarts.processes) {
            self.check_process(s, "restarts", name);
        }
        for (name, _) in &self.measures.gc_logs {
            self.check_process(s, "measures", name);
        }
        for gauge in &self.measures.http {
            self.check_process(s, "measures", &gauge.of);
        }
    }

    fn check_process(&self, s: &mut Section<'_>, key: &str, name: &str) {
        let processes = self.processes.iter().map(|process| &*process.name);
        s.check_known((key, "process"), name, processes);
    }
}

const BLOCKS_MAX: usize = 10_000;

/// Whether a name can be part of a file name.
fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.starts_with(['.', '-']) && name.len() <= 64 && name.chars().all(is_part)
}

const NAME: &str = "expected letters, digits, - _ and .";

fn read_parameters(s: &mut Section<'_>) -> Vec<(String, String)> {
    s.map(
        "parameters",
        "Values of `${name}` in every text below; `--set parameters.name=…` changes one. \
            `${curtail}` is the path of this program, `${dir}` the folder of this run, \
            `${suite}` the folder of this file, `${seed}` the seed.",
        |name, s| {
            (name.to_owned(), s.field::<ScalarText>("value", "The value.").alone().required().0)
        },
    )
}

fn read_arms(s: &mut Section<'_>) -> Vec<ArmConfig> {
    s.map(
        "arms",
        "Arms of the suite: one to measure, or two to compare, the second with the first.",
        |name, s| ArmConfig {
            name: name.to_owned(),
            url: s.field("url", "URL of the arm: http:// or https://.").alone().required(),
        },
    )
}

fn read_rule(s: &mut Section<'_>) -> Rule {
    let default = Rule::default();
    let rule = Rule {
        level: s
            .field("level", "Maximum probability of a false alarm, over all percentiles.")
            .range(1e-6..=0.5)
            .default(default.level),
        margin: s
            .field("margin", "Maximum relative difference that counts as equivalent.")
            .range(1e-4..=1.0)
            .default(default.margin),
        primary: s
            .field("primary", "The most important percentile: its test gets half of `level`.")
            .default(default.primary),
    };
    let known = curtail_load::compare::PERCENTILES.map(|(_, quantile)| quantile);
    if !known.iter().any(|quantile| Quantile::new(*quantile) == Ok(rule.primary)) {
        s.error("primary", format!("expected one of {known:?}"));
    }
    rule
}

/// Begins a key whose value is a time.
fn read_time<'s, 'a>(
    s: &'s mut Section<'a>,
    key: &'static str,
    doc: &'static str,
) -> Field<'s, 'a, Duration> {
    s.field(key, doc).range(Duration::from_ms(1)..=WITHIN_MAX)
}

/// Checks the URL of a request in addition to the load; such a request is in clear text.
fn check_url(s: &mut Section<'_>, key: &str, url: &str) {
    if !curtail_generator::target::parse_url(url).is_ok_and(|(origin, _)| !origin.tls) {
        s.error(
            key,
            format!("{url:?} is no URL that can be asked: expected http://HOST[:PORT]/PATH"),
        );
    }
}

impl SendingConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let words =
            [("http1", Protocol::Http1), ("http2", Protocol::Http2), ("grpc", Protocol::Grpc)];
        Self {
            protocol: s
                .choice(
                    "protocol",
                    "Protocol of the requests. For an https URL, http2 and grpc need a server that accepts HTTP/2 by ALPN.",
                    &words,
                )
                .default(Protocol::Http1),
            connections: s
                .field(
                    "connections",
                    "Maximum number of connections to an arm. A request waits while all of them are in use.",
                )
                .range(1..=60_000)
                .default(128),
            keep_alive: s.field("keep_alive", "Whether connections are reused.").default(true),
            timeout: s
                .field("timeout", "Maximum time of a request, including its wait for a connection.")
                .range(Duration::from_ms(1)..=Duration::from_secs(3_600))
                .default(Duration::from_secs(30)),
            threads: s
                .field(
                    "threads",
                    "Number of sending threads; absent: one for each 20,000 requests a second, at most one a core.",
                )
                .range(1..=64)
                .optional(),
            ca_file: s
                .field(
                    "ca_file",
                    "File of trusted certificates (PEM) for the load, instead of the system's; \
                     `ready`, `prepare`, `measures` and `validate` trust only the system's.",
                )
                .optional(),
            insecure: s
                .field("insecure", "Accept any certificate for the load; for tests only.")
                .default(false),
        }
    }
}
