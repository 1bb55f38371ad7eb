//! The end of a run of the bench: the printed result, the files and the exit code.

use crate::output::{Format, print};
use clap::Args;
use curtail_generator::Session;
use curtail_generator::Stop;
use curtail_load::Latencies;
use curtail_load::compare::Rule;
use curtail_report::results::{Results, State};
use curtail_report::{Outputs, difference, file, table};
use std::io;
use std::process::ExitCode;

use super::progress::RunProgress;
use curtail_proxy::signals::StopSignals;

#[derive(Args, Clone, Debug)]
pub(super) struct OutputArgs {
    #[command(flatten)]
    pub(super) outputs: Outputs,
    /// Output format; `json` prints what --json writes.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// Runs `session` until its end or Ctrl-C.
pub(super) fn run_session(session: &Session) -> anyhow::Result<Results> {
    // A single arm needs no name.
    let several = session.arms.len() > 1;
    let names = session.arms.iter().filter(|_| several).map(|(arm, _)| arm.name.clone());
    let mut shown = RunProgress::new(names.collect());
    let results =
        until_stopped(|stop| session.run(stop, |progress, slot| shown.show(progress, slot)));
    shown.clear();
    Ok(results??)
}

/// Runs `run`; Ctrl-C or SIGTERM stops it.
pub(crate) fn until_stopped<T: Send>(run: impl FnOnce(&Stop) -> T + Send) -> io::Result<T> {
    let stop = Stop::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _entered = runtime.enter();
        StopSignals::new()?
    };
    Ok(std::thread::scope(|scope| {
        let (over, is_over) = tokio::sync::oneshot::channel::<()>();
        let stop = &stop;
        let running = scope.spawn(move || {
            // Ended by being dropped, however the run ends.
            let _over = over;
            run(stop)
        });
        runtime.block_on(async {
            tokio::select! {
                () = signals.received() => stop.stop(),
                _ = is_over => {}
            }
        });
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }))
}

/// Prints the results and writes the requested files. The exit code is not 0 after a void or interrupted run, and if
/// every request of an arm failed.
pub(super) fn show(results: &Results, rule: &Rule, shown: &OutputArgs) -> anyhow::Result<ExitCode> {
    let OutputArgs { outputs, format } = shown;
    let comparisons = difference::all(results, rule);
    curtail_report::write(results, &comparisons, outputs)?;
    let text = match format {
        Format::Table => table::render(results, &comparisons),
        Format::Json => file::to_json(results),
    };
    print(&text)?;
    Ok(match results.state {
        State::Complete if has_dead_arm(results) => ExitCode::from(crate::exit::NO),
        State::Complete => ExitCode::SUCCESS,
        State::Partial { .. } => ExitCode::from(crate::exit::INTERRUPTED),
        State::Void { .. } => ExitCode::from(crate::exit::NO),
    })
}

/// Whether every request of an arm failed.
fn has_dead_arm(results: &Results) -> bool {
    (0..results.arms.len()).any(|arm| {
        let latencies = Latencies::merged(&results.of_arm(arm));
        latencies.count() > 0 && latencies.failures.total() == latencies.count()
    })
}

/// The command line of this process, quoted for a shell.
pub(super) fn command_line() -> String {
    let quoted = |argument: String| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
        if !argument.is_empty() && argument.bytes().all(is_plain) {
            argument
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    };
    let arguments: Vec<String> = std::env::args().skip(1).map(quoted).collect();
    format!("curtail {}", arguments.join(" "))
}
