//! A scenario: the models and the policies to simulate, and the length of each run.
//!
//! A scenario is written in YAML; [`Described::read`] reports all errors at once. The keys of the policies are those of
//! the proxy's own file, so simulated policies can be copied there. A file with the key `sharding` describes a
//! [`Sharding`] instead of a scenario, and has no other key.
//!
//! **Limits**: [`RUNS_MAX`] models × arms, [`MACHINES_MAX`] machines in a model,
//! [`CALLS_MAX`](curtail_policy::CALLS_MAX) calls of one request, [`REPLICA_VIEWS_MAX`] clients × shards × replicas,
//! [`FAULT_PLACES_MAX`] faults × servers, [`REQUESTS_MAX`] requests and [`YEARS_MAX`] simulated years of a run.

mod arrivals;
mod model;
mod sharding;

use crate::model::Model;
use crate::sharding::Sharding;
use crate::tally::{Precision, Stop};
use curtail_config::{ConfigErrors, Key, Section, ValueFiles};
use curtail_policy::{GatherRule, UpstreamConfig};
use curtail_units::{Duration, Quantile};

#[cfg(test)]
mod tests;

/// Maximum number of runs; more are an oversight.
const RUNS_MAX: usize = 1_000;

/// Maximum number of upstreams (clients × shards), and of servers, of one model; each takes some kilobytes.
const MACHINES_MAX: u64 = 100_000;

/// Maximum number of replica views: one for each replica and client, each some hundred bytes.
const REPLICA_VIEWS_MAX: u64 = 4_000_000;

/// Maximum number of faults times servers.
const FAULT_PLACES_MAX: u64 = 1_000_000;

/// Maximum number of users of a closed loop; each has a request in flight, or an event in the queue.
const USERS_MAX: u32 = 1_000_000;

/// Maximum number of retries of a client.
const CLIENT_RETRIES_MAX: u32 = 100;

/// Maximum number of types of requests; each has latencies of its own, some hundred kilobytes.
const TYPES_MAX: usize = 100;

/// Maximum number of requests of a run: some hours of processor time.
const REQUESTS_MAX: u64 = 10_000_000_000;

/// Maximum simulated time of a run; the clock counts nanoseconds up to 584 years.
const YEARS_MAX: f64 = 100.0;

/// The models and policies that one run of the simulator compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The models; each is simulated with every arm.
    pub variants: Vec<Variant>,
    /// The policies under test.
    pub arms: Vec<Arm>,
    /// Thresholds of latency: the share of requests above each is reported.
    pub above: Vec<Duration>,
    /// The end of each run.
    pub stop: Stop,
}

/// A model and its name; the name may be empty when there is only one.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The name.
    pub name: String,
    /// The model.
    pub model: Model,
}

/// A policy under test.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// The name in reports.
    pub name: String,
    /// The techniques of every upstream.
    pub policy: UpstreamConfig,
    /// The group of each client's shards; absent: each shard has its own budget and latencies.
    pub group: Option<String>,
    /// What a request waits for; absent: all of its calls, and the rest of a failed request runs to its end.
    pub fan_out: Option<GatherRule>,
}

impl Arm {
    /// An arm without a group.
    #[must_use]
    pub fn new(name: impl Into<String>, policy: UpstreamConfig) -> Self {
        Self { name: name.into(), policy, group: None, fan_out: None }
    }
}

/// The content of a file of the simulator.
#[derive(Clone, Debug, PartialEq)]
pub enum Described {
    /// Policies over models of a service.
    Policies(Scenario),
    /// Data on servers.
    Sharding(Sharding),
}

impl Described {
    /// Reads a file. Each of `sets` (`key=value`) replaces the value of a key of `text`; errors name `file`.
    ///
    /// # Errors
    /// All errors of the text and the sets.
    pub fn read(file: &str, text: &str, sets: &[String]) -> Result<Self, ConfigErrors> {
        curtail_config::read_with_sets(file, text, sets, described)
    }

    /// Reads a file as [`read`](Self::read) does; its keys may name `files` of recorded values.
    ///
    /// # Errors
    /// All errors of the text, the sets and the files.
    pub fn read_with_files(
        file: &str,
        text: &str,
        sets: &[String],
        files: &dyn ValueFiles,
    ) -> Result<Self, ConfigErrors> {
        curtail_config::read_with_files(file, text, sets, files, described)
    }

    /// Every key that a file may have.
    #[must_use]
    pub fn keys() -> Vec<Key> {
        curtail_config::describe(|s| {
            scenario(s);
            s.optional_section(sharding::KEY, sharding::DOC, sharding::sharding);
        })
    }

    /// The keys of one section (`arms.hedge`, without the names that users choose), without those of its own sections;
    /// absent: the keys of the top level. Empty when there is no such section.
    #[must_use]
    pub fn keys_of(section: Option<&str>) -> Vec<Key> {
        let section = plain_path(section.unwrap_or_default());
        let mut keys = Self::keys();
        keys.retain(|key| {
            let path = plain_path(&key.path);
            path.rsplit_once('.').map_or("", |(section, _)| section) == section
        });
        keys
    }
}

