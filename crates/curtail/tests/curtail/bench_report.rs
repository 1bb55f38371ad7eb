//! `curtail bench report`: reports of recorded runs, as people and scripts see them.

use crate::command::{curtail, written};
use crate::server::folder;
use expect_test::expect;
use std::path::Path;

/// A short run, recorded.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../report/src/file/recorded.json");

#[test]
fn a_run_is_shown_as_a_table() {
    let ended = curtail(&["bench", "report", RECORDED]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    expect![[r#"
        search, 2026-11-22 18:04:03 UTC, seed 1
        load: 1,000 requests/s, Poisson, 8 blocks of 10 s
        generator: 4 cores, Imaginary 3000, Linux 6.1

        ms                          p50     p90     p95     p99   p99.9  p99.99     max
        direct: 10,095 requests, 1,008 of 1,000 a second
          response                9.023   24.80   32.27   51.07  ~83.79     n/a  failed
          service                 9.023   24.80   32.27   51.07  ~83.79     n/a  failed
          generator lag                                   0.093   0.139
          FAILED: 3 (0.030 %): closed 2, timeout 1
          the longest response took 125.7 ms
          CPU time in ms a request: generator 0.012, servers 0.892
          19.1 MiB received over 64 connections

        by query, response in ms              requests  failed     p50     p99   p99.9
        term                                     5,073       2   4.970  ~29.93     n/a
        facet                                    5,022       1   14.80  ~57.95     n/a

        by tenant, response in ms             requests  failed     p50     p99   p99.9
        large, size 1,000,000                    3,316       1   13.92  ~60.31     n/a
        medium, size 50,000                      3,375       2   7.322  ~38.55     n/a
        small, size 1,000                        3,404       0   7.072  ~38.65     n/a

        response: from when a request was to be sent to the end of its response, what a
            user waits; service: from when it was sent. They part when the server holds
            requests back. lag: how late the generator was.
        ~ fewer than 100 requests are longer; n/a fewer than 10 are; a request that
            failed is longer than every response.
    "#]]
    .assert_eq(&ended.stdout);
}

#[test]
fn two_generators_are_one_run_with_twice_as_many_requests() {
    let folder = folder("bench-report");
    std::fs::create_dir_all(&folder).expect("a folder");
    let at = |name: &str| folder.join(name).display().to_string();
    let (merged, page) = (at("merged.json"), at("merged.html"));
    let files = ["--json", &merged, "--html", &page, "--format", "json"];
    let one = std::fs::read_to_string(RECORDED).expect("it is there");
    let halves = ["1", "2"].map(|nth| {
        let share = format!(r#""shares":{{"of":2,"sent":[{nth}]}},"load":"#);
        written(&format!("bench-half-{nth}.json"), one.replace(r#""load":"#, &share))
    });
    let halves = ["bench", "report", &halves[0], &halves[1]];
    let ended = curtail(&[&halves[..], &files[..]].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let requests = |text: &str| {
        let json: serde_json::Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(json["schema"], "curtail.bench/1");
        json["figures"][0]["requests"].as_u64().expect("a number")
    };
    assert_eq!(requests(&ended.stdout), 2 * requests(&one));
    assert_eq!(std::fs::read_to_string(&merged).expect("it was written"), ended.stdout);
    let page = std::fs::read_to_string(Path::new(&page)).expect("it was written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
}

#[test]
fn what_cannot_be_read_or_merged_is_named_and_has_its_exit_code() {
    let recorded = std::fs::read_to_string(RECORDED).expect("it is there");
    let cut = written("bench-cut.json", &recorded[..recorded.len() / 2]);
    let ended = curtail(&["bench", "report", RECORDED, &cut]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    let expected = "expected more: the file was cut off\n";
    assert!(ended.stderr.starts_with("bench-cut.json: line 1, column "), "{}", ended.stderr);
    assert!(ended.stderr.ends_with(expected), "{}", ended.stderr);

    let other = written("bench-other.json", recorded.replace("\"seed\":1,", "\"seed\":2,"));
    let ended = curtail(&["bench", "report", RECORDED, &other]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        the results are not of one run: the seed is 1 in the first of them and 2 in number 2
    "#]]
    .assert_eq(&ended.stderr);

    let ended = curtail(&["bench", "report", RECORDED, RECORDED]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "two runs are not one");
    assert!(ended.stderr.contains("number 2 sent share 1/1 of the plan again"), "{}", ended.stderr);

    let ended = curtail(&["bench", "report", "/nowhere/run.json"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    expect![[r#"
        /nowhere/run.json: No such file or directory (os error 2)
    "#]]
    .assert_eq(&ended.stderr);

    let ended = curtail(&["bench", "report", RECORDED, "--html", "/nowhere/run.html"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    expect![[r#"
        /nowhere/run.html: No such file or directory (os error 2)
    "#]]
    .assert_eq(&ended.stderr);
}
