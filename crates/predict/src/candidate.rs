//! The candidate remedies that are predicted: each is a policy, a number of replicas and a load.

use crate::fit::Fit;
use crate::policy_yaml::policy_yaml;
use crate::recording::RecordingError;
use curtail_policy::{
    BalanceConfig, BudgetConfig, HedgeConfig, PrequalConfig, QuantileDelay, RemedyMode,
    RetryConfig, TieConfig, UpstreamConfig,
};
use curtail_units::{Duration, Quantile, Ratio};

/// A remedy that could be switched on, or another size or load of the service.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The name in tables, such as `hedge p95`.
    pub name: String,
    /// The policies with the remedy.
    pub policy: UpstreamConfig,
    /// The number of replicas with the remedy.
    pub replicas: u32,
    /// The load with the remedy, as a multiple of the recorded one.
    pub load_ratio: f64,
}

impl Candidate {
    /// The service as it was recorded.
    #[must_use]
    pub fn none(fit: &Fit) -> Self {
        Self {
            name: "as recorded".to_owned(),
            policy: fit.policy,
            replicas: fit.replicas,
            load_ratio: 1.0,
        }
    }

    /// Whether it is a change of the policies alone, so that a configuration switches it on.
    #[must_use]
    pub fn is_policy(&self, fit: &Fit) -> bool {
        self.replicas == fit.replicas && self.load_ratio == 1.0
    }

    /// The group of the shards: one shard has too few requests for a latency estimate and for a budget.
    pub(crate) fn group(&self, fit: &Fit) -> Option<&'static str> {
        (fit.shards > 1).then_some("shards")
    }

    /// The keys of an upstream with the remedy, or of each shard.
    #[must_use]
    pub fn yaml(&self, fit: &Fit) -> String {
        let group = self.group(fit).map_or_else(String::new, |group| format!("group: {group}\n"));
        policy_yaml(&self.policy) + &group
    }

    /// The candidates with these comma-separated names, in the order of the report.
    ///
    /// # Errors
    /// When a remedy of this name does not fit the service.
    pub fn named(fit: &Fit, names: &str) -> Result<Vec<Self>, RecordingError> {
        let mut all = Self::all(fit);
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        for name in &names {
            if !all.iter().any(|candidate| candidate.name == *name) {
                let known = all.into_iter().map(|candidate| candidate.name).collect();
                return Err(RecordingError::NoRemedy { name: (*name).to_owned(), known });
            }
        }
        all.retain(|candidate| names.contains(&candidate.name.as_str()));
        Ok(all)
    }

    /// All candidates that fit the service, in the order of the report.
    #[must_use]
    pub fn all(fit: &Fit) -> Vec<Self> {
        let mut candidates = Vec::new();
        let now = Self { policy: base(fit), ..Self::none(fit) };
        let mut add = |name: &str, policy: UpstreamConfig| {
            // A remedy that is on already is none.
            if policy != now.policy {
                candidates.push(Self { name: name.to_owned(), policy, ..now.clone() });
            }
        };
        if fit.replicas > 1 {
            for (name, quantile) in [("hedge p90", 0.9), ("hedge p95", 0.95), ("hedge p99", 0.99)] {
                add(name, hedged(&now.policy, quantile));
            }
            // Without measured messages, the simulated ones take no time, and both copies would always start.
            let delay = TieConfig::default().message_delay.mul_f64(2.0);
            let delay = (fit.message_delay == Duration::ZERO).then_some(delay);
            let tie = Some(TieConfig { delay, ..TieConfig::default() });
            add("tie", UpstreamConfig { tie, hedge: None, ..now.policy });
            for (name, balance) in balances() {
                add(name, UpstreamConfig { balance, ..now.policy });
            }
            add("retry overdue", retried(&now.policy));
            add(
                "the defaults",
                UpstreamConfig { timeout: now.policy.timeout, ..UpstreamConfig::default() },
            );
            let balance = BalanceConfig::LEAST_REQUEST;
            add(
                "least request and hedge p95",
                UpstreamConfig { balance, ..hedged(&now.policy, 0.95) },
            );
        }
        // Without waiting apart from service, another number of replicas or another load changes nothing.
        if fit.separates_waiting() {
            let replicas = fit.replicas + 1;
            candidates.push(Self { name: "one more replica".to_owned(), replicas, ..now.clone() });
            let load_ratio = 1.25;
            candidates.push(Self { name: "1.25 times the load".to_owned(), load_ratio, ..now });
        }
        candidates
    }
}

/// The policy that each candidate changes. If the recording has none, failed requests are sent again, so that the keys of a
/// candidate can be pasted.
fn base(fit: &Fit) -> UpstreamConfig {
    let policy = sent(&fit.policy);
    let retry = match policy.retry {
        None if !fit.is_policy_known => {
            Some(RetryConfig { overdue: None, ..RetryConfig::default() })
        }
        retry => retry,
    };
    UpstreamConfig { retry, ..policy }
}

/// The policy with `remedy` on, and without the hedges and ties that `remedy` withheld. A remedy is
/// predicted as switched on, also after a dry run.
const fn sent(policy: &UpstreamConfig) -> UpstreamConfig {
    match policy.remedy {
        RemedyMode::On => *policy,
        RemedyMode::Off | RemedyMode::DryRun | RemedyMode::Auto => {
            UpstreamConfig { hedge: None, tie: None, remedy: RemedyMode::On, ..*policy }
        }
    }
}

/// A policy that hedges requests slower than a quantile. The budget is twice what ordinary requests need, so that half
/// of it remains for slow periods.
fn hedged(policy: &UpstreamConfig, quantile: f64) -> UpstreamConfig {
    let ratio = Ratio::new(2.0 * (1.0 - quantile)).expect("a constant from 0 to 1");
    // Decimal, for the configuration.
    let ratio = Ratio::new((ratio.get() * 1e4).round() / 1e4).unwrap_or(ratio);
    let quantile = Quantile::new(quantile).expect("a constant from 0 to 1");
    let default = HedgeConfig::default();
    let hedge = HedgeConfig { delay: QuantileDelay { quantile, ..default.delay }, ..default };
    let budget = BudgetConfig { ratio, ..policy.budget };
    UpstreamConfig { hedge: Some(hedge), tie: None, budget, ..*policy }
}

fn balances() -> [(&'static str, BalanceConfig); 3] {
    [
        ("least request", BalanceConfig::LEAST_REQUEST),
        ("peak EWMA", BalanceConfig::PEAK_EWMA),
        ("Prequal", BalanceConfig::Prequal(PrequalConfig::default())),
    ]
}

fn retried(policy: &UpstreamConfig) -> UpstreamConfig {
    UpstreamConfig { retry: Some(RetryConfig::default()), hedge: None, tie: None, ..*policy }
}

#[cfg(test)]
mod tests;
