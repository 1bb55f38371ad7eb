//! Running the command, and files for it to read.

use std::path::Path;
use std::process::Command;

/// How a run of the command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `curtail` with these arguments in the folder of [`written`] files.
pub(crate) fn curtail(arguments: &[&str]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_curtail"))
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .env_remove("CURTAIL_LOG")
        .output()
        .expect("the command was built for this test");
    let text = |bytes| String::from_utf8(bytes).expect("output is text");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Writes a file under a name that no other test uses; returns the name.
pub(crate) fn written(name: &str, content: impl AsRef<[u8]>) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(file, content).expect("the folder is cargo's, for tests to write in");
    name.to_owned()
}
