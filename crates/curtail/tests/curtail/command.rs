//! Running the command, and files for it to read.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// How a run of the command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `curtail` with these arguments in the folder of [`written`] files.
pub(crate) fn curtail(arguments: &[&str]) -> Ended {
    curtail_reading("", arguments)
}

/// The same with `input` as standard input, which must fit in a pipe.
pub(crate) fn curtail_reading(input: &str, arguments: &[&str]) -> Ended {
    end_of(
        Command::new(env!("CARGO_BIN_EXE_curtail")).args(arguments).env_remove("CURTAIL_LOG"),
        input,
    )
}

/// The same with `levels` as `CURTAIL_LOG`.
pub(crate) fn curtail_with_log(levels: &str, arguments: &[&str]) -> Ended {
    end_of(
        Command::new(env!("CARGO_BIN_EXE_curtail")).args(arguments).env("CURTAIL_LOG", levels),
        "",
    )
}

fn end_of(command: &mut Command, input: &str) -> Ended {
    let mut child = command
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command was built for this test");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A command that does not read its input may have closed it.
    stdin.write_all(input.as_bytes()).ok();
    drop(stdin);
    let output = child.wait_with_output().expect("a child of ours");
    let text = |bytes| String::from_utf8(bytes).expect("output is text");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Writes a file under a name that no other test uses; returns the name.
pub(crate) fn written(name: &str, content: impl AsRef<[u8]>) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(file, content).expect("the folder is cargo's, for tests to write in");
    name.to_owned()
}
