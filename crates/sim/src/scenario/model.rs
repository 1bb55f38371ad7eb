//! The keys of a model. Every key is read in one place, for the base and for its variants. In a variant, the default of
//! each key is the value of the base.

use super::{FAULT_PLACES_MAX, MACHINES_MAX, REPLICA_VIEWS_MAX, arrivals};
use crate::connections::ConnectionModel;
use crate::model::{Cancelled, Model};
use curtail_config::{Section, policy};
use curtail_model::arrivals::RATES;
use curtail_model::{Cores, Distribution, Fault, ServerFactors};
use curtail_policy::{CALLS_MAX, REPLICAS_MAX};
use curtail_units::Duration;

/// The model that variants differ from.
pub(super) fn base(s: &mut Section<'_>) -> Model {
    let defaults = Model::queue(1, 0.5, Distribution::ZERO);
    let service = s.section("service", SERVICE, Distribution::read);
    let (arrivals, timeline) = s.section("arrivals", ARRIVALS, |s| arrivals::read(s, None));
    model(s, Model { service, arrivals, timeline, ..defaults }, None)
}

/// A model that differs from `base` in the keys that are given.
pub(super) fn variant(s: &mut Section<'_>, base: &Model) -> Model {
    let service = s.optional_section("service", SERVICE, Distribution::read);
    let of_base = || (base.arrivals.clone(), base.timeline.clone());
    let (arrivals, timeline) = s
        .optional_section("arrivals", ARRIVALS, |s| arrivals::read(s, Some(&base.arrivals)))
        .unwrap_or_else(of_base);
    let defaults = Model {
        service: service.unwrap_or_else(|| base.service.clone()),
        arrivals,
        timeline,
        ..base.clone()
    };
    model(s, defaults, Some(base))
}

const SERVICE: &str =
    "The service time of an attempt on a healthy server, where all factors are 1.";
const ARRIVALS: &str = "When requests arrive.";

fn model(s: &mut Section<'_>, defaults: Model, base: Option<&Model>) -> Model {
    let shards = s.field("shards", "Parts of the data.").at_least(1).default(defaults.shards);
    let replicas =
        s.field("replicas", "Replicas of each shard.").at_least(1).default(defaults.replicas);
    let servers = servers(s, (shards, replicas), base);
    let mut faults = defaults.faults;
    faults.extend(s.list("faults", "Faults, in addition to those of `model`.", Fault::read));
    let model = Model {
        clients: s
            .field("clients", "Roots, each with its own view of the replicas.")
            .at_least(1)
            .default(defaults.clients),
        fan_out: s
            .field("fan_out", "Number of calls of a request, over all shards.")
            .range(1..=CALLS_MAX)
            .default(defaults.fan_out),
        shards,
        replicas,
        servers,
        leaf: policy::leaf(s, defaults.leaf),
        cores: s.optional_section("cores", CORES, Cores::read).or(defaults.cores),
        request_factor: s
            .optional_section("request_factor", REQUEST_FACTOR, Distribution::read)
            .unwrap_or(defaults.request_factor),
        request_bytes: s.field("request_bytes", REQUEST_BYTES).optional().or(defaults.request_bytes),
        call_factor: s
            .optional_section("call_factor", CALL_FACTOR, Distribution::read)
            .unwrap_or(defaults.call_factor),
        server_factors: ServerFactors::read(s).unwrap_or(defaults.server_factors),
        copies_alike: s
            .field("copies_alike_ratio", COPIES_ALIKE)
            .default(defaults.copies_alike),
        message_delay: s
            .optional_section("message_delay", "Time of a message, one way.", Distribution::read)
            .unwrap_or(defaults.message_delay),
        connection: s.switch("connection", CONNECTION, defaults.connection, ConnectionModel::read),
        overhead: s
            .optional_section("overhead", "Time of a request at its root.", Distribution::read)
            .unwrap_or(defaults.overhead),
        cancelled: s
            .choice(
                "cancelled",
                "What a cancelled attempt does: stops: it leaves the queue or stops in service; leaves_queue: \
                it only leaves the queue; runs_on: it is executed to its end.",
                &[
                    ("stops", Cancelled::Stops),
                    ("leaves_queue", Cancelled::LeavesQueue),
                    ("runs_on", Cancelled::RunsOn),
                ],
            )
            .default(defaults.cancelled),
        gives_up_after: s
            .field(
                "gives_up_after",
                "Time after which a client abandons a request; absent: never.",
            )
            .at_least(Duration::from_us(1))
            .optional()
            .or(defaults.gives_up_after),
        class: policy::class(s, "The class of the requests.", defaults.class),
        repeatable: s
            .field("repeatable", "Whether requests may be sent twice.")
            .default(defaults.repeatable),
        faults,
        timeline: defaults.timeline,
        service: defaults.service,
        arrivals: defaults.arrivals,
    };
    check(s, &model, base);
    model
}

