//! The policies' keys: defaults, every key, contradictions.

use super::upstream;
use crate::{Key, Presence, Section, describe, read, read_with_sets, reference_markdown};
use curtail_policy::{
    BalanceConfig, BudgetConfig, HedgeConfig, LeafConfig, PrequalConfig, QuantileDelay, RemedyMode,
    RetryConfig, TieConfig, UpstreamConfig,
};
use curtail_units::{Duration, Quantile, Ratio};
use expect_test::{expect, expect_file};

fn leaf(s: &mut Section<'_>) -> LeafConfig {
    super::leaf(s, LeafConfig::default())
}

#[test]
fn an_empty_section_is_the_default_of_the_policies() {
    assert_eq!(read("f", "{}", upstream).expect("no key is required"), UpstreamConfig::default());
    assert_eq!(read("f", "{}", leaf).expect("no key is required"), LeafConfig::default());
}

#[test]
fn every_key_reaches_its_field() {
    let text = "
balance:
  policy: prequal
  probes_per_request: 2.5
  pool_len_max: 8
  age_max: 2s
  hot_quantile: 0.8
  removals_per_request: 0.5
  reuse_slack: 2
  idle_interval: 100ms
  probe_timeout: 5ms
hedge: {quantile: 0.95, delay_min: 2ms, delay_max: 3ms, hedges_max: 2}
tie: {delay: 300us, message_delay: 400us}
retry:
  retries_max: 3
  backoff: 20ms
  backoff_max: 2s
  overdue: {quantile: 0.9, delay_min: 4ms, delay_max: 5ms}
budget: {ratio: 0.1, window: 5s, reserve: 3}
timeout: 7s
remedy: dry_run
slow_start: 8s
";
    let quantile = |q| Quantile::new(q).expect("a quantile");
    let expected = UpstreamConfig {
        balance: BalanceConfig::Prequal(PrequalConfig {
            probes_per_request: 2.5,
            pool_len_max: 8,
            age_max: Duration::from_secs(2),
            hot_quantile: quantile(0.8),
            removals_per_request: 0.5,
            reuse_slack: 2.0,
            idle_interval: Duration::from_ms(100),
            probe_timeout: Duration::from_ms(5),
        }),
        hedge: Some(HedgeConfig {
            delay: QuantileDelay {
                quantile: quantile(0.95),
                min: Duration::from_ms(2),
                max: Duration::from_ms(3),
            },
            hedges_max: 2,
        }),
        tie: Some(TieConfig {
            delay: Some(Duration::from_us(300)),
            message_delay: Duration::from_us(400),
        }),
        retry: Some(RetryConfig {
            retries_max: 3,
            backoff: Duration::from_ms(20),
            backoff_max: Duration::from_secs(2),
            overdue: Some(QuantileDelay {
                quantile: quantile(0.9),
                min: Duration::from_ms(4),
                max: Duration::from_ms(5),
            }),
        }),
        budget: BudgetConfig {
            ratio: Ratio::new(0.1).expect("a ratio"),
            window: Duration::from_secs(5),
            reserve: 3,
        },
        timeout: Duration::from_secs(7),
        remedy: RemedyMode::DryRun,
        slow_start: Some(Duration::from_secs(8)),
    };
    assert_eq!(read("f", text, upstream).expect("the text is right"), expected);
}

#[test]
fn techniques_are_switched_by_a_word_or_by_a_key() {
    let text = "{hedge: false, tie: true, retry: {enabled: false, retries_max: 3}}";
    let config = read("f", text, upstream).expect("the text is right");
    assert_eq!((config.hedge, config.tie, config.retry), (None, Some(TieConfig::default()), None));
    let config = read("f", "{hedge: {}, retry: {overdue: false}}", upstream);
    let config = config.expect("the text is right");
    assert_eq!(config.hedge, Some(HedgeConfig::default()));
    let retry = RetryConfig { overdue: None, ..RetryConfig::default() };
    assert_eq!(config.retry, Some(retry));
}

#[test]
fn the_mode_of_the_remedies_is_a_word() {
    for (text, mode) in [
        ("{}", RemedyMode::On),
        ("remedy: on", RemedyMode::On),
        ("remedy: off", RemedyMode::Off),
        ("remedy: dry_run", RemedyMode::DryRun),
        ("remedy: auto", RemedyMode::Auto),
    ] {
        assert_eq!(read("f", text, upstream).expect("a known word").remedy, mode);
    }
    let errors = read("f", "{remedy: auto, hedge: false}", upstream).expect_err("no hedges");
    expect![
        "f:1:10: remedy: auto needs hedges, because a dry run estimates them: expected hedge: true"
    ]
    .assert_eq(&errors.to_string());
    let errors = read("f", "remedy: automatic", upstream).expect_err("an unknown word");
    expect!["f:1:9: remedy: automatic is not known: expected one of on, off, dry_run, auto"]
        .assert_eq(&errors.to_string());
}

