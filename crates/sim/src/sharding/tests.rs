use super::{Placement, Rule, Sharding, ShardingReport};
use curtail_model::Distribution;
use curtail_units::Duration;

fn sharding(servers: &[u32], whole: Distribution, rule: Rule) -> Sharding {
    Sharding {
        servers: servers.to_vec(),
        whole,
        per_shard: Duration::ZERO,
        per_response: Duration::ZERO,
        rules: vec![("it".to_owned(), rule)],
        requests: 20_000,
    }
}

fn p99_ns(report: &ShardingReport, servers: u32) -> f64 {
    let placed = report.placed(servers, "it").expect("it was requested");
    placed.p99_ns.expect("there are enough requests").value
}

#[test]
fn every_shard_is_somewhere_and_none_is_moved_without_need() {
    for shards in 1..200 {
        for servers in 1..70 {
            let placement = Placement { shards, servers };
            let (fullest, full) = (placement.fullest(), placement.full_servers());
            assert_eq!(full * fullest + (servers - full) * (fullest - 1), shards, "{placement:?}");
            assert!((1..=servers).contains(&full), "{placement:?}");
            let mean = f64::from(shards) / f64::from(servers);
            let expected = mean.ceil() / mean;
            assert!((placement.imbalance() - expected).abs() < 1e-12, "{placement:?}");
        }
    }
}

#[test]
fn sixteen_shards_on_twelve_servers_waste_a_third() {
    let placement = Placement { shards: Rule::Doubled.shards(12), servers: 12 };
    assert_eq!((placement.shards, placement.fullest(), placement.full_servers()), (16, 2, 4));
    assert!((1.0 - 1.0 / placement.imbalance() - 1.0 / 3.0).abs() < 1e-12);
    // All that is bought between two powers of two is bought in vain.
    for servers in 8..16 {
        let placement = Placement { shards: Rule::Doubled.shards(servers), servers };
        let share = f64::from(placement.fullest()) / f64::from(placement.shards);
        assert!((share - 1.0 / 8.0).abs() < 1e-12, "{servers} servers: {share}");
    }
}

#[test]
fn twenty_shards_a_server_keep_the_imbalance_within_five_percent() {
    for servers in 1..=500_u32 {
        for shards in 20 * servers..24 * servers {
            let imbalance = Placement { shards, servers }.imbalance();
            assert!((1.0..1.05).contains(&imbalance), "{shards} on {servers}: {imbalance}");
        }
    }
    // And fewer do not: 19 a server and one more.
    assert!(Placement { shards: 19 * 500 + 1, servers: 500 }.imbalance() > 1.05);
}

#[test]
fn without_chance_the_latency_is_the_share_of_the_fullest() {
    let whole = Distribution::Constant { value: Duration::from_secs(16) };
    let mut doubled = sharding(&[8, 12, 15, 16], whole, Rule::Doubled);
    let report = doubled.run(1);
    for (servers, expected_ms) in [(8, 2_000), (12, 2_000), (15, 2_000), (16, 1_000)] {
        let got = p99_ns(&report, servers) / 1e6;
        // A histogram's bucket is at most 0.1 % wide.
        assert!((got / f64::from(expected_ms) - 1.0).abs() < 1e-3, "{servers}: {got}");
    }
    (doubled.per_shard, doubled.per_response) = (Duration::from_ms(50), Duration::from_ms(10));
    let got = p99_ns(&doubled.run(1), 12) / 1e6;
    assert!((got / (2_000.0 + 2.0 * 50.0 + 12.0 * 10.0) - 1.0).abs() < 1e-3, "{got}");
}

#[test]
fn servers_without_a_shard_do_not_respond() {
    let whole = Distribution::Constant { value: Duration::from_secs(16) };
    let mut few = sharding(&[10], whole, Rule::Fixed { shards: 4 });
    few.per_response = Duration::from_ms(100);
    let got = p99_ns(&few.run(1), 10) / 1e6;
    assert!((got / 4_400.0 - 1.0).abs() < 1e-3, "{got}");
}

#[test]
fn the_slowest_of_servers_alike_has_its_closed_form() {
    let mean = Duration::from_secs(16);
    let report = sharding(&[4, 32], Distribution::Exponential { mean }, Rule::OneEach).run(7);
    for servers in [4, 32] {
        let n = f64::from(servers);
        // P(all are done by t) = (1 − e^(−t·n/mean))^n.
        let expected = -mean.as_ns_f64() / n * (1.0 - 0.99_f64.powf(1.0 / n)).ln();
        let placed = report.placed(servers, "it").expect("it was requested");
        let estimate = placed.p99_ns.expect("there are enough requests");
        let margin = 2.0 * estimate.relative_error();
        assert!((estimate.value / expected - 1.0).abs() < margin, "{estimate:?}, {expected}");
    }
}

#[test]
fn the_same_seed_gives_the_same_report_and_rules_meet_the_same_draws() {
    let whole = Distribution::Lognormal { median: Duration::from_secs(16), sigma: 0.3 };
    let mut all = sharding(&[8, 16], whole, Rule::Doubled);
    all.rules.push(("other".to_owned(), Rule::OneEach));
    all.rules.push(("many".to_owned(), Rule::Fixed { shards: 160 }));
    let report = all.run(3);
    assert_eq!(report.json(), all.run(3).json());
    assert_ne!(report.json(), all.run(4).json());
    // At a power of two all three are the same placement but for the size of the shards.
    for servers in [8, 16] {
        let p99 = |rule| report.placed(servers, rule).expect("a rule").p99_ns;
        assert!(p99("it").is_some(), "there are enough requests");
        assert_eq!(p99("it"), p99("other"), "{servers} servers");
        assert_eq!(p99("it"), p99("many"), "{servers} servers");
    }
    let table = report.table();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}
