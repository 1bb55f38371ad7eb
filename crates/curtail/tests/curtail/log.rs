//! The levels of the log (`CURTAIL_LOG`, and the key `log` of the server).

use crate::command::{curtail_with_log, written};
use crate::server::{Server, folder};
use std::fs::{self, File};
use std::process::Command;

/// Each command that logs, with arguments that end it at once.
const COMMANDS: [&[&str]; 5] = [
    &["proxy", "--config", "no-such.yaml"],
    &["server", "--data", "/dev/null/none"],
    &["testbed", "no-such.yaml"],
    &["bench", "suite", "no-such.yaml"],
    &["demo", "--seconds", "1", "--exit"],
];

#[test]
fn an_invalid_level_is_an_error_of_every_command_that_logs() {
    for (levels, part) in
        [("warning", "warning"), ("info,curtail_proxy=debgu", "curtail_proxy=debgu")]
    {
        for command in COMMANDS {
            let ended = curtail_with_log(levels, command);
            let expected = format!(
                "CURTAIL_LOG: {part:?}: expected error, warn, info, debug, trace, off or TARGET=LEVEL, \
                 separated by commas\n"
            );
            assert_eq!((ended.code, ended.stderr), (Some(2), expected), "{command:?}");
        }
    }
}

#[test]
fn the_level_of_one_target_leaves_the_errors_of_all_others() {
    for levels in ["", "error", "curtail_objects=debug", "warn, curtail_objects=off"] {
        let ended = curtail_with_log(levels, &["proxy", "--config", "no-such.yaml"]);
        assert_eq!(ended.code, Some(3), "{levels}");
        assert!(ended.stderr.contains("no-such.yaml: "), "{levels}: {}", ended.stderr);
    }
    let silent = curtail_with_log("off", &["proxy", "--config", "no-such.yaml"]);
    assert_eq!((silent.code, silent.stderr.as_str()), (Some(3), ""));
}

#[test]
fn a_reload_changes_the_log_levels_of_the_server() {
    let path = |name: &str| format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    let config = path(&written("server-log.yaml", "log: error\n"));
    let log = path("server-log.stderr");
    let mut command = Command::new(env!("CARGO_BIN_EXE_curtail"));
    command.env_remove("CURTAIL_LOG").stderr(File::create(&log).expect("a file"));
    let server = Server::run_with(&mut command, &folder("server-log"), &["--config", &config]);
    let lines = || fs::read_to_string(&log).expect("text");
    assert_eq!(lines(), "", "the start logs at level info");
    written("server-log.yaml", "log: inf\n");
    server.signal("HUP");
    while !lines().contains("log: \\\"inf\\\": expected error, warn, info") {}
    // A change of the file needs no signal.
    written("server-log.yaml", "log: info\n");
    while !lines().contains("tokens reloaded") {}
    written("server-log.yaml", "log: warn\n");
    server.signal("HUP");
    while lines().matches("tokens reloaded").count() < 2 {}
    server.ended("TERM");
}
