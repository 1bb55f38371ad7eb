//! The program as a process of its own, and what it logs.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// The file of the program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_curtail-proxy-tested");

/// A process that is killed in the end if it still runs.
pub(crate) struct Program {
    child: Child,
    log: Arc<Log>,
}

/// What it says on standard error, line by line.
#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    changed: Notify,
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_to(arguments, Stdio::inherit())
    }

    /// Starts it with this standard output.
    pub(crate) fn start_to(arguments: &[&str], stdout: Stdio) -> Self {
        let mut command = Command::new(PROGRAM);
        Self::spawn(command.args(arguments).stdout(stdout))
    }

    /// Starts a command that becomes the program.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program is there");
        let stderr = child.stderr.take().expect("it is piped");
        let log = Arc::new(Log::default());
        let writes = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in std::io::BufRead::lines(std::io::BufReader::new(stderr)) {
                let Ok(line) = line else { return };
                writes.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                writes.changed.notify_waiters();
            }
        });
        Self { child, log }
    }

    /// Waits for a line that says all of `parts`; those before `from` do not count.
    pub(crate) async fn says(&self, from: usize, parts: &[&str]) -> String {
        loop {
            let changed = self.log.changed.notified();
            let found = self
                .lines()
                .into_iter()
                .skip(from)
                .find(|line| parts.iter().all(|p| line.contains(p)));
            if let Some(line) = found {
                return line;
            }
            changed.await;
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.log.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().expect("kill is there");
        assert!(sent.success());
    }

    /// Where its listener `in` listens, as it says itself.
    pub(crate) async fn address(&self) -> SocketAddr {
        self.listener("in").await
    }

    /// Where the listener with this name listens, as the program says itself.
    pub(crate) async fn listener(&self, name: &str) -> SocketAddr {
        self.said_address(&["\"listening\"", &format!("\"{name}\"")]).await
    }

    /// Where its admin port listens, as it says itself.
    pub(crate) async fn admin_address(&self) -> SocketAddr {
        self.said_address(&["metrics, health and state"]).await
    }

    /// The address in the log line with these parts.
    async fn said_address(&self, parts: &[&str]) -> SocketAddr {
        let line = self.says(0, parts).await;
        let line: serde_json::Value =
            serde_json::from_str(&line).expect("JSON, as the output is no terminal");
        let address = line["fields"]["address"].as_str().expect("an address");
        address.parse().expect("an address")
    }

    /// Waits for its end.
    pub(crate) async fn exit_code(mut self) -> Option<i32> {
        let ended =
            tokio::task::spawn_blocking(move || self.child.wait().expect("a child of ours"));
        ended.await.expect("no panic").code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error says that it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
