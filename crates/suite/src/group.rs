//! A program of a suite in its own process group, so that signals reach all processes that it starts.
//!
//! **Invariant**: no process of a group outlives its [`Group`]. A stop continues paused processes and sends SIGTERM to
//! the group, then SIGKILL after a limited time. Dropping a [`Group`] sends SIGKILL at once. Processes that leave the
//! group (`setsid`, daemons) are not followed.

use super::config::CommandConfig;
use super::problem::SuiteEnd;
use super::watchdog::Watchdog;
use curtail_generator::Stop;
use curtail_metrics::process::GroupUsage;
use curtail_units::Duration;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Instant;

pub(super) const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(20);

/// Sleeps between two checks.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes do not report their state: it must be polled"
)]
pub(super) fn pause(lasts: std::time::Duration) {
    std::thread::sleep(lasts);
}

/// Maximum wait for a killed group; a group that still exists then hangs in the kernel.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// The folders of the programs of a suite, and the watchdog that kills them when this process cannot.
#[derive(Clone, Debug)]
pub(super) struct Spawner {
    pub(super) folder: PathBuf,
    pub(super) dir: PathBuf,
    pub(super) watchdog: Arc<Watchdog>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'a> {
    pub(super) name: &'a str,
    pub(super) run: &'a [String],
    pub(super) env: &'a [(String, String)],
}

/// The messages for a command that failed, and for one that did not end in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandProblems<'a> {
    pub(super) failed: &'a str,
    pub(super) late: &'a str,
}

#[derive(Debug)]
pub(super) struct Group {
    child: Child,
    pid: Pid,
    status: Option<ExitStatus>,
    is_gone: bool,
    watchdog: Arc<Watchdog>,
}

impl Spawner {
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.file(&format!("{name}.log"))
    }

    /// A file of this name in the folder of the run.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name: String = name.chars().map(|c| if is_part(c) { c } else { '_' }).collect();
        self.dir.join(name)
    }

    /// Starts a program. Its standard error goes to its log, and so does its standard output unless `is_read`.
    pub(super) fn start(&self, program: Program<'_>, is_read: bool) -> Result<Group, SuiteEnd> {
        let Program { name, run, env } = program;
        let log = self.log(name);
        let to = |file: io::Result<File>| {
            file.map_err(|error| SuiteEnd::io(name, &log.display().to_string(), &error))
        };
        let errors = to(File::options().create(true).append(true).open(&log))?;
        let output = if is_read { Stdio::piped() } else { to(errors.try_clone())?.into() };
        let path = Path::new(&run[0]);
        let is_relative = path.is_relative() && run[0].contains('/');
        let program = if is_relative { self.folder.join(path) } else { path.to_owned() };
        let child = Command::new(&program)
            .args(&run[1..])
            .envs(env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|error| SuiteEnd::io(name, &program.display().to_string(), &error))?;
        let pid = Pid::from_child(&child);
        self.watchdog.add(pid);
        let watchdog = Arc::clone(&self.watchdog);
        Ok(Group { child, pid, status: None, is_gone: false, watchdog })
    }

    pub(super) fn run(&self, command: &CommandConfig, stop: &Stop) -> Result<(), SuiteEnd> {
        let late = format!("it has not ended: expected its end within {}", command.within);
        let mut group = self.start(command.program(), false)?;
        let problems = CommandProblems { failed: "it failed", late: &late };
        self.finish(command, &mut group, stop, problems)
    }

    /// Waits for the end of a command.
    pub(super) fn finish(
        &self,
        CommandConfig { name, within, .. }: &CommandConfig,
        group: &mut Group,
        stop: &Stop,
        CommandProblems { failed, late }: CommandProblems<'_>,
    ) -> Result<(), SuiteEnd> {
        let problem = match group.wait(*within, stop) {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => format!("{failed}: {status}"),
            Err(WaitError::Stopped) => return Err(SuiteEnd::Stopped),
            Err(WaitError::TimedOut) => late.to_owned(),
        };
        Err(SuiteEnd::with_log(name, problem, &self.log(name)))
    }
}

impl CommandConfig {
    pub(super) fn program(&self) -> Program<'_> {
        Program { name: &self.name, run: &self.run, env: &self.env }
    }
}

impl Group {
    /// The number of the process group, which is the process ID of the program.
    pub(super) const fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub(super) fn usage(&self) -> GroupUsage {
        GroupUsage::of(&[self.id()])[0]
    }

    /// The output of the program, if the program was started with `is_read`.
    pub(super) fn take_output(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// The exit status of the program itself, if it has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // The only possible error is that the program was waited for elsewhere, so it has ended.
            self.status = self.child.try_wait().unwrap_or_else(|_| Some(ExitStatus::default()));
        }
        self.status
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        if !self.is_gone {
            // There may be no process left.
            let _sent = kill_process_group(self.pid, signal);
        }
    }

    fn is_gone(&mut self) -> bool {
        if !self.is_gone && self.ended().is_some() {
            // Zombies can still be signalled.
            self.is_gone = test_kill_process_group(self.pid).is_err() || self.usage().alive == 0;
            if self.is_gone {
                self.watchdog.remove(self.pid);
            }
        }
        self.is_gone
    }

    /// Waits until the program has ended, then kills the remaining processes.
    fn wait(&mut self, within: Duration, stop: &Stop) -> Result<ExitStatus, WaitError> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                self.kill();
                return Ok(status);
            }
            if stop.is_stopped() {
                return Err(WaitError::Stopped);
            }
            if Duration::from(began.elapsed()) >= within {
                return Err(WaitError::TimedOut);
            }
            pause(LOOK_EVERY);
        }
    }

    /// Ends the group with SIGTERM, after `within` with SIGKILL. Returns whether SIGKILL was necessary.
    pub(super) fn stop(&mut self, within: Duration) -> bool {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let is_gone_by_sigterm = self.is_gone_within(within);
        self.kill();
        !is_gone_by_sigterm
    }

    pub(super) fn kill(&mut self) {
        if !self.is_gone() {
            self.signal(Signal::KILL);
            self.is_gone_within(KILLED_WITHIN);
        }
    }

    fn is_gone_within(&mut self, within: Duration) -> bool {
        let began = Instant::now();
        while !self.is_gone() {
            if Duration::from(began.elapsed()) >= within {
                return false;
            }
            pause(LOOK_EVERY);
        }
        true
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitError {
    /// The suite was stopped.
    Stopped,
    /// The time was over before the program ended.
    TimedOut,
}