#[test]
fn every_balance_policy_is_known_by_its_word_alone() {
    for (word, balance) in [
        ("round_robin", BalanceConfig::RoundRobin),
        ("random", BalanceConfig::Random),
        ("least_request", BalanceConfig::LEAST_REQUEST),
        ("peak_ewma", BalanceConfig::PeakEwma { decay: Duration::from_secs(10) }),
        ("prequal", BalanceConfig::Prequal(PrequalConfig::default())),
    ] {
        let config = read("f", &format!("balance: {word}"), upstream).expect("a known word");
        assert_eq!(config.balance, balance);
        assert_eq!(balance.name(), word);
    }
}

#[test]
fn contradictions_and_limits_are_named() {
    let text = "
balance: {policy: round_robin, decay: 1s}
hedge: {delay_min: 2s, hedges_max: 0}
retry: {backoff: 2s, retries_max: 7, overdue: {delay_min: 6s}}
budget: {window: 1us, ratio: 2}
";
    let errors = read("f", text, upstream).expect_err("the text has errors").to_string();
    expect![[r#"
        f:2:32: balance.decay: unknown key with policy: round_robin: expected only policy
        f:3:20: hedge.delay_min: 2 s is above delay_max (1 s): expected at most that
        f:3:36: hedge.hedges_max: 0 is out of range: expected a whole number from 1 to 7
        f:4:18: retry.backoff: 2 s is above backoff_max (1 s): expected at most that
        f:4:59: retry.overdue.delay_min: 6 s is above delay_max (5 s): expected at most that
        f:5:18: budget.window: 1us is out of range: expected a duration of at least 10ms
        f:5:30: budget.ratio: 2 is out of range: expected a ratio from 0 to 1 (0.02 for 2 %)"#]]
    .assert_eq(&errors);
    let errors = read("f", "{hedge: {delay_min: 2s}, tie: on, leaf: {}}", upstream);
    expect![[r#"
        f:1:21: hedge.delay_min: 2 s is above delay_max (1 s): expected at most that
        f:1:31: tie: on is text in YAML 1.2: expected true or false
        f:1:35: leaf: unknown key: expected one of balance, budget, hedge, remedy, retry, slow_start, tie, timeout"#]]
    .assert_eq(&errors.expect_err("the text has errors").to_string());
    let errors = read("f", "{retry: {retries_max: 7}, hedge: {hedges_max: 1}}", upstream);
    expect!["f:1:9: retry: one request could become 9 attempts: expected hedges_max, retries_max and a tie to make at most 8 with the first"]
    .assert_eq(&errors.expect_err("the text has errors").to_string());
}

#[test]
fn every_default_can_be_written_out_and_means_the_same() {
    let with_default = |key: &Key| match &key.presence {
        Presence::Default(value) if key.case.is_none() => Some(format!("{}={value}", key.path)),
        Presence::Default(_) | Presence::Required | Presence::Optional => None,
    };
    let sets: Vec<String> = describe(upstream).iter().filter_map(with_default).collect();
    // Sections before what is in them: `tie=false` first, then no key of `tie`.
    let (switches, keys): (Vec<_>, Vec<_>) =
        sets.into_iter().partition(|set| set.ends_with("=true") || set.ends_with("=false"));
    let keys: Vec<String> = keys.into_iter().filter(|set| !set.starts_with("tie.")).collect();
    let config = read_with_sets("f", "", &keys, upstream).expect("defaults are in range");
    assert_eq!(config, UpstreamConfig::default());
    let top: Vec<String> =
        switches.into_iter().filter(|set| set.matches('.').count() == 0).collect();
    let config = read_with_sets("f", "", &top, upstream).expect("defaults are in range");
    assert_eq!(config, UpstreamConfig::default());
}

#[test]
fn the_reference_of_the_policies_is_complete() {
    let mut keys = describe(upstream);
    keys.extend(describe(|s| s.section("leaf", "The queue in front of one server.", leaf)));
    expect_file!["reference.md"].assert_eq(&reference_markdown(&keys));
}
