use super::{ReadError, from_json, read, replace, to_json};
use crate::Results;
use crate::results::State;
use crate::sample;
use curtail_units::{Duration, Instant};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A folder of this test's own in the system's temporary one.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("curtail-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn write(results: &Results, file: &Path) -> std::io::Result<()> {
    replace(file, to_json(results).as_bytes())
}

fn read_error(text: &str) -> String {
    from_json(Path::new("a.json"), text.as_bytes()).expect_err("damaged").to_string()
}

/// The error of reading a small file after a change.
fn error_after(change: impl FnOnce(&mut Value)) -> String {
    let mut json: Value = serde_json::from_str(&to_json(&sample::single(1))).expect("JSON");
    change(&mut json);
    read_error(&json.to_string())
}

#[test]
fn what_is_written_is_read_back_equal() {
    let folder = folder("results");
    let file = folder.join("run.json");
    let mut run = sample::compared(2);
    run.blocks[0].resent = 7;
    for (seed, state) in [
        (0, State::Complete),
        (u64::MAX, State::Partial { why: "interrupted".to_owned() }),
        (1 << 53, State::Void { why: "the generator was \"late\"".to_owned() }),
    ] {
        (run.seed, run.state) = (seed, state);
        write(&run, &file).expect("it can be written");
        assert!(read(&file).expect("it can be read") == run);
    }
    assert_eq!(
        std::fs::read_dir(&folder).expect("a folder").count(),
        1,
        "no temporary file is left"
    );
    std::fs::remove_dir_all(folder).expect("it can be removed");
}

#[test]
fn a_run_that_found_nothing_yet_is_a_file_too() {
    let mut run = sample::single(1);
    run.blocks.clear();
    run.state = State::Partial { why: "interrupted while warming up".to_owned() };
    let again = from_json(Path::new("a.json"), to_json(&run).as_bytes()).expect("a results file");
    assert!(again == run, "it reads back as another");
    let mut long = sample::single(1);
    for _ in 0..3 {
        // Sums beyond 2^64 nanoseconds, and durations without a bucket of their own.
        long.blocks[0].latencies[0].response.record_n(Duration::MAX, 1 << 40);
    }
    let again = from_json(Path::new("a.json"), to_json(&long).as_bytes()).expect("a results file");
    assert!(again == long, "it reads back as another");
}

#[test]
fn programs_find_the_figures_without_a_reader_of_histograms() {
    let json: Value = serde_json::from_str(&to_json(&sample::compared(1))).expect("JSON");
    assert_eq!(json["schema"], "curtail.bench/1");
    assert_eq!(json["figures"][1]["arm"], "hedged");
    let p99 = json["figures"][1]["response"]["p99_ns"].as_f64().expect("a number");
    assert!((1e7..1e9).contains(&p99), "{p99}");
}

#[test]
fn a_file_that_was_cut_off_anywhere_says_so() {
    let text = to_json(&sample::single(1));
    for len in (0..text.len() - 2).step_by(97) {
        let error = read_error(&text[..len]);
        assert!(error.starts_with("a.json: line "), "{error}");
        assert!(error.ends_with(": expected more: the file was cut off"), "after {len}: {error}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let expectations = [
        (
            read_error("7"),
            "a.json: line 1, column 1: expected a results file (invalid type: integer `7`, expected an object with a `schema` at line 1 column 1)",
        ),
        (
            read_error("{}"),
            "a.json: schema: expected \"curtail.bench/1\", which `curtail bench` writes; it is not there",
        ),
        (
            read_error(r#"{"schema":"curtail.simulate/1"}"#),
            "a.json: schema: expected \"curtail.bench/1\", which `curtail bench` writes; it is \"curtail.simulate/1\"",
        ),
        (
            error_after(|json| json["blocks"][1]["arm"] = json!(7)),
            "a.json: blocks[1].arm: expected the place of one of 1 arms",
        ),
        (
            error_after(|json| json["series"] = json!([])),
            "a.json: blocks[0].latencies: expected one for each of 0 series",
        ),
    ];
    for (error, expected) in expectations {
        assert_eq!(error, expected);
    }
    let within_a_block = [
        (
            error_after(|json| {
                json["blocks"][1]["latencies"][2]["service"]["hdr_v2"] = json!("AAAA")
            }),
            "latencies[2].service.hdr_v2: expected a cookie of 4 bytes",
        ),
        (
            error_after(|json| json["blocks"][0]["latencies"][0]["response"]["count"] = json!(1)),
            "latencies[0].response.count: expected 1634, the sum of the counts in hdr_v2",
        ),
        (
            error_after(|json| {
                json["blocks"][0]["latencies"][0]["failures"] = json!({ "tired": 1 })
            }),
            "latencies[0].failures.tired: expected one of connect, closed, timeout, malformed, too_long, status, check, ended",
        ),
        (
            error_after(|json| json["blocks"][0]["timeline"]["slot_count"] = json!(5_000)),
            "timeline.slot_count: expected at most 1024",
        ),
        (
            error_after(|json| json["blocks"][0]["timeline"]["slots"][3]["nth"] = json!(99)),
            "timeline.slots[3].nth: expected less than 20",
        ),
    ];
    for (error, expected) in within_a_block {
        assert!(error.starts_with("a.json: line 1, column "), "{error}");
        assert!(
            error.contains(&format!("expected a results file ({expected} at line 1")),
            "{error}"
        );
    }
    let error = error_after(|json| json["seed"] = json!(-1));
    assert!(error.contains("expected a results file (invalid value: integer `-1`"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = read(Path::new("/nowhere/run.json")).expect_err("there is none");
    assert!(matches!(error, ReadError::Io { .. }));
    assert_eq!(error.to_string(), "/nowhere/run.json");
    let error = write(&sample::single(1), Path::new("/nowhere/run.json")).expect_err("no folder");
    assert!(error.to_string().starts_with("/nowhere/run.json: "), "{error}");
}

/// A file of the first version stays readable: this one was written when there was no other, and is never written anew.
#[test]
fn a_file_of_this_schema_stays_readable() {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/file/recorded.json"));
    let run: Results = sample::single(1);
    assert!(read(file).expect("a results file") == run, "it reads as another");
}

#[test]
fn a_measure_that_was_not_there_is_null() {
    let mut run = sample::compared(1);
    run.measures[0].points = vec![(Instant::ZERO, f64::NAN), (Instant::from_ns(5), 2.5)];
    let text = to_json(&run);
    assert!(text.contains(r#""points":[[0,null],[5,2.5]]"#), "it is not there");
    let again = from_json(Path::new("a.json"), text.as_bytes()).expect("a results file");
    assert!(again.measures[0].points[0].1.is_nan());
    assert_eq!(again.measures[0].points[1], run.measures[0].points[1]);
}
