//! A command that runs until it is stopped.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// A command that runs; it is killed when a test fails before it has ended.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_curtail")).args(arguments))
    }

    pub(crate) fn run(command: &mut Command) -> Self {
        let mut child = command
            .env_remove("CURTAIL_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command was built for this test");
        let stdout = child.stdout.take().expect("it is piped");
        Self { child, lines: BufReader::new(stdout).lines() }
    }

    /// The next line that it prints; waits for it.
    pub(crate) fn line(&mut self) -> String {
        self.lines.next().expect("it prints one more line").expect("output is text")
    }

    /// Everything that it still prints, up to its end.
    pub(crate) fn rest(&mut self) -> String {
        self.lines.by_ref().map(|line| line.expect("output is text") + "\n").collect()
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill is there");
        assert!(sent.success(), "SIG{name} to {pid}");
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> ExitStatus {
        self.child.wait().expect("it was not waited for before")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process has ended, or the test has failed and nothing else will end the process.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
