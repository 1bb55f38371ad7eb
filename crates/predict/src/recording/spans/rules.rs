//! The balancing rules of upstreams, from the reasons in the attribute `curtail.choice` of their attempts.

use curtail_policy::{BalanceConfig, PrequalConfig};
use std::collections::{BTreeSet, HashMap};

/// The balancing rule of each upstream, by number; [`None`] if there are several.
#[derive(Debug, Default)]
pub(super) struct BalancingRules(HashMap<u32, Option<BalanceConfig>>);

impl BalancingRules {
    /// Adds the reason of an attempt.
    pub(super) fn add(&mut self, upstream: u32, choice: &str) {
        let Some(rule) = rule_of(choice) else { return };
        let known = self.0.entry(upstream).or_insert(Some(rule));
        *known = known.filter(|known| *known == rule);
    }

    /// The rule of these upstreams, if it is one.
    pub(super) fn of(&self, upstreams: &BTreeSet<u32>) -> Option<BalanceConfig> {
        let mut rules = upstreams.iter().filter_map(|upstream| self.0.get(upstream));
        let first = rules.next()?;
        first.filter(|_| rules.all(|rule| rule == first))
    }
}

/// The balancing rule that has this reason in `curtail.choice`. A replica that was the only one shows no rule.
fn rule_of(choice: &str) -> Option<BalanceConfig> {
    match choice {
        "turn" => Some(BalanceConfig::RoundRobin),
        "chance" => Some(BalanceConfig::Random),
        "fewer_in_flight" => Some(BalanceConfig::LEAST_REQUEST),
        "lower_peak_ewma" => Some(BalanceConfig::PEAK_EWMA),
        "cold_lowest_latency" | "all_hot_fewest_in_flight" | "pool_too_small" => {
            Some(BalanceConfig::Prequal(PrequalConfig::default()))
        }
        _ => None,
    }
}
