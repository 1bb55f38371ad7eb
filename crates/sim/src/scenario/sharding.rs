//! A sharding as it is written: the numbers of servers, the time for the whole data, and rules by name.

use crate::sharding::{DRAWS_MAX, Rule, SERVERS_MAX, SHARDS_MAX, Sharding};
use curtail_config::Section;
use curtail_model::Distribution;
use curtail_units::Duration;

/// Placements of one table.
const PLACEMENTS_MAX: usize = 10_000;

/// The key that says that a scenario is a sharding, and what it holds.
pub(super) const KEY: &str = "sharding";
pub(super) const DOC: &str = "How evenly data lie on servers, and what the fullest does to the latency; nothing else is then simulated.";

/// The keys of a sharding.
pub(super) fn sharding(s: &mut Section<'_>) -> Sharding {
    let servers = s.section("servers", "The numbers of servers that are compared.", servers);
    let whole = s.section(
        "whole",
        "The time that one server would take for the whole data.",
        Distribution::read,
    );
    let per_shard = s
        .field("per_shard", "What each shard adds to its server's time, however small it is.")
        .default(Duration::ZERO);
    let per_answer = s
        .field("per_answer", "What the answer of each server adds at the root.")
        .default(Duration::ZERO);
    let rules =
        s.map("rules", "How many shards there are, by name.", |name, s| (name.to_owned(), rule(s)));
    if rules.is_empty() {
        s.error("rules", "there is nothing to compare: expected at least one rule");
    }
    let requests = s
        .field("requests", "Requests that are simulated for each row and rule.")
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
    Sharding { servers, whole, per_shard, per_answer, rules, requests }
}

fn servers(s: &mut Section<'_>) -> Vec<u32> {
    let from = s.field("from", "The first number.").range(1..=SERVERS_MAX).required();
    let to = s.field("to", "The last.").range(1..=SERVERS_MAX).required();
    let step = s.field("step", "From one to the next.").at_least(1).default(1_u32);
    if from > to {
        s.error("from", format!("{from} is above to ({to}): expected at most that"));
    }
    (from..=to).step_by(usize::try_from(step.max(1)).unwrap_or(usize::MAX)).collect()
}

fn rule(s: &mut Section<'_>) -> Rule {
    s.cases("rule", "How the number of shards follows from the servers.").required(|cases| {
        cases.case("doubled", "the smallest power of two with a shard for each server.", |_| {
            Rule::Doubled
        });
        cases.case("one_each", "as many as there are servers.", |_| Rule::OneEach);
        cases.case("fixed", "always the same; many a server are micro-partitions.", |s| {
            let shards = s.field("shards", "So many.").range(1..=SHARDS_MAX).required();
            Rule::Fixed { shards }
        });
    })
}
