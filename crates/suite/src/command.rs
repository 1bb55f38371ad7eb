//! Commands: programs that have to end well, within their time.

use super::config::CommandConfig;
use super::group::{Program, Spawner, Unended};
use super::problem::Halt;
use curtail_generator::Stop;

impl CommandConfig {
    pub(super) fn program(&self) -> Program<'_> {
        Program { name: &self.name, run: &self.run, env: &self.env }
    }
}

/// Runs a command to its end.
pub(super) fn run(command: &CommandConfig, spawner: &Spawner, stop: &Stop) -> Result<(), Halt> {
    let CommandConfig { name, within, .. } = command;
    let mut group = spawner.start(command.program(), false)?;
    let log = spawner.log(name);
    match group.wait(*within, stop) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Halt::with_log(name, format!("it failed: {status}"), &log)),
        Err(Unended::Stopped) => Err(Halt::Stopped),
        Err(Unended::ExcessiveLag) => {
            let problem = format!("it has not ended: expected its end within {within}");
            Err(Halt::with_log(name, problem, &log))
        }
    }
}
