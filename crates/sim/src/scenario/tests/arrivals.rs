//! Arrivals that change, and values from files.

use super::{SMALL, errors, read};
use crate::model::Model;
use crate::scenario::{Described, Scenario};
use curtail_config::ValueFiles;
use curtail_model::{Arrivals, Bursts, Distribution, Rate, RateChange, RateCurve, Spacing};
use curtail_units::{Duration, Instant};
use expect_test::expect;
use std::io;
use std::path::Path;

const fn ms(n: u64) -> Duration {
    Duration::from_ms(n)
}

/// The scenario [`SMALL`] with other arrivals.
fn with_arrivals(keys: &str) -> String {
    SMALL.replace("load_ratio: 0.8", keys)
}

const CHANGING: &str = "requests_per_second: 100, bursts: {every: {shape: exponential, mean: 9s}, \
    lasts: {shape: constant, value: 1s}, rate_factor: 11}, rate_changes: [{at: 1s, factor: 2}], \
    repeats_every: 4s";

#[test]
fn bursts_and_rate_changes_are_read_and_a_variant_inherits_them() {
    let variants = "variants:
  same: {}
  faster: {arrivals: {requests_per_second: 200}}
  calm: {arrivals: {bursts: false, rate_changes: [{at: 3s, factor: 0.5}]}}
arms:";
    let scenario = read(&with_arrivals(CHANGING).replace("arms:", variants));
    let bursts = Bursts {
        every: Distribution::Exponential { mean: ms(9_000) },
        lasts: Distribution::Constant { value: ms(1_000) },
        rate_factor: 11.0,
    };
    let curve = |at, factor| RateCurve {
        changes: vec![RateChange { at: ms(at), factor }],
        repeats_every: Some(ms(4_000)),
    };
    let expected = Arrivals {
        spacing: Spacing::Poisson,
        rate: Rate::PerSecond(100.0),
        bursts: Some(bursts),
        curve: curve(1_000, 2.0),
    };
    let arrivals: Vec<&Arrivals> =
        scenario.variants.iter().map(|variant| &variant.model.arrivals).collect();
    assert_eq!(*arrivals[0], expected);
    // At 50 a second between bursts and 550 in bursts, 100 on average; up to twice that by the curve.
    assert_eq!(expected.factor_range(), (0.5, 11.0));
    assert_eq!(*arrivals[1], Arrivals { rate: Rate::PerSecond(200.0), ..expected.clone() });
    assert_eq!(*arrivals[2], Arrivals { bursts: None, curve: curve(3_000, 0.5), ..expected });
}

