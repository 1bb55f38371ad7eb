//! The pages of docs/reference are what the commands say today.
//!
//! `UPDATE_EXPECT=1 cargo test -p curtail` writes them anew.

use crate::command::curtail;
use expect_test::expect_file;
use std::fmt::Write as _;

const CLI_HEAD: &str = "\
# The command line

Generated from the commands' own help; a test keeps it fresh.

`curtail-proxy` is a separate, smaller program that contains only `curtail proxy`.

Standard output carries results, standard error everything else. `CURTAIL_LOG` sets the log levels of `proxy` and `server`
(default `info`), and of `bench`, `demo` and `testbed` (default `warn`): `CURTAIL_LOG=debug`. The key `log` of the server
replaces these levels. All other commands have no log.

| exit code | meaning |
|---|---|
| 0 | success; also if a signal stopped a service, or the reader of the output closed it |
| 1 | the result is negative: a void run, nothing found, skipped input, a replay that differs |
| 2 | usage or configuration |
| 3 | environment: an address in use, a file that cannot be read |
| 4 | a bug of curtail |
| 130 | interrupted (Ctrl-C, SIGTERM) before the result |
";

const METRICS_HEAD: &str = "\
# Metrics

Generated from the tables from which the programs write their metrics; a test keeps it fresh.

`GET /metrics` returns Prometheus's text format 0.0.4, OpenMetrics 1.0 to a scraper that prefers it, or protobuf with native
histograms to a scraper that prefers protobuf.
The number of series depends on the configuration and on the discovered replicas, never on the requests of clients.

";

const PROXY_METRICS_HEAD: &str = "\
## The proxy

The proxy serves these metrics on its admin address. The values of `reason` are those of the policies. Each page of
docs/concepts names the reasons of its policy.

";

const SERVER_METRICS_HEAD: &str = "
## The server

The server serves these metrics on the address of its query API.

";

#[test]
fn the_configuration_page_is_fresh() {
    expect_file!["../../../../docs/reference/config.md"]
        .assert_eq(&curtail(&["config", "reference"]).stdout);
}

#[test]
fn the_json_schema_is_fresh() {
    expect_file!["../../../../docs/reference/config.schema.json"]
        .assert_eq(&curtail(&["config", "schema"]).stdout);
}

#[test]
fn the_complete_file_is_fresh() {
    expect_file!["../../../../docs/reference/config.default.yaml"]
        .assert_eq(&curtail(&["config", "default"]).stdout);
}

#[test]
fn the_pages_of_the_server_are_fresh() {
    let printed = |what| curtail(&["config", "--kind", "server", what]).stdout;
    expect_file!["../../../../docs/reference/server.md"].assert_eq(&printed("reference"));
    expect_file!["../../../../docs/reference/server.schema.json"].assert_eq(&printed("schema"));
    expect_file!["../../../../docs/reference/server.default.yaml"].assert_eq(&printed("default"));
}

#[test]
fn the_page_of_the_command_line_is_fresh() {
    let mut page = CLI_HEAD.to_owned();
    help(&mut Vec::new(), &mut page);
    expect_file!["../../../../docs/reference/cli.md"].assert_eq(&page);
}

#[test]
fn the_page_of_suites_is_fresh() {
    expect_file!["../../../../docs/reference/suite.md"]
        .assert_eq(&curtail(&["bench", "suite", "--keys"]).stdout);
}

#[test]
fn the_page_of_the_metrics_is_fresh() {
    let page = format!(
        "{METRICS_HEAD}{PROXY_METRICS_HEAD}{}{SERVER_METRICS_HEAD}{}",
        curtail_proxy::metrics_reference(),
        curtail_server::metrics_reference()
    );
    expect_file!["../../../../docs/reference/metrics.md"].assert_eq(&page);
}

/// Appends the help of a command and of all commands below it.
fn help(command: &mut Vec<String>, page: &mut String) {
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    let text = curtail(&arguments).stdout;
    let name =
        ["curtail".to_owned()].iter().chain(command.iter()).cloned().collect::<Vec<_>>().join(" ");
    write!(page, "\n## {name}\n\n```text\n{}\n```\n", text.trim_end())
        .expect("a String takes everything");
    let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    // A continuation line is indented further.
    let names = listed
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next());
    for below in names.filter(|name| *name != "help") {
        command.push(below.to_owned());
        help(command, page);
        command.pop();
    }
}
