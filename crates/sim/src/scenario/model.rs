//! The keys of a model. Every key is read in one place, for the base and for its variants. In a variant, the default of
//! each key is the value of the base.

use super::{
    CLIENT_RETRIES_MAX, FAULT_PLACES_MAX, MACHINES_MAX, REPLICA_VIEWS_MAX, TYPES_MAX, USERS_MAX,
    arrivals,
};
use crate::connections::ConnectionModel;
use crate::model::{Cancelled, ClientRetries, ClosedLoop, Model, RequestType, Tier};
use curtail_config::{Section, policy};
use curtail_model::arrivals::RATES;
use curtail_model::{Affected, Cores, Distribution, Fault, ServerFactors};
use curtail_policy::{CALLS_MAX, Class, LeafConfig, REPLICAS_MAX, Weight};
use curtail_units::Duration;

/// The model that variants differ from.
pub(super) fn base(s: &mut Section<'_>) -> Model {
    let defaults = Model::queue(1, 0.5, Distribution::ZERO);
    let service = s.section("service", SERVICE, Distribution::read);
    let arrivals = s.optional_section("arrivals", ARRIVALS, |s| arrivals::read(s, None));
    let closed_loop = s.optional_section("closed_loop", CLOSED_LOOP, closed_loop);
    if arrivals.is_some() == closed_loop.is_some() {
        s.error("arrivals", "expected either this or closed_loop");
    }
    let (arrivals, timeline) = arrivals.unwrap_or((defaults.arrivals, None));
    model(s, Model { service, arrivals, timeline, closed_loop, ..defaults }, None)
}

