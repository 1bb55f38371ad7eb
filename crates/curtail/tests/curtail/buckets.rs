//! `curtail bench buckets`, with Google's data and with a file.

use crate::command::{curtail, written};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    let all = [&["bench", "buckets", "--format", "json"], arguments].concat();
    let ended = curtail(&all);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{all:?}");
    serde_json::from_str(&ended.stdout).expect("it is JSON")
}

/// A read of a layout: its value in ms, two standard deviations, the error.
fn read(response: &Value, layout: &str, quantile: usize) -> (f64, f64, f64) {
    let layouts = response["layouts"].as_array().expect("a list");
    let layout = layouts.iter().find(|found| found["name"] == layout).expect("it was requested");
    let read = &layout["read"][quantile];
    let number = |key: &str| read[key].as_f64().expect("a number");
    (number("value_ns") / 1e6, number("spread_ns") / 1e6, number("error_ratio"))
}

#[test]
fn googles_table_comes_out_with_its_sampling_error() {
    let response = json(&["--quantile", "0.5,0.99", "--seed", "1"]);
    assert_eq!(response["data"]["values"], 100_000);
    // The document's figures are each of one sample, to one decimal.
    let is_near = |what: &str, got: f64, spread: f64, published: f64| {
        let margin = 0.05 + spread;
        assert!((got - published).abs() <= margin, "{what}: {got} ± {spread}, {published}");
    };
    for (nth, published) in [18.5, 49.5].into_iter().enumerate() {
        let exact = &response["exact"][nth];
        let number = |key: &str| exact[key].as_f64().expect("a number") / 1e6;
        is_near("exact", number("value_ns"), number("spread_ns"), published);
    }
    for (layout, published) in
        [("growth 2", [19.2, 62.0]), ("growth 1.4", [18.7, 53.9]), ("growth 1.2", [18.6, 51.1])]
    {
        for (nth, published) in published.into_iter().enumerate() {
            let (got, spread, _) = read(&response, layout, nth);
            assert!(spread > 0.0, "{layout}: no sampling error");
            is_near(layout, got, spread, published);
        }
    }
    let (_, _, error) = read(&response, "growth 2", 1);
    assert!((error - 0.254).abs() < 0.02, "{error}");
}

#[test]
fn a_file_and_what_its_layouts_make_of_it() {
    // 1 to 1,000 ms, so that a quantile is its own number.
    let numbers: String = (1..=1_000).map(|ms| format!("{ms},x\n")).collect();
    let file = written("buckets-column.csv", format!("elapsed,other\n{numbers}"));
    let all = ["--data", &file, "--column", "elapsed"];
    let response =
        json(&[&all[..], &["--bounds", "prometheus", "--quantile", "0.3,0.99,1"]].concat());
    assert_eq!(response["data"]["min_ns"], 1_000_000);
    assert_eq!(response["exact"][1]["value_ns"], 990e6);
    // 300 lies in (250, 500], 990 and 1,000 in (500, 1000]: linear, like the data.
    for (nth, expected) in [300e6, 990e6, 1_000e6].into_iter().enumerate() {
        let got = response["layouts"][0]["read"][nth]["value_ns"].as_f64().expect("a number");
        assert!((got / expected - 1.0).abs() < 1e-12, "{got}, expected {expected}");
    }
    assert_eq!(response["layouts"][0]["read"][0]["spread_ns"], Value::Null);
    // The same numbers as seconds lie beyond all bounds but the last.
    let args = [&all[..], &["--unit", "s", "--bounds", "prometheus", "--quantile", "0.5"]].concat();
    assert_eq!(json(&args)["layouts"][0]["read"][0]["value_ns"], 10e9);
}

#[test]
fn the_table_and_the_plot_fit_a_terminal() {
    let file = written("buckets-few.txt", (1..=50).map(|ms| format!("{ms}\n")).collect::<String>());
    let page = format!("{}/buckets.html", env!("CARGO_TARGET_TMPDIR"));
    let lists = ["--scale=-3,8,20", "--schema", "3", "--bounds", "otel", "--growth", "10"];
    let all = [&["bench", "buckets", "--data", &file, "--html", &page][..], &lists].concat();
    let ended = curtail(&all);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    assert!(widest(&ended.stdout) <= Some(80), "{}", ended.stdout);
    let drawn = curtail(&["bench", "buckets", "--seed", "18446744073709551615"]);
    assert!(widest(&drawn.stdout) <= Some(80), "{}", drawn.stdout);
    assert!(ended.stdout.contains("Fewer than 100 values lie beyond p50, p90, p99, p99.9"));
    assert!(ended.stdout.contains("SDKs lower the scale"), "{}", ended.stdout);
    let page = std::fs::read_to_string(&page).expect("it was written");
    assert!(page.contains("<path class=\"s0 thin\"") && page.contains("otel scale -3"), "{page}");
    assert!(!page.contains("http:") && !page.contains("https:"), "it needs nothing else");
}

#[test]
fn what_is_no_layout_and_no_data_is_refused() {
    let bad = written("buckets-bad.txt", "1\ntwo\n");
    for (arguments, code, expected) in [
        (&["--growth", "1"][..], 2, "--growth: 1 is out of range: expected a growth factor"),
        (&["--bounds", "5,5"], 2, "--bounds: 5 ms comes after 5 ms: expected bounds that rise"),
        (
            &["--bounds", "5,x"],
            2,
            "--bounds: expected a number of ms from 0 to 100 days, found \"x\"",
        ),
        (&["--scale", "21"], 2, "--scale: 21 is out of range: expected a scale from -10 to 20"),
        (&["--schema=-5"], 2, "--schema: -5 is out of range: expected a schema from -4 to 8"),
        (&["--quantile", "99"], 2, "99 is out of range: expected a quantile from 0 to 1"),
        (&["--error-max", "5%"], 2, "expected a share from 0.001 to 10 (0.05 for 5 %)"),
        (&["--data", &bad], 3, "buckets-bad.txt: line 2: expected a number of ms"),
        (&["--data", "buckets-missing.txt"], 3, "buckets-missing.txt: No such file"),
    ] {
        let ended = curtail(&[&["bench", "buckets"], arguments].concat());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
}
