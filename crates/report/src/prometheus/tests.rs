use super::{GROWTH, buckets, render};
use crate::figures::quantile;
use crate::results::State;
use crate::sample;
use curtail_load::{Failure, Latencies, LatencyKind};
use curtail_sketch::rank;
use curtail_units::Duration;

fn of_sample(seed: u64) -> Latencies {
    Latencies::merged(&sample::compared(seed).of_arm(1))
}

#[test]
fn every_bucket_that_holds_something_is_narrow_and_no_response_is_lost() {
    let mut latencies = of_sample(1);
    for duration in [Duration::ZERO, Duration::from_ns(1), Duration::from_secs(60)] {
        latencies.response.record(duration);
    }
    for clock in [LatencyKind::Response, LatencyKind::Service] {
        let bounds = buckets(&latencies, clock);
        assert_eq!(
            bounds.last().map(|(_, count)| *count),
            Some(latencies.responses(clock).count())
        );
        for pair in bounds.windows(2) {
            let [(low, below), (high, upto)] = pair else { unreachable!("windows of two") };
            assert!(low < high && below <= upto);
            let is_narrow = *high <= low.mul_f64(GROWTH) || *high <= Duration::from_ns(2);
            assert!(is_narrow || below == upto, "from {low} to {high} are {}", upto - below);
        }
        // Counts are exact: as many are longer than a bound as the histogram says.
        for (bound, count) in &bounds {
            assert_eq!(
                latencies.responses(clock).count_above(*bound) + count,
                latencies.responses(clock).count()
            );
        }
    }
    assert!(buckets(&Latencies::new(), LatencyKind::Response).is_empty());
}

#[test]
fn percentiles_interpolated_from_the_buckets_are_within_five_percent() {
    for seed in 1..4 {
        println!("seed {seed}");
        let latencies = of_sample(seed);
        let bounds = buckets(&latencies, LatencyKind::Response);
        for q in [0.5, 0.9, 0.99, 0.999] {
            let responses = &latencies.response;
            let exact = responses.quantile(quantile(q)).expect("there are responses").as_ns_f64();
            // As histogram_quantile does it: evenly within the bucket.
            let rank = rank(quantile(q), responses.count());
            let nth = bounds.iter().position(|(_, count)| *count >= rank).expect("it is in one");
            let (low, below) = bounds[nth - 1];
            let (high, upto) = bounds[nth];
            let share = (rank - below) as f64 / (upto - below) as f64;
            let got = low.as_ns_f64() + share * (high - low).as_ns_f64();
            assert!((got / exact - 1.0).abs() < 0.05, "{q}: {got} for {exact}");
        }
    }
}

#[test]
fn the_text_has_every_figure_with_its_unit_and_failures_are_infinite() {
    let mut run = sample::single(1);
    run.name = "a \"run\"\nof two\\lines".to_owned();
    run.state = State::Void { why: "late".to_owned() };
    run.blocks[1].latencies[0].failures.add_n(Failure::Timeout, 400);
    let text = render(&run);
    let value = |name: &str, labels: &str| {
        let start =
            format!("curtail_bench_{name}{{run=\"a \\\"run\\\"\\nof two\\\\lines\",{labels}}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("no {start} in:\n{text}")).to_owned()
    };
    assert_eq!(value("state", "state=\"void\""), "1");
    assert_eq!(value("state", "state=\"complete\""), "0");
    let merged = run.blocks[1].merged();
    assert_eq!(value("requests", "arm=\"direct\""), merged.count().to_string());
    let p50: f64 = value("latency_seconds", "arm=\"direct\",clock=\"response\",quantile=\"0.5\"")
        .parse()
        .expect("a number");
    assert!((0.004..0.02).contains(&p50), "{p50}");
    assert_eq!(
        value("latency_seconds", "arm=\"direct\",clock=\"response\",quantile=\"0.99\""),
        "+Inf"
    );
    assert_eq!(
        value("response_seconds_bucket", "arm=\"direct\",le=\"+Inf\""),
        merged.count().to_string()
    );
    assert_eq!(
        value("failures", "arm=\"direct\",reason=\"timeout\""),
        merged.failures.of(Failure::Timeout).to_string()
    );
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
    }
}
