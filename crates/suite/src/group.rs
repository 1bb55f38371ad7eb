//! A program of a suite in a process group of its own, so that all that it starts can be stopped, paused and killed
//! with it.
//!
//! **Invariant**: nothing of a group stays behind. It gets SIGTERM, after a bounded time SIGKILL,
//! and killed when it is dropped; a paused process continues before its SIGTERM. What leaves the group (`setsid`, daemons)
//! is not seen here.

use super::problem::Halt;
use super::usage;
use super::watchdog::Watchdog;
use curtail_generator::Stop;
use curtail_units::Duration;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// From one look at what is waited for to the next.
pub(super) const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(20);

/// Waits before the next look.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes and their servers tell nobody what they have come to: one has to look"
)]
pub(super) fn pause(lasts: std::time::Duration) {
    std::thread::sleep(lasts);
}

/// What was killed has to be gone within this time; one that still exists hangs in the kernel, and is reported.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// Where programs of a suite run, and who kills them when this process cannot.
#[derive(Clone, Debug)]
pub(super) struct Spawner {
    /// The folder of the suite.
    pub(super) folder: PathBuf,
    /// The folder of the run.
    pub(super) dir: PathBuf,
    pub(super) watchdog: Arc<Watchdog>,
}

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'a> {
    pub(super) name: &'a str,
    pub(super) run: &'a [String],
    pub(super) env: &'a [(String, String)],
}

/// A program that runs, and all that it has started.
#[derive(Debug)]
pub(super) struct Group {
    child: Child,
    pid: Pid,
    /// The end of the program itself, once it is known.
    status: Option<ExitStatus>,
    /// Whether nothing of it is left.
    is_gone: bool,
    watchdog: Arc<Watchdog>,
}

impl Spawner {
    /// Where a program's output goes.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name: String = name.chars().map(|c| if is_part(c) { c } else { '_' }).collect();
        self.dir.join(format!("{name}.log"))
    }

    /// Starts a program. Its errors go to its log, and so does what else it prints, unless that is to be read here.
    pub(super) fn start(&self, program: Program<'_>, is_read: bool) -> Result<Group, Halt> {
        let Program { name, run, env } = program;
        let log = self.log(name);
        let to = |file: io::Result<File>| {
            file.map_err(|error| Halt::io(name, &log.display().to_string(), &error))
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
            .map_err(|error| Halt::io(name, &program.display().to_string(), &error))?;
        let pid = Pid::from_child(&child);
        self.watchdog.add(pid);
        let watchdog = Arc::clone(&self.watchdog);
        Ok(Group { child, pid, status: None, is_gone: false, watchdog })
    }
}

impl Group {
    /// The group's number, which is that of the program.
    pub(super) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Everything that it prints, when that is read here.
    pub(super) fn take_output(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// How the program itself has ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // The only error that there can be: somebody else has waited for it, and then it has ended.
            self.status = self.child.try_wait().unwrap_or_else(|_| Some(ExitStatus::default()));
        }
        self.status
    }

    /// Sends a signal to all of the group.
    pub(super) fn signal(&mut self, signal: Signal) {
        if !self.is_gone {
            // There may be nobody left to hear it.
            let _sent = kill_process_group(self.pid, signal);
        }
    }

    /// Whether nothing of it is left.
    fn is_gone(&mut self) -> bool {
        if !self.is_gone && self.ended().is_some() {
            // Those that have ended and were not waited for (by the process that adopted them) can still be signalled.
            self.is_gone = test_kill_process_group(self.pid).is_err()
                || usage::of_groups(&[self.pid])[0].alive == 0;
            if self.is_gone {
                self.watchdog.remove(self.pid);
            }
        }
        self.is_gone
    }

    /// Waits until the program has ended by itself; whatever it has left behind is killed.
    pub(super) fn wait(&mut self, within: Duration, stop: &Stop) -> Result<ExitStatus, Unended> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                self.kill();
                return Ok(status);
            }
            if stop.is_stopped() {
                return Err(Unended::Stopped);
            }
            if Duration::from(began.elapsed()) >= within {
                return Err(Unended::ExcessiveLag);
            }
            pause(LOOK_EVERY);
        }
    }

    /// Ends all of it: tells it, and kills what is left after `within`. Whether that was necessary.
    pub(super) fn stop(&mut self, within: Duration) -> bool {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        let is_gone_by_sigterm = self.is_gone_within(within);
        self.kill();
        !is_gone_by_sigterm
    }

    /// Kills all of it, and waits until it is gone.
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

/// Why a program has not ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unended {
    /// The suite was stopped.
    Stopped,
    /// Its time is over.
    ExcessiveLag,
}