const REQUEST_FACTOR: &str = "Factor on the service times of all attempts of a request, on whatever server; \
        absent: 1.";
const REQUEST_BYTES: &str = "Size of the body of a request with the factor 1, in spans; others have their factor \
        times this size (absent: none).";
const CALL_FACTOR: &str = "The same for all attempts of a call of a request; absent: 1.";
const COPIES_ALIKE: &str = "Share of calls whose attempts all have the same service time, apart from the factors of servers.";
const CONNECTION: &str =
    "Connections of clients to replicas, which take time to open; absent: they take none.";
const CORES: &str = "Cores that the requests in service of a server share; absent: one core for each \
        request.";

/// The number of servers; by default one for each replica. A variant with the shards and replicas of its base has the
/// number of the base as its default.
fn servers(s: &mut Section<'_>, (shards, replicas): (u32, u32), base: Option<&Model>) -> u32 {
    let all = shards.saturating_mul(replicas);
    let unchanged = base.filter(|base| (base.shards, base.replicas) == (shards, replicas));
    s.field(
        "servers",
        "Number of servers; with fewer than replicas, replicas share them (default: one for \
        each).",
    )
    .at_least(1)
    .optional()
    .unwrap_or_else(|| unchanged.map_or(all, |base| base.servers))
}

/// Checks keys against each other; in a variant, only keys that differ from the base.
fn check(s: &mut Section<'_>, model: &Model, base: Option<&Model>) {
    let size = |model: &Model| {
        let Model { clients, shards, replicas, servers, .. } = *model;
        (clients, shards, replicas, servers, model.faults.len())
    };
    if base.is_none_or(|base| size(base) != size(model)) {
        check_size(s, model);
    }
    check_rate(s, model, base);
    arrivals::check_changes(s, model, base);
    check_antagonists(s, model, base);
}

fn check_rate(s: &mut Section<'_>, model: &Model, base: Option<&Model>) {
    let rate = model.requests_per_second();
    if RATES.contains(&rate) || base.is_some_and(|base| base.requests_per_second() == rate) {
        return;
    }
    let text = if rate.is_finite() && rate > 0.0 {
        let (low, high) = (RATES.start(), RATES.end());
        format!("the load results in {rate:e} requests per second: expected {low} to {high}")
    } else {
        "the load needs a service time with a mean above zero: expected such a service time, or \
        requests_per_second"
            .to_owned()
    };
    s.error("arrivals", text);
}

fn check_antagonists(s: &mut Section<'_>, model: &Model, base: Option<&Model>) {
    let is_antagonist = |fault: &Fault| fault.recipe.needs_cores();
    let own = base.map_or(0, |base| base.faults.len());
    let antagonist = model.faults[own..].iter().position(is_antagonist);
    if let (None, Some(nth)) = (model.cores, antagonist) {
        let text = format!("the antagonist of faults[{nth}] takes cores, but the model has none");
        s.error("faults", format!("{text}: expected cores"));
    }
}

fn check_size(s: &mut Section<'_>, model: &Model) {
    let Model { clients, shards, replicas, servers, .. } = *model;
    if replicas as usize > REPLICAS_MAX {
        s.error("replicas", format!("expected at most {REPLICAS_MAX}"));
    }
    if replicas > servers {
        let text = format!("a shard's {replicas} replicas cannot share {servers} servers");
        s.error("servers", format!("{text}: expected at least as many servers as replicas"));
    }
    if u64::from(clients) * u64::from(shards) > MACHINES_MAX || u64::from(servers) > MACHINES_MAX {
        let text = format!("expected at most {MACHINES_MAX} clients × shards, and servers");
        s.error("shards", format!("too large: {text}"));
    }
    let views = u64::from(clients) * u64::from(shards).saturating_mul(u64::from(replicas));
    if views > REPLICA_VIEWS_MAX {
        let text = format!("expected at most {REPLICA_VIEWS_MAX} clients × shards × replicas");
        s.error("replicas", format!("too large: {text}"));
    }
    if model.faults.len() as u64 * u64::from(servers) > FAULT_PLACES_MAX {
        let text = format!("expected at most {FAULT_PLACES_MAX} faults × servers");
        s.error("faults", format!("too many: {text}"));
    }
}
