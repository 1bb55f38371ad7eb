//! Running the program.

use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// How a run of the program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a query on the tables of a folder, with further arguments.
pub(crate) fn run_query(data: &Path, arguments: &[&str], query: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_curtail-sql"));
    command.arg("--data").arg(data).args(arguments).arg("-");
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the program was built for this test");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(query.as_bytes()).expect("it reads all of it");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("output is text");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The rows of a result: each an array of its values.
pub(crate) fn rows(data: &Path, query: &str) -> Vec<Value> {
    let ended = run_query(data, &["--format", "json"], query);
    assert_eq!(ended.code, Some(0), "{query}: {ended:?}");
    let lines = ended.stdout.lines().map(serde_json::from_str::<Value>);
    lines.map(|line| line.expect("a line is an object")).collect()
}
