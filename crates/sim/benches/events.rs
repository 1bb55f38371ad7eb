//! How many simulated events a second of processor time takes: the median of several runs.
//!
//! An event is an entry of the event queue that something came of; entries that turn out to be stale are
//! not counted, although they take time. The processor time comes from the system (only Linux reports it this
//! way), so that a busy machine disturbs less.
//!
//! ```sh
//! cargo bench -p curtail-sim
//! ```

use curtail_model::Distribution;
use curtail_policy::{BalanceConfig, UpstreamConfig};
use curtail_sim::{Arm, Model, Scenario, Stop, Variant, run};
use curtail_units::Duration;

const ROUNDS: usize = 5;
const SEED: u64 = 1;

fn main() {
    println!("seed {SEED}, median of {ROUNDS} rounds");
    let plain = UpstreamConfig::plain(BalanceConfig::Random);
    report("M/M/1 at 0.8", &queue(1, 0.8, Duration::ZERO, plain));
    let two_choices = UpstreamConfig::plain(BalanceConfig::LEAST_REQUEST);
    report("SQ(2) of 100 at 0.9", &queue(100, 0.9, Duration::ZERO, two_choices));
    let far = Duration::from_us(500);
    report("SQ(2) of 100 at 0.9, messages travel", &queue(100, 0.9, far, two_choices));
    report("1,000 keys of 100 servers, hedged", &hedged_fan_out());
}

/// One upstream of `replicas` servers with one slot each and a mean service time of 1 ms.
fn queue(replicas: u32, load: f64, message_delay: Duration, policy: UpstreamConfig) -> Scenario {
    let service = Distribution::Exponential { mean: Duration::from_ms(1) };
    let message_delay = Distribution::Constant { value: message_delay };
    let model = Model { message_delay, ..Model::queue(replicas, load, service) };
    Scenario {
        variants: vec![Variant { name: String::new(), model }],
        arms: vec![Arm::new("", policy)],
        above: Vec::new(),
        stop: Stop { precision: None, requests_min: 0, requests_max: 600_000, has_warm_up: true },
    }
}

/// The hedged arm of `scenarios/bigtable-hedge.yaml`.
fn hedged_fan_out() -> Scenario {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/bigtable-hedge.yaml");
    let text = std::fs::read_to_string(file).expect("the scenario is part of the repository");
    let sets = ["requests_max=1000".to_owned()];
    let mut scenario = Scenario::read(file, &text, &sets).expect("it has no errors");
    scenario.arms.retain(|arm| arm.name == "hedge after 10 ms");
    scenario
}

fn report(name: &str, scenario: &Scenario) {
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let before = processor_seconds();
            let events = run(scenario, SEED, |_| {}).events;
            events as f64 / (processor_seconds() - before)
        })
        .collect();
    rates.sort_unstable_by(f64::total_cmp);
    println!("{name}: {:.2} M events/s", rates[ROUNDS / 2] / 1e6);
}

/// The processor time that this process has used.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux says it in this file");
    let ns = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    ns.expect("its first word is the time in nanoseconds") / 1e9
}
