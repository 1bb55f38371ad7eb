//! Policies as YAML: the keys of an upstream in the configuration of the proxy, ready to paste.

use curtail_policy::{
    BalanceConfig, BudgetConfig, HedgeConfig, PrequalConfig, QuantileDelay, RetryConfig, TieConfig,
    UpstreamConfig,
};
use curtail_units::Duration;

/// The keys of an upstream with this policy. Only `tie`, `remedy` and `slow_start` are left out if they have their
/// defaults.
#[must_use]
pub fn policy_yaml(policy: &UpstreamConfig) -> String {
    let UpstreamConfig { balance, hedge, tie, retry, budget, timeout, remedy, slow_start } = policy;
    let off = || "false".to_owned();
    let mut yaml = format!("balance: {}\n", balance_yaml(balance));
    yaml += &format!("hedge: {}\n", hedge.as_ref().map_or_else(off, hedge_yaml));
    if let Some(tie) = tie {
        yaml += &format!("tie: {}\n", tie_yaml(tie));
    }
    yaml += &format!("retry: {}\n", retry.as_ref().map_or_else(off, retry_yaml));
    yaml += &format!("budget: {}\n", budget_yaml(budget));
    yaml += &format!("timeout: {}\n", duration(*timeout));
    if !remedy.is_on() {
        yaml += &format!("remedy: {}\n", remedy.name());
    }
    if let Some(slow_start) = slow_start {
        yaml += &format!("slow_start: {}\n", duration(*slow_start));
    }
    yaml
}

/// A duration in the largest unit in which it is a whole number.
fn duration(value: Duration) -> String {
    let ns = value.as_ns();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let whole = units.into_iter().find(|(_, unit)| ns.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{ns}ns"), |(name, unit)| format!("{}{name}", ns / unit))
}

fn balance_yaml(balance: &BalanceConfig) -> String {
    match balance {
        BalanceConfig::RoundRobin => "round_robin".to_owned(),
        BalanceConfig::Random => "random".to_owned(),
        BalanceConfig::LeastRequest { choices: 2 } => "least_request".to_owned(),
        BalanceConfig::LeastRequest { choices } => {
            format!("{{policy: least_request, choices: {choices}}}")
        }
        BalanceConfig::PeakEwma { decay } => {
            format!("{{policy: peak_ewma, decay: {}}}", duration(*decay))
        }
        BalanceConfig::Prequal(prequal) => prequal_yaml(prequal),
    }
}

fn prequal_yaml(prequal: &PrequalConfig) -> String {
    let PrequalConfig {
        probes_per_request,
        pool_len_max,
        age_max,
        hot_quantile,
        removals_per_request,
        reuse_slack,
        idle_interval,
        probe_timeout,
    } = prequal;
    format!(
        "{{policy: prequal, probes_per_request: {probes_per_request}, pool_len_max: {pool_len_max}, age_max: {}, \
         hot_quantile: {}, removals_per_request: {removals_per_request}, reuse_slack: {reuse_slack}, \
         idle_interval: {}, probe_timeout: {}}}",
        duration(*age_max),
        hot_quantile.get(),
        duration(*idle_interval),
        duration(*probe_timeout),
    )
}

fn delay_keys(delay: &QuantileDelay) -> String {
    let QuantileDelay { quantile, min, max } = delay;
    let (quantile, min, max) = (quantile.get(), duration(*min), duration(*max));
    format!("quantile: {quantile}, delay_min: {min}, delay_max: {max}")
}

fn hedge_yaml(hedge: &HedgeConfig) -> String {
    format!("{{{}, hedges_max: {}}}", delay_keys(&hedge.delay), hedge.hedges_max)
}

fn tie_yaml(tie: &TieConfig) -> String {
    let delay = tie.delay.map(|delay| format!("delay: {}, ", duration(delay))).unwrap_or_default();
    format!("{{{delay}message_delay: {}}}", duration(tie.message_delay))
}

fn retry_yaml(retry: &RetryConfig) -> String {
    let RetryConfig { retries_max, backoff, backoff_max, overdue } = retry;
    let overdue =
        overdue.map_or_else(|| "false".to_owned(), |delay| format!("{{{}}}", delay_keys(&delay)));
    format!(
        "{{retries_max: {retries_max}, backoff: {}, backoff_max: {}, overdue: {overdue}}}",
        duration(*backoff),
        duration(*backoff_max)
    )
}

fn budget_yaml(budget: &BudgetConfig) -> String {
    let BudgetConfig { ratio, window, reserve } = budget;
    format!("{{ratio: {}, window: {}, reserve: {reserve}}}", ratio.get(), duration(*window))
}

#[cfg(test)]
mod tests {
    use super::policy_yaml;
    use curtail_policy::{BalanceConfig, RemedyMode, RetryConfig, TieConfig, UpstreamConfig};
    use curtail_units::Duration;

    #[test]
    fn what_is_written_reads_back_as_the_same_policy() {
        let retry = RetryConfig { overdue: None, ..RetryConfig::default() };
        let tie = |delay| TieConfig { delay, ..TieConfig::default() };
        let plain = |balance| UpstreamConfig::plain(balance);
        let mut policies = vec![
            UpstreamConfig::default(),
            UpstreamConfig { retry: Some(retry), ..UpstreamConfig::default() },
            UpstreamConfig { timeout: Duration::from_us(1_500), ..plain(BalanceConfig::Random) },
            UpstreamConfig { remedy: RemedyMode::DryRun, ..UpstreamConfig::default() },
            UpstreamConfig { tie: Some(tie(None)), ..plain(BalanceConfig::RoundRobin) },
            UpstreamConfig {
                tie: Some(tie(Some(Duration::from_ns(1_234_567)))),
                ..plain(BalanceConfig::LEAST_REQUEST)
            },
        ];
        let prequal = BalanceConfig::Prequal(curtail_policy::PrequalConfig::default());
        policies.push(plain(prequal));
        policies.push(plain(BalanceConfig::PeakEwma { decay: Duration::from_secs(7) }));
        for policy in policies {
            let yaml = policy_yaml(&policy);
            let read = curtail_config::read("policy", &yaml, curtail_config::policy::upstream);
            assert_eq!(read.ok(), Some(policy), "{yaml}");
        }
    }
}