/// The path of a key without the names and the items of its sections: `arms.<name>.hedge` is `arms.hedge`.
fn plain_path(path: &str) -> String {
    path.replace(".<name>", "").replace("[]", "")
}

impl Scenario {
    /// Reads a scenario. Each of `sets` (`key=value`) replaces the value of a key of `text`; errors name `file`.
    ///
    /// # Errors
    /// All errors of the text and the sets.
    pub fn read(file: &str, text: &str, sets: &[String]) -> Result<Self, ConfigErrors> {
        curtail_config::read_with_sets(file, text, sets, scenario)
    }
}

fn described(s: &mut Section<'_>) -> Described {
    let sharding = s.optional_section(sharding::KEY, sharding::DOC, sharding::sharding);
    sharding.map_or_else(|| Described::Policies(scenario(s)), Described::Sharding)
}

fn scenario(s: &mut Section<'_>) -> Scenario {
    let base = s.section("model", "Model to simulate.", model::base);
    let mut variants = s.map(
        "variants",
        "Further models: each changes some keys of `model`; absent: `model` alone.",
        |name, s| Variant { name: name.to_owned(), model: model::variant(s, &base) },
    );
    if variants.is_empty() {
        variants.push(Variant { name: String::new(), model: base });
    }
    let arms = s.map("arms", "Policies to compare, by name.", |name, s| Arm {
        name: name.to_owned(),
        group: curtail_config::policy::group(s),
        fan_out: s.optional_section("fan_out", FAN_OUT, curtail_config::policy::fan_out),
        policy: curtail_config::policy::upstream(s),
    });
    if arms.is_empty() {
        s.error("arms", "there is nothing to simulate: expected at least one arm");
    }
    if variants.len() * arms.len() > RUNS_MAX {
        s.error("arms", format!("too many runs: expected at most {RUNS_MAX} variants × arms"));
    }
    for Arm { name, fan_out, .. } in &arms {
        let needed = fan_out.and_then(|rule| rule.needed).unwrap_or(1);
        let calls = variants.iter().map(|variant| variant.model.fan_out).min().unwrap_or(1);
        if needed > calls {
            let text = format!("{needed} of {calls} calls: expected at most {calls}");
            s.error(&format!("arms.{name}.fan_out.needed"), text);
        }
        let canaries = fan_out.map_or(0, |rule| rule.canaries);
        if canaries > calls {
            let text = format!("{canaries} of {calls} calls: expected at most {calls}");
            s.error(&format!("arms.{name}.fan_out.canaries"), text);
        }
    }
    let above = s.values("above", "The share of requests above each of these is reported.");
    let stop = stop(s);
    for Variant { model, .. } in &variants {
        check_simulated_time(s, model, stop.requests_max);
    }
    Scenario { variants, arms, above, stop }
}

const FAN_OUT: &str = "What a request waits for, with the keys of the proxy's `fan_out`; absent: all calls, and the other calls of a failed request run to their end.";

fn check_simulated_time(s: &mut Section<'_>, model: &Model, requests: u64) {
    let rate = model.requests_per_second() * model.arrivals.curve.mean_factor();
    let years = requests as f64 / rate / (365.25 * 86_400.0);
    // Arrivals without a rate are reported already.
    if years.is_finite() && years > YEARS_MAX {
        let text = format!("{requests} requests last {years:.0} years at {rate} a second");
        s.error("requests_max", format!("{text}: expected at most {YEARS_MAX} years"));
    }
}

/// The default minimum number of requests of a run, whatever its precision.
const REQUESTS_MIN: u64 = 100_000;

fn stop(s: &mut Section<'_>) -> Stop {
    let precision = s.optional_section(
        "precision",
        "Precision at which a run ends; absent: it ends at requests_max.",
        |s| {
            let quantile: Option<Quantile> = s
                .field("quantile", "Quantile whose interval decides; absent: the mean.")
                .optional();
            if let Some(quantile) = quantile.filter(|q| [0.0, 1.0].contains(&q.get())) {
                let text = format!("{} has no interval", quantile.get());
                s.error("quantile", format!("{text}: expected a quantile above 0 and below 1"));
            }
            let ratio = s
                .field("ratio", "Half of the 95 % interval, relative to the value.")
                .range(0.0001..=1.0)
                .required();
            Precision { quantile, ratio }
        },
    );
    let requests_min = s
        .field(
            "requests_min",
            "Minimum number of requests of a run, whatever its precision (default: 100000, or \
             requests_max if that is less).",
        )
        .optional();
    let requests_max = s
        .field("requests_max", "Maximum number of requests of a run, its warm-up included.")
        .range(1_000..=REQUESTS_MAX)
        .required();
    if let Some(min) = requests_min.filter(|min| *min > requests_max) {
        let text = format!("{min} exceeds requests_max: expected at most {requests_max}");
        s.error("requests_min", text);
    }
    let requests_min = requests_min.unwrap_or(REQUESTS_MIN).min(requests_max);
    Stop { precision, requests_min, requests_max, has_warm_up: true }
}
