//! The keys of a sharding: the numbers of servers, the time for the whole data, and rules by name.

use crate::sharding::{DRAWS_MAX, Rule, SERVERS_MAX, SHARDS_MAX, Sharding};
use curtail_config::Section;
use curtail_model::Distribution;
use curtail_units::Duration;

const PLACEMENTS_MAX: usize = 10_000;

/// The key of a file that describes a sharding, and the documentation of the key.
pub(super) const KEY: &str = "sharding";
pub(super) const DOC: &str = "How evenly data lie on servers, and what the fullest does to the latency; nothing else is then simulated.";

pub(super) fn sharding(s: &mut Section<'_>) -> Sharding {
    let servers = s.section("servers", "Numbers of servers to compare.", servers);
    let whole = s.section("whole", "Time of one server for all data.", Distribution::read);
    let per_shard =
        s.field("per_shard", "Additional server time for each shard.").default(Duration::ZERO);
    let per_response = s
        .field("per_response", "Additional root time for the response of each server.")
        .default(Duration::ZERO);
    let rules = s.map("rules", "Rules for the number of shards, by name.", |name, s| {
        (name.to_owned(), rule(s))
    });
    if rules.is_empty() {
        s.error("rules", "there is nothing to compare: expected at least one rule");
    }
    let requests = s
        .field("requests", "Number of requests for each row and rule.")
        .range(1_000..=1_000_000)
        .default(20_000);
    if servers.len() * rules.len() > PLACEMENTS_MAX {
        let text =
            format!("too many: expected at most {PLACEMENTS_MAX} numbers of servers × rules");
        s.error("servers", text);
    }
    let per_request: u64 = servers.iter().map(|servers| u64::from(*servers)).sum();
    if per_request * rules.len() as u64 * u64::from(requests) > DRAWS_MAX {
        let text = format!("too many: expected at most {DRAWS_MAX} requests × servers in all");
        s.error("requests", text);
    }
    Sharding { servers, whole, per_shard, per_response, rules, requests }
}

fn servers(s: &mut Section<'_>) -> Vec<u32> {
    let from = s.field("from", "First number of servers.").range(1..=SERVERS_MAX).required();
    let to = s.field("to", "Last number of servers.").range(1..=SERVERS_MAX).required();
    let step = s.field("step", "Step between two numbers of servers.").at_least(1).default(1_u32);
    s.check_order(("from", from), ("to", to));
    (from..=to).step_by(usize::try_from(step.max(1)).unwrap_or(usize::MAX)).collect()
}

fn rule(s: &mut Section<'_>) -> Rule {
    s.cases("rule", "Rule for the number of shards.").required(|cases| {
        cases.case("doubled", "the smallest power of two with a shard for each server.", |_| {
            Rule::Doubled
        });
        cases.case("one_each", "as many as there are servers.", |_| Rule::OneEach);
        cases.case("fixed", "always the same; many a server are micro-partitions.", |s| {
            let shards = s.field("shards", "Number of shards.").range(1..=SHARDS_MAX).required();
            Rule::Fixed { shards }
        });
    })
}