/// A model that differs from `base` in the keys that are given.
pub(super) fn variant(s: &mut Section<'_>, base: &Model) -> Model {
    let service = s.optional_section("service", SERVICE, Distribution::read);
    let arrivals =
        s.optional_section("arrivals", ARRIVALS, |s| arrivals::read(s, Some(&base.arrivals)));
    let closed_loop = s.optional_section("closed_loop", CLOSED_LOOP, closed_loop);
    if arrivals.is_some() && closed_loop.is_some() {
        s.error("arrivals", "expected either this or closed_loop");
    }
    let loop_of_base = base.closed_loop.clone().filter(|_| arrivals.is_none());
    let (arrivals, timeline) =
        arrivals.unwrap_or_else(|| (base.arrivals.clone(), base.timeline.clone()));
    let defaults = Model {
        closed_loop: closed_loop.or(loop_of_base),
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

const CLOSED_LOOP: &str = "Users who each wait for a response before they send their next request, instead of `arrivals`.";

fn closed_loop(s: &mut Section<'_>) -> ClosedLoop {
    ClosedLoop {
        users: s.field("users", "Number of users.").range(1..=USERS_MAX).required(),
        think_time: s.section(
            "think_time",
            "Time from a response to the next request of the same user.",
            Distribution::read,
        ),
    }
}

fn client_retries(s: &mut Section<'_>) -> ClientRetries {
    ClientRetries {
        retries_max: s
            .field("retries_max", "Maximum number of retries of a request; 0: none.")
            .range(0..=CLIENT_RETRIES_MAX)
            .required(),
        wait: s
            .optional_section(
                "wait",
                "Time between a failure and the retry; absent: none.",
                Distribution::read,
            )
            .unwrap_or(Distribution::ZERO),
    }
}

fn repeatable(s: &mut Section<'_>, default: bool) -> bool {
    s.field("repeatable", "Whether requests may be sent twice.").default(default)
}

fn request_type(name: &str, s: &mut Section<'_>) -> RequestType {
    let classes = Class::ALL.map(|class| (class.name(), class));
    RequestType {
        name: name.to_owned(),
        weight: s
            .field("weight", "Share of this type, relative to the weights of the other types.")
            .range(1e-6..=1e6)
            .required(),
        class: s
            .choice("class", "The class of these requests; absent: that of the model.", &classes)
            .optional(),
        repeatable: s
            .field("repeatable", "Whether these requests may be sent twice; absent: as the model.")
            .optional(),
        service: s.optional_section("service", OF_TYPE, Distribution::read),
        request_factor: s.optional_section("request_factor", OF_TYPE, Distribution::read),
    }
}

fn tier(s: &mut Section<'_>) -> Tier {
    let shards = s.field("shards", "Parts of the data.").at_least(1).default(1);
    let replicas = s.field("replicas", "Replicas of each shard.").at_least(1).default(1);
    Tier {
        fan_out: s
            .field(
                "fan_out",
                "Number of calls that an execution in the tier before makes, over all shards.",
            )
            .range(1..=CALLS_MAX)
            .default(1),
        shards,
        replicas,
        servers: servers(s, (shards, replicas), None),
        leaf: policy::leaf(s, LeafConfig { concurrency: 1, queue_len_max: u32::MAX }),
        cores: s.optional_section("cores", CORES, Cores::read),
        service: s.section("service", SERVICE, Distribution::read),
        faults: s.list("faults", "Faults of these servers.", Fault::read),
    }
}

const OF_TYPE: &str = "As the key of the model; absent: that of the model.";

fn model(s: &mut Section<'_>, defaults: Model, base: Option<&Model>) -> Model {
    let shards = s.field("shards", "Parts of the data.").at_least(1).default(defaults.shards);
    let replicas =
        s.field("replicas", "Replicas of each shard.").at_least(1).default(defaults.replicas);
    let servers = servers(s, (shards, replicas), base);
    let class = policy::class(s, "The class of the requests.", defaults.class);
    let repeatable = repeatable(s, defaults.repeatable);
    let types = s.map("request_types", REQUEST_TYPES, request_type);
    let tiers = s.list("tiers", TIERS, tier);
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
        weights: weights(s, defaults.weights),
        servers,
        leaf: policy::leaf(s, defaults.leaf),
        cores: s.optional_section("cores", CORES, Cores::read).or(defaults.cores),
        shared_cores: s
            .field("shared_cores", SHARED_CORES)
            .range(0.01..=1e6)
            .optional()
            .or(defaults.shared_cores),
        request_factor: s
            .optional_section("request_factor", REQUEST_FACTOR, Distribution::read)
            .unwrap_or(defaults.request_factor),
        request_bytes: s
            .field("request_bytes", REQUEST_BYTES)
            .optional()
            .or(defaults.request_bytes),
        call_factor: s
            .optional_section("call_factor", CALL_FACTOR, Distribution::read)
            .unwrap_or(defaults.call_factor),
        server_factors: ServerFactors::read(s).unwrap_or(defaults.server_factors),
        copies_alike: s.field("copies_alike_ratio", COPIES_ALIKE).default(defaults.copies_alike),
        message_delay: s
            .optional_section("message_delay", "Time of a message, one way.", Distribution::read)
            .unwrap_or(defaults.message_delay),
        connection: s.switch("connection", CONNECTION, defaults.connection, ConnectionModel::read),
        overhead: s
            .optional_section("overhead", "Time of a request at its root.", Distribution::read)
            .unwrap_or(defaults.overhead),
        cancelled: cancelled(s, defaults.cancelled),
        gives_up_after: s
            .field("gives_up_after", "Time after which a client abandons a request; absent: never.")
            .at_least(Duration::from_us(1))
            .optional()
            .or(defaults.gives_up_after),
        client_retries: s
            .optional_section("client_retries", CLIENT_RETRIES, client_retries)
            .unwrap_or(defaults.client_retries),
        closed_loop: defaults.closed_loop,
        request_types: if types.is_empty() { defaults.request_types } else { types },
        class,
        repeatable,
        faults,
        tiers: if tiers.is_empty() { defaults.tiers } else { tiers },
        timeline: defaults.timeline,
        service: defaults.service,
        arrivals: defaults.arrivals,
    };
    check(s, &model, base);
    model
}

fn weights(s: &mut Section<'_>, defaults: Vec<Weight>) -> Vec<Weight> {
    let values: Vec<f64> = s.values("weights", WEIGHTS);
    let weights: Vec<Weight> = values.iter().filter_map(|value| Weight::new(*value)).collect();
    if weights.len() < values.len() {
        s.error("weights", format!("expected numbers from 0 to {}", Weight::MAX));
    }
    if weights.is_empty() { defaults } else { weights }
}

fn cancelled(s: &mut Section<'_>, default: Cancelled) -> Cancelled {
    s.choice(
        "cancelled",
        "What a cancelled attempt does: stops: it leaves the queue or stops in service; leaves_queue: \
        it only leaves the queue; runs_on: it is executed to its end.",
        &Cancelled::NAMES,
    )
    .default(default)
}

const WEIGHTS: &str = "Weights of the first replicas of each shard, by which the balancing rule chooses; 0: no requests. The others have the weight 1.";
const CLIENT_RETRIES: &str =
    "Retries of the clients, which send a failed request again as a whole; absent: none.";
const TIERS: &str = "Tiers of servers behind these: an execution that succeeds makes calls to the first tier of the list, executions there to the second, and so on. The response waits for all calls.";
const REQUEST_TYPES: &str = "Types of requests, by name: operations, or the requests of tenants. Each request has a random type; absent: all requests are of one type.";
const REQUEST_FACTOR: &str = "Factor on the service times of all attempts of a request, on whatever server; \
        absent: 1.";
const REQUEST_BYTES: &str = "Size of the body of a request with the factor 1, in spans; others have their factor \
        times this size (absent: none).";
const CALL_FACTOR: &str = "The same for all attempts of a call of a request; absent: 1.";
const COPIES_ALIKE: &str = "Share of calls whose attempts all have the same service time, apart from the factors of servers.";
const CONNECTION: &str =
    "Connections of clients to replicas, which take time to open; absent: they take none.";
const SHARED_CORES: &str = "Cores that the requests in service of all servers share, as processes on one machine do; \
    absent: each server has a machine of its own. Not together with `cores`.";
const CORES: &str = "Cores that the requests in service of a server share; absent: one core for each \
        request.";

/// The number of servers; by default one for each replica. A variant with the shards and replicas of its base has the
/// number of the base as its default.
fn servers(s: &mut Section<'_>, (shards, replicas): (u32, u32), base: Option<&Model>) -> u32 {
    let all = shards.saturating_mul(replicas);
    let unchanged = base.filter(|base| (base.shards, base.replicas) == (shards, replicas));
    s.field(
        "servers",
        "Number of servers; with fewer than shards × replicas, replicas share them (default: \
        one for each).",
    )
    .at_least(1)
    .optional()
    .unwrap_or_else(|| unchanged.map_or(all, |base| base.servers))
}

/// Checks keys against each other; in a variant, only keys that differ from the base.
fn check(s: &mut Section<'_>, model: &Model, base: Option<&Model>) {
    let size = |model: &Model| {
        let Model { clients, shards, replicas, servers, .. } = *model;
        (clients, shards, replicas, servers, model.faults.len(), model.tiers.clone())
    };
    if base.is_none_or(|base| size(base) != size(model)) {
        check_size(s, model);
    }
    if model.request_types.len() > TYPES_MAX {
        s.error("request_types", format!("too many: expected at most {TYPES_MAX}"));
    }
    check_rate(s, model, base);
    arrivals::check_changes(s, model, base);
    check_antagonists(s, model, base);
    check_affected(s, model, base);
    let has_both = |model: &Model| model.cores.is_some() && model.shared_cores.is_some();
    if has_both(model) && !base.is_some_and(has_both) {
        let text =
            "expected either cores of each server or shared_cores; an antagonist needs cores";
        s.error("shared_cores", text.to_owned());
    }
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
        "the load needs a service time with a finite mean above zero: expected such a service \
        time, or requests_per_second"
            .to_owned()
    };
    s.error(if model.closed_loop.is_some() { "closed_loop" } else { "arrivals" }, text);
}

