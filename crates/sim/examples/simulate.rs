//! Simulates a scenario: `cargo run --release -p curtail-sim --example simulate -- FILE [SEED]`.

fn main() {
    let mut args = std::env::args().skip(1);
    let file = args.next().expect("a scenario");
    let seed = args.next().map_or(1, |seed| seed.parse().expect("a seed"));
    let text = std::fs::read_to_string(&file).expect("a file that can be read");
    match curtail_sim::Scenario::read(&file, &text, &[]) {
        Err(mistakes) => println!("{mistakes}"),
        Ok(scenario) => {
            let report = curtail_sim::run(&scenario, seed, |_| {});
            println!("{}{} events", report.table(), report.events);
        }
    }
}
