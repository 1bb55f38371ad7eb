//! Workloads: what is read, and what is chosen.

use super::{Workload, WorkloadConfig};
use crate::target::Target;
use curtail_units::Rng;
use std::path::Path;

const SEED: u64 = 5;

fn target() -> Target {
    Target::look_up("http://127.0.0.1:1/base?x=1").expect("a target")
}

fn workload(text: &str) -> Result<Workload, String> {
    let config =
        curtail_config::read("w.yaml", text, WorkloadConfig::read).map_err(|m| m.to_string())?;
    Workload::prepare(&config, &target(), Path::new("/nowhere"), &Rng::new(SEED))
        .map_err(|e| e.to_string())
}

#[test]
fn requests_and_tenants_are_chosen_by_weight_and_always_alike() {
    let text = "
requests: [{name: term, weight: 3, path: '/{tenant}/select?n={nth}'}, {name: facet}]
tenants: [{name: big, size: 1000, weight: 9}, {name: small, size: 10}]";
    let workload = workload(text).expect("no errors");
    let names: Vec<String> = workload
        .series()
        .iter()
        .map(|series| format!("{} {}", series.query, series.tenant))
        .collect();
    assert_eq!(names, ["term big", "term small", "facet big", "facet small"]);
    let mut counts = [0_u32; 4];
    for nth in 0..10_000 {
        let choice = workload.choose(nth);
        assert_eq!(choice, workload.choose(nth));
        counts[workload.series_of(choice)] += 1;
    }
    for (count, share) in counts.iter().zip([0.675, 0.075, 0.225, 0.025]) {
        assert!((f64::from(*count) / 10_000.0 - share).abs() < 0.02, "{counts:?}, seed {SEED}");
    }
    let of_term =
        (0..100).map(|nth| workload.choose(nth)).find(|choice| workload.series_of(*choice) == 0);
    let choice = of_term.expect("67 of 100");
    let path = workload.request(choice).path.filled(&workload.values(choice));
    assert_eq!(String::from_utf8(path), Ok(format!("/big/select?n={}", choice.nth)));
}

#[test]
fn a_journey_goes_through_its_steps_and_thinks() {
    let text = "
requests: [{name: look}, {name: buy, path: /buy}]
journeys: [{steps: [{request: look}, {request: buy, think: 100ms, think_shape: constant}, {request: look, think: 1s}]}]";
    let workload = workload(text).expect("no errors");
    let first = workload.choose(0);
    let (think, second) = workload.after(first).expect("a second step");
    assert_eq!((think.as_ms_f64(), workload.request(second).name.as_str()), (100.0, "buy"));
    let (think, third) = workload.after(second).expect("a third step");
    assert_ne!(think.as_ms_f64(), 1_000.0);
    assert_eq!(workload.after(third), None);
}

#[test]
fn all_errors_are_named_at_once() {
    let text = "
requests:
  - {name: a, weight: 0, pth: /x}
  - {name: a, headers: {accept: {value: x}}, body: x, body_file: y}
journeys: [{steps: [{request: b}]}]";
    let errors = workload(text).expect_err("errors");
    for says in ["weight: 0", "pth: unknown key", "body_file: there is a body as well"] {
        assert!(errors.contains(says), "{says} is not in:\n{errors}");
    }
    let text = "
requests:
  - {name: a, path: 'x{word}', headers: {'bad name': x}}
  - {name: b, data: words.csv, body_file: body.bin}
  - {name: c, body: '{open', body_file: body.bin}";
    let errors = workload(text).expect_err("errors");
    assert!(errors.contains("there is a body as well"), "{errors}");
    let text = "
requests:
  - {name: a, path: 'x{word}', headers: {'bad name': x}}
  - {name: b, path: '/a b', data: words.csv}
  - {name: c, path: /, body_file: body.bin}
  - {name: d, path: '/a?q=#{nth}'}";
    let errors = workload(text).expect_err("errors");
    for says in [
        "request a: path: \"x{word}\" does not begin with /",
        "request a: path: {word} is unknown",
        "request a: headers.bad name:",
        "request b: data: /nowhere/words.csv: ",
        "request c: body_file: /nowhere/body.bin: ",
        "request d: path: \"/a?q=#{nth}\" holds the byte 0x23: expected it escaped, as %23",
    ] {
        assert!(errors.contains(says), "{says} is not in:\n{errors}");
    }
}