fn check_antagonists(s: &mut Section<'_>, model: &Model, base: Option<&Model>) {
    let is_antagonist = |fault: &Fault| fault.recipe.needs_cores();
    for (nth, tier) in model.tiers.iter().enumerate() {
        if tier.cores.is_none() && tier.faults.iter().any(is_antagonist) {
            let text = "an antagonist takes cores, but the tier has none: expected cores";
            s.error(&format!("tiers[{nth}].faults"), text.to_owned());
        }
    }
    let own = base.map_or(0, |base| base.faults.len());
    let antagonist = model.faults[own..].iter().position(is_antagonist);
    if let (None, Some(nth)) = (model.cores, antagonist) {
        let text = format!("the antagonist of faults[{nth}] takes cores, but the model has none");
        s.error("faults", format!("{text}: expected cores"));
    }
}

/// Checks that faults of the first servers have that many servers.
fn check_affected(s: &mut Section<'_>, model: &Model, base: Option<&Model>) {
    let beyond = |fault: &Fault, servers: u32| match fault.servers {
        Affected::First(count) if count > servers => {
            Some(format!("{count} of {servers} servers: expected 0 to {servers}"))
        }
        Affected::First(_) | Affected::Share(_) => None,
    };
    let own = base.map_or(0, |base| base.faults.len());
    for (nth, fault) in model.faults.iter().enumerate() {
        let Some(text) = beyond(fault, model.servers) else { continue };
        if nth >= own {
            s.error(&format!("faults[{}].servers_first", nth - own), text);
        } else if base.is_some_and(|base| beyond(fault, base.servers).is_none()) {
            s.error("servers", format!("servers_first of faults[{nth}] of `model` is {text}"));
        }
    }
    let inherited = base.is_some_and(|base| base.tiers == model.tiers);
    for (tier, of) in model.tiers.iter().enumerate().filter(|_| !inherited) {
        for (nth, fault) in of.faults.iter().enumerate() {
            if let Some(text) = beyond(fault, of.servers) {
                s.error(&format!("tiers[{tier}].faults[{nth}].servers_first"), text);
            }
        }
    }
}

