//! Kills the processes of a suite when this process was killed or has crashed.
//!
//! A shell reads lines of process groups from a pipe. The pipe ends when this process ends, and the shell then kills
//! the groups of the last line. After a proper end the last line is empty.
//! **Limits**: needs a shell (`sh`). A group that starts while this process is killed may survive.

use rustix::process::Pid;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

const SCRIPT: &str = "\
while read -r line; do groups=$line; done
for group in $groups; do kill -s KILL -- \"-$group\" 2>/dev/null; done
";

/// The shell, and the process groups that it knows.
#[derive(Debug)]
pub(super) struct Watchdog {
    child: Child,
    groups: Mutex<WatchedGroups>,
}

#[derive(Debug)]
struct WatchedGroups {
    pipe: Option<ChildStdin>,
    groups: Vec<Pid>,
}

impl Watchdog {
    pub(super) fn start() -> io::Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT])
            // Ctrl-C at the terminal is not meant for it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = child.stdin.take();
        Ok(Self { child, groups: Mutex::new(WatchedGroups { pipe, groups: Vec::new() }) })
    }

    pub(super) fn add(&self, group: Pid) {
        self.change(|groups| groups.push(group));
    }

    pub(super) fn remove(&self, group: Pid) {
        self.change(|groups| groups.retain(|each| *each != group));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Pid>)) {
        let mut watched = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut watched.groups);
        let pids: Vec<String> =
            watched.groups.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
        if let Some(pipe) = &mut watched.pipe {
            // It may have been killed by somebody; then there is no such guard any more, and nothing else is worse.
            let _written = writeln!(pipe, "{}", pids.join(" ")).and_then(|()| pipe.flush());
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.groups.get_mut().unwrap_or_else(PoisonError::into_inner).pipe = None;
        let _status = self.child.wait();
    }
}
