//! `suites/google-app.yaml`: each cause, switched on alone, has the effect on the results that
//! docs/concepts/google-app.md describes. Without a cause, the results show none of the effects.
//!
//! Each assertion is a ratio within one run or follows from the design of the app (a refused request waits for at
//! least half of 500 ms), so a busy machine fails no test.

use crate::command::curtail;
use curtail_load::{Failure, Latencies, LatencyKind};
use curtail_report::Results;
use curtail_report::file;
use curtail_units::{Duration, Quantile};
use std::net::Ipv4Addr;
use std::path::Path;

const SUITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../suites/google-app.yaml");

/// What 2 s of load at 150 requests a second have found, with one of the causes or none.
struct Run {
    results: Results,
}

impl Run {
    /// Runs the suite; `nth` tells the runs of this process apart.
    fn start(nth: u32, cause: &[&str]) -> Self {
        let name = format!("google-app-{nth}");
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).expect("it is of the run before");
        }
        // All of 127/8 is this machine. Ports cannot be chosen by the system, as each process has to know where the
        // others are; so each run has an address of its own.
        let host = Ipv4Addr::from(0x7f00_0100 + (std::process::id() % (1 << 20)) * 8 + nth);
        let sets = [
            format!("parameters.client={host}:7410"),
            format!("parameters.storage={host}:7411"),
            format!("parameters.server={host}:7412"),
            "parameters.rate=150".to_owned(),
            "parameters.lasts=2s".to_owned(),
            "warm_up=none".to_owned(),
            "measures.every=100ms".to_owned(),
        ];
        let dir_text = dir.to_str().expect("text");
        let mut arguments = vec!["bench", "suite", SUITE, "--dir", dir_text];
        for set in sets.iter().map(String::as_str).chain(cause.iter().copied()) {
            arguments.extend(["--set", set]);
        }
        let ended = curtail(&arguments);
        assert_eq!(ended.code, Some(0), "{}\n{}", ended.stderr, ended.stdout);
        let results = file::read(&dir.join("results.json")).expect("it was written");
        Self { results }
    }

    fn query(&self, name: &str) -> Latencies {
        let place = self.results.series.iter().position(|series| series.query == name);
        self.results.of_arm(0).swap_remove(place.expect("it is one of the two"))
    }

    fn all(&self) -> Latencies {
        let mut all = self.query("small");
        all.merge(&self.query("large"));
        all
    }

    /// The points of one measure of a process.
    fn measure(&self, process: &str, name: &str) -> &[(curtail_units::Instant, f64)] {
        let mut measures = self.results.measures.iter();
        let measure = measures.find(|measure| measure.of == process && measure.name == name);
        &measure.unwrap_or_else(|| panic!("{name} of {process}")).points
    }

    fn last(&self, name: &str) -> f64 {
        self.measure("client", name).last().expect("it was looked at").1
    }

    fn cpu(&self, process: &str) -> f64 {
        self.measure(process, "cpu_ratio").iter().map(|(_, ratio)| ratio).sum()
    }
}

/// A quantile of the response time; a failure is longer than everything.
fn at(latencies: &Latencies, q: f64) -> Duration {
    let quantile = Quantile::new(q).expect("it is one");
    latencies.quantile(LatencyKind::Response, quantile).unwrap_or(Duration::MAX)
}

/// A large payload takes as long as 700,001 bytes at 8 MiB a second.
const LARGE: Duration = Duration::from_ms(83);
/// The shortest wait before a request is sent again: 500 ms − 50 %.
const BACKOFF: Duration = Duration::from_ms(250);

#[test]
fn without_a_cause_nothing_fails_or_is_retried_and_both_queries_take_similar_times() {
    let run = Run::start(0, &[]);
    let (small, large) = (run.query("small"), run.query("large"));
    assert_eq!(run.all().failures.total(), 0);
    assert_eq!((run.last("server_retries"), run.last("server_timeouts")), (0.0, 0.0));
    assert!(at(&large, 0.5) < at(&small, 0.5).mul_f64(4.0), "{:?}", at(&large, 0.5));
    assert!(at(&small, 0.5) < at(&large, 0.5).mul_f64(4.0), "{:?}", at(&small, 0.5));
    let share = large.count() as f64 / run.all().count() as f64;
    assert!((0.02..0.1).contains(&share), "{share}");
}

#[test]
fn large_payloads_are_the_query_large_and_the_tail_of_all_is_its_middle() {
    let run = Run::start(1, &["parameters.large_payloads=true"]);
    let (small, large, all) = (run.query("small"), run.query("large"), run.all());
    assert_eq!(all.failures.total(), 0);
    assert!(at(&large, 0.01) >= LARGE, "{:?}", at(&large, 0.01));
    assert!(at(&small, 0.5) < at(&large, 0.5).mul_f64(0.5), "{:?}", at(&small, 0.5));
    // 1 request in 20 is large, so p99 of all lies among them.
    assert!(at(&all, 0.99) >= LARGE, "{:?}", at(&all, 0.99));
}

#[test]
fn short_timeouts_are_failures_by_status_and_nothing_is_sent_again() {
    let run = Run::start(2, &["parameters.short_timeouts=true"]);
    let all = run.all();
    let failed = all.failures.of(Failure::Status);
    // 4 in 100 take longer than 20 ms in addition to the work.
    assert!(failed >= 3, "{failed} of {}", all.count());
    assert_eq!(failed, all.failures.total());
    assert!(run.last("server_timeouts") >= 1.0);
    assert_eq!(run.last("server_retries"), 0.0);
    assert_eq!(at(&all, 1.0), Duration::MAX);
}

#[test]
fn retries_are_a_second_group_of_requests_one_backoff_later() {
    let run = Run::start(3, &["parameters.retries=true"]);
    let all = run.all();
    assert_eq!(all.failures.total(), 0);
    let retried = run.last("server_retries");
    assert!(retried >= 3.0, "{retried} of {}", all.count());
    let later = all.responses(LatencyKind::Response).count_above(BACKOFF);
    // 5 in 100 are refused: these, and few others, are later by a backoff.
    assert!(later >= 3, "{later} of {}", all.count());
    assert!(at(&all, 0.99) >= BACKOFF && at(&all, 0.5) < BACKOFF, "{:?}", at(&all, 0.99));
}

#[test]
fn cpu_load_is_the_client_s_processor_time_and_both_queries_are_slow_throughout() {
    let run = Run::start(4, &["parameters.cpu_load=client"]);
    assert_eq!(run.all().failures.total(), 0);
    let (client, others) = (run.cpu("client"), run.cpu("storage") + run.cpu("server"));
    assert!(client > 4.0 * others, "client {client}, the others {others}");
    for query in ["small", "large"] {
        // Two slices of 10 ms, between sending and looking for the response, at the very least.
        let fastest = at(&run.query(query), 0.01);
        assert!(fastest >= Duration::from_ms(19), "{query} {fastest:?}");
    }
}