fn check_size(s: &mut Section<'_>, model: &Model) {
    let Model { clients, shards, replicas, servers, .. } = *model;
    let first = TierSize { clients, shards, replicas, servers, faults: model.faults.len() };
    check_replicas(s, "", &first);
    let mut sizes = vec![first];
    for (nth, tier) in model.tiers.iter().enumerate() {
        let Tier { shards, replicas, servers, .. } = *tier;
        let clients = sizes[nth].servers;
        let size = TierSize { clients, shards, replicas, servers, faults: tier.faults.len() };
        check_replicas(s, &format!("tiers[{nth}]."), &size);
        sizes.push(size);
    }
    let sum = |of: fn(&TierSize) -> u64| sizes.iter().map(of).fold(0, u64::saturating_add);
    let upstreams = |size: &TierSize| u64::from(size.clients) * u64::from(size.shards);
    if sum(upstreams) > MACHINES_MAX || sum(|size| u64::from(size.servers)) > MACHINES_MAX {
        let text = format!("expected at most {MACHINES_MAX} clients × shards, and servers");
        s.error("shards", format!("too large: {text}"));
    }
    let views = |size: &TierSize| {
        let upstreams = u64::from(size.clients) * u64::from(size.shards);
        upstreams.saturating_mul(u64::from(size.replicas))
    };
    if sum(views) > REPLICA_VIEWS_MAX {
        let text = format!("expected at most {REPLICA_VIEWS_MAX} clients × shards × replicas");
        s.error("replicas", format!("too large: {text}"));
    }
    if sum(|size| (size.faults as u64).saturating_mul(u64::from(size.servers))) > FAULT_PLACES_MAX {
        let text = format!("expected at most {FAULT_PLACES_MAX} faults × servers");
        s.error("faults", format!("too many: {text}"));
    }
}

struct TierSize {
    clients: u32,
    shards: u32,
    replicas: u32,
    servers: u32,
    faults: usize,
}

/// Checks the replicas of a tier, whose keys are behind `prefix`.
fn check_replicas(s: &mut Section<'_>, prefix: &str, size: &TierSize) {
    let TierSize { shards, replicas, servers, .. } = *size;
    if replicas as usize > REPLICAS_MAX {
        s.error(&format!("{prefix}replicas"), format!("expected at most {REPLICAS_MAX}"));
    }
    if replicas > servers {
        let text = format!("a shard's {replicas} replicas cannot share {servers} servers");
        let text = format!("{text}: expected at least as many servers as replicas");
        s.error(&format!("{prefix}servers"), text);
    }
    let all = u64::from(shards) * u64::from(replicas);
    if u64::from(servers) > all {
        let text = format!("{servers} servers have only {all} replicas: expected at most {all}");
        s.error(&format!("{prefix}servers"), text);
    }
}
