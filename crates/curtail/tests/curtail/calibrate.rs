//! `curtail bench calibrate`: figures that follow from the seed.

use crate::command::curtail;

#[test]
fn the_same_seed_prints_the_same_table() {
    let run = |seed: &str| {
        let ended = curtail(&[
            "bench",
            "calibrate",
            "--comparisons",
            "3",
            "--blocks",
            "10",
            "--seed",
            seed,
        ]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        ended.stdout
    };
    let table = run("7");
    assert!(table.starts_with("3 comparisons of 10 blocks an arm"), "{table}");
    assert!(table.contains("seed 7"), "{table}");
    assert_eq!(table, run("7"));
    assert_ne!(table.replace("seed 7", "seed 8"), run("8"));
}

#[test]
fn the_json_is_one_document() {
    let arguments =
        ["bench", "calibrate", "--comparisons", "1", "--blocks", "2", "--format", "json"];
    let ended = curtail(&arguments);
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(json["schema"], "curtail.calibrate/1");
    assert_eq!(json["percentiles"].as_array().map(Vec::len), Some(6));
    // Two blocks are no verdict.
    assert_eq!(json["percentiles"][0]["alarms"]["of"], 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (flag, value) in [("--blocks", "1"), ("--comparisons", "0"), ("--shift", "0")] {
        let ended = curtail(&["bench", "calibrate", flag, value]);
        assert_eq!(ended.code, Some(2), "{flag} {value}");
        assert!(ended.stderr.contains(flag), "{}", ended.stderr);
    }
}
