//! `curtail sql` and the program that it hands over to, which here is a shell.

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
    let there = folder.join("curtail");
    std::fs::hard_link(env!("CARGO_BIN_EXE_curtail"), there).expect("it is on the same disk");
    folder
}

/// Asks the command in a folder to run a script in the program that it hands over to.
fn asked(folder: &Path, path: &Path, script: &str) -> Output {
    let mut command = Command::new(folder.join("curtail"));
    command.args(["sql", "-c", script, "--format", "json"]).env("PATH", path);
    command.output().expect("the command was built for this test")
}

const SCRIPT: &str = "echo \"$0 $1\"; exit 7";

#[test]
fn arguments_output_and_exit_code_are_those_of_the_program_beside_it() {
    let folder = folder("sql-beside");
    symlink("/bin/sh", folder.join("curtail-sql")).expect("there is none yet");
    let ended = asked(&folder, Path::new(""), SCRIPT);
    assert_eq!(ended.stdout, b"--format json\n", "{ended:?}");
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
}

#[test]
fn the_program_is_found_on_the_path() {
    let (folder, path) = (folder("sql-path"), folder("sql-on-path"));
    symlink("/bin/sh", path.join("curtail-sql")).expect("there is none yet");
    let ended = asked(&folder, &path, SCRIPT);
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
}

#[test]
fn where_there_is_none_it_is_said_how_to_get_it() {
    let folder = folder("sql-missing");
    let ended = asked(&folder, &folder, SCRIPT);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("`make sql` builds it"), "{said}");
}