#[test]
fn arrivals_that_make_no_sense_are_errors() {
    let zero = "{shape: constant, value: 0ms}";
    let second = "{shape: constant, value: 1s}";
    let heavy = "{shape: pareto, shortest: 1s, exponent: 1}";
    let bursts = |every: &str, lasts: &str, factor: &str| {
        format!("load_ratio: 1, bursts: {{every: {every}, lasts: {lasts}, rate_factor: {factor}}}")
    };
    let table = [
        bursts(zero, second, "2"),
        bursts(second, heavy, "2"),
        bursts(second, second, "0.5"),
        "requests_per_second: 1e8, rate_changes: [{at: 0s, factor: 1000}]".to_owned(),
        bursts("{shape: constant, value: 1us}", second, "2")
            .replace("load_ratio: 1", "requests_per_second: 0.0001"),
        "load_ratio: 1, rate_changes: [{at: 2s, factor: 1}, {at: 2s, factor: 2}]".to_owned(),
        "load_ratio: 1, rate_changes: [{at: 2s, factor: 1}], repeats_every: 2s".to_owned(),
        "load_ratio: 1, rate_changes: [{at: 2s, factor: 0}]".to_owned(),
        "load_ratio: 1, rate_changes: [{at: 0s, factor: -1}]".to_owned(),
        "load_ratio: 1, repeats_every: 2s".to_owned(),
        "load_ratio: 0.1, rate_changes: [{at: 1us, factor: 2}], repeats_every: 2us".to_owned(),
    ];
    let all: Vec<String> = table.iter().map(|keys| errors(&with_arrivals(keys))).collect();
    expect![[r#"
        test.yaml:3:45: model.arrivals.bursts.every: the mean 0 ns is too short: expected at least 1 us
        test.yaml:3:82: model.arrivals.bursts.lasts: there is no mean duration: expected a distribution with a mean
        test.yaml:3:125: model.arrivals.bursts.rate_factor: 0.5 is out of range: expected a number from 1 to 1000000
        test.yaml:3:13: model.arrivals: the rate changes to 1e11 requests per second: expected 0.000001 to 1000000000
        test.yaml:3:13: model.arrivals: the rate changes 20000 times from one request to the next: expected at most 1000 times
        test.yaml:3:70: model.arrivals.rate_changes[1].at: expected a later time than that of the change before (2 s)
        test.yaml:3:81: model.arrivals.repeats_every: 2 s is too short: expected more than the last change (2 s)
        test.yaml:3:43: model.arrivals.rate_changes: no request ever arrives in the end: expected a factor above 0
        test.yaml:3:61: model.arrivals.rate_changes[0].factor: -1 is out of range: expected a number from 0 to 1000000
        test.yaml:3:44: model.arrivals.repeats_every: there is nothing to repeat: expected rate_changes
        test.yaml:3:13: model.arrivals: the rate changes 6667 times from one request to the next: expected at most 1000 times"#]].assert_eq(&all.join("\n"));
    let slow = "requests_per_second: 0.001, rate_changes: [{at: 0s, factor: 0.001}]";
    let slow = with_arrivals(slow).replace("requests_max: 1000", "requests_max: 10000");
    assert!(errors(&slow).contains("10000 requests last 317 years"), "{}", errors(&slow));
}

/// The files of a scenario, by name.
#[derive(Debug)]
struct Files(&'static [(&'static str, &'static str)]);

impl ValueFiles for Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let found = self.0.iter().find(|(name, _)| path == Path::new(name));
        let content = found.map(|(_, content)| content.as_bytes().to_vec());
        content.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file"))
    }
}

const FILES: Files = Files(&[
    ("arrivals.txt", "10s\n10.5s\n10.5s\n13s\n"),
    ("falling.txt", "1s\n3s\n2s\n"),
    ("one.txt", "1s\n1s\n"),
    ("times.txt", "1ms\n3ms\n"),
    ("factors.txt", "0.5\n1.5\n"),
    ("negative.txt", "1\n-1\n"),
    ("empty.txt", ""),
]);

fn read_with_files(text: &str) -> Result<Scenario, String> {
    match Described::read_with_files("test.yaml", text, &[], &FILES) {
        Ok(Described::Policies(scenario)) => Ok(scenario),
        Ok(Described::Sharding(_)) => panic!("it has no sharding"),
        Err(errors) => Err(errors.to_string()),
    }
}

#[test]
fn recorded_arrivals_are_replayed_over_and_over() {
    let variants = "variants:\n  same: {}\n  drawn: {arrivals: {spacing: even}}\narms:";
    let text = with_arrivals("recorded_file: arrivals.txt").replace("arms:", variants);
    let scenario = read_with_files(&text).expect("no errors");
    let models: Vec<&Model> = scenario.variants.iter().map(|variant| &variant.model).collect();
    let timeline = models[0].timeline.as_ref().expect("it is recorded");
    let at = |ms| Instant::ZERO + Duration::from_ms(ms);
    assert_eq!(timeline.arrivals, [at(0), at(500), at(500), at(3_000)]);
    // Three gaps last 3 s, so the next arrival is 1 s after the last.
    assert_eq!(timeline.lasts, ms(4_000));
    assert!(timeline.works.is_empty() && timeline.slow_periods.is_empty());
    assert_eq!(models[0].requests_per_second(), 1.0);
    assert_eq!(models[1].arrivals, Arrivals::steady(Spacing::Even, Rate::PerSecond(1.0)));
    assert_eq!(models[1].timeline, None, "other arrivals replace the recorded ones");
}

#[test]
fn service_times_and_factors_come_from_files() {
    let text = SMALL.replace("exponential, mean: 1ms}", "samples, samples_file: times.txt}");
    let text =
        text.replace("arms:", "  call_factor: {shape: samples, samples_file: factors.txt}\narms:");
    let model = read_with_files(&text).expect("no errors").variants.remove(0).model;
    assert_eq!(model.service, Distribution::Samples(vec![ms(1), ms(3)]));
    assert_eq!(model.call_factor, Distribution::Samples(vec![0.5, 1.5]));
}

#[test]
fn errors_in_files_are_named_with_the_key_and_the_line() {
    let samples =
        |keys: &str| SMALL.replace("exponential, mean: 1ms}", &format!("samples, {keys}}}"));
    let factor = "  call_factor: {shape: samples, samples_file: negative.txt}\narms:";
    let table = [
        with_arrivals("recorded_file: falling.txt"),
        with_arrivals("recorded_file: one.txt"),
        with_arrivals("recorded_file: empty.txt"),
        with_arrivals("recorded_file: factors.txt"),
        with_arrivals("recorded_file: missing.txt"),
        with_arrivals("recorded_file: arrivals.txt, load_ratio: 1"),
        samples("samples_file: empty.txt"),
        samples("samples_file: factors.txt"),
        samples("samples_file: times.txt, values: [1ms]"),
        SMALL.replace("arms:", factor),
    ];
    let error = |text: &String| read_with_files(text).expect_err("there are errors");
    let all: Vec<String> = table.iter().map(error).collect();
    expect![[r#"
        test.yaml:3:29: model.arrivals.recorded_file: line 3: expected at least the time of the line before (3 s)
        test.yaml:3:29: model.arrivals.recorded_file: there is no rate: expected at least two different times
        test.yaml:3:29: model.arrivals.recorded_file: there is no rate: expected at least two different times
        test.yaml:3:29: model.arrivals.recorded_file: factors.txt: line 1: 0.5 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
        test.yaml:3:29: model.arrivals.recorded_file: missing.txt: no such file
        test.yaml:3:29: model.arrivals.recorded_file: expected either this or the other keys of arrivals
        test.yaml:2:43: model.service.samples_file: there is nothing to draw from: expected at least one value
        test.yaml:3:13: model.arrivals: the load needs a service time with a finite mean above zero: expected such a service time, or requests_per_second
        test.yaml:2:43: model.service.samples_file: factors.txt: line 1: 0.5 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
        test.yaml:2:43: model.service.samples_file: expected either this or values
        test.yaml:3:13: model.arrivals: the load needs a service time with a finite mean above zero: expected such a service time, or requests_per_second
        test.yaml:4:47: model.call_factor.samples_file: line 2: expected zero or more"#]].assert_eq(&all.join("\n"));
    let without = errors(&with_arrivals("recorded_file: arrivals.txt"));
    expect!["test.yaml:3:29: model.arrivals.recorded_file: files of values cannot be read here: expected the values themselves"].assert_eq(&without);
}
