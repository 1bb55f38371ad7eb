//! `curtail sql`, the server's `POST /api/v1/sql`, and the program that both hand over to, which here is a shell.

use crate::server::Server;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with the command in it and nothing else.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
    std::fs::create_dir(&folder).expect("the folder is cargo's, for tests to write in");
    let program = folder.join("curtail");
    std::fs::hard_link(env!("CARGO_BIN_EXE_curtail"), program).expect("it is on the same disk");
    folder
}

/// Runs `curtail sql` from a folder; the program that it starts executes the script.
fn run_script(folder: &Path, path: &Path, script: &str) -> Output {
    let mut command = Command::new(folder.join("curtail"));
    command.args(["sql", "-c", script, "--format", "json"]).env("PATH", path);
    command.output().expect("the command was built for this test")
}

const SCRIPT: &str = "echo \"$0 $1\"; exit 7";

#[test]
fn arguments_output_and_exit_code_are_those_of_the_program_in_the_same_folder() {
    let folder = folder("sql-beside");
    symlink("/bin/sh", folder.join("curtail-sql")).expect("there is none yet");
    let ended = run_script(&folder, Path::new(""), SCRIPT);
    assert_eq!(ended.stdout, b"--format json\n", "{ended:?}");
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
}

#[test]
fn the_program_is_found_on_the_path() {
    let (folder, path) = (folder("sql-path"), folder("sql-on-path"));
    symlink("/bin/sh", path.join("curtail-sql")).expect("there is none yet");
    let ended = run_script(&folder, &path, SCRIPT);
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
}

#[test]
fn a_missing_program_is_an_error_that_says_how_to_get_it() {
    let folder = folder("sql-missing");
    let ended = run_script(&folder, &folder, SCRIPT);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(stderr.contains("`make sql` builds it"), "{stderr}");
}

/// A server in the folder of a program that executes the query as a shell script; and a pipe for its output.
fn serving(name: &str) -> (Server, PathBuf) {
    let folder = folder(name);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/stand-in/curtail-sql");
    symlink(program, folder.join("curtail-sql")).expect("there is none yet");
    let pipe = folder.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
    assert!(made.success());
    (Server::run(&mut Command::new(folder.join("curtail")), &folder.join("data")), pipe)
}

/// A query that writes `begun` to the pipe and never ends.
fn endless(pipe: &Path) -> String {
    format!("exec 3>'{}'; echo begun >&3; kill -STOP $$", pipe.display())
}

/// Waits until a query has begun; returns the pipe, which ends with the process of the query.
fn begun(pipe: &Path) -> BufReader<File> {
    let mut pipe = BufReader::new(File::open(pipe).expect("it was made"));
    let mut line = String::new();
    pipe.read_line(&mut line).expect("a pipe");
    assert_eq!(line, "begun\n");
    pipe
}

#[test]
fn the_server_returns_what_the_program_prints() {
    let (server, _) = serving("sql-server");
    let mut response = String::new();
    server.asks(r#"echo "{\"tables\":\"$2\"}""#).read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(response.contains("content-type: application/json\r\n"), "{response}");
    assert!(response.ends_with("sql-server/data/tables\"}]\n"), "{response}");
    server.ended("TERM");
}

#[test]
fn the_program_is_killed_when_the_client_has_gone() {
    let (server, pipe) = serving("sql-gone");
    let response = server.asks(&endless(&pipe));
    let mut pipe = begun(&pipe);
    drop(response);
    assert_eq!(pipe.read_to_end(&mut Vec::new()).expect("a pipe"), 0);
    server.ended("TERM");
}

#[test]
fn the_program_is_killed_when_the_server_ends() {
    let (server, pipe) = serving("sql-ends");
    let mut response = server.asks(&endless(&pipe));
    let mut pipe = begun(&pipe);
    server.ended("TERM");
    assert_eq!(pipe.read_to_end(&mut Vec::new()).expect("a pipe"), 0);
    assert_eq!(response.read_to_end(&mut Vec::new()).expect("nothing is left"), 0);
}

#[test]
fn the_server_says_what_the_command_says_where_there_is_none() {
    let folder = folder("sql-server-missing");
    let mut command = Command::new(folder.join("curtail"));
    let server = Server::run(command.env("PATH", &folder), &folder.join("data"));
    let mut response = String::new();
    server.asks("SELECT 1").read_to_string(&mut response).expect("a response");
    let stderr = run_script(&folder, &folder, SCRIPT).stderr;
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 501"), "{head}");
    assert!(body.contains(String::from_utf8_lossy(&stderr).trim_end()), "{body}");
    server.ended("TERM");
}
