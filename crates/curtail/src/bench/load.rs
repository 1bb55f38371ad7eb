//! `curtail bench load URL`: sends load to one service, and prints what its requests took.

use super::screen::Screen;
use super::workload::{WorkloadArgs, duration};
use crate::stop::StopSignals;
use clap::{Args, ValueEnum};
use curtail_bench::Session;
use curtail_bench::generator::Stop;
use curtail_bench::results::{Arm, Results, State};
use curtail_bench::session::WarmUp;
use curtail_units::{Duration, Rng};
use std::process::ExitCode;

/// Send load to a service, and print what its requests took
///
/// Requests are sent when the plan says so, whether or not others have been
/// answered, and latency counts from then: a pause of the server is felt by all
/// requests that it delays.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail bench load http://127.0.0.1:8080/ --rate 1000 --for 20s
  curtail bench load http://127.0.0.1:8080 --path '/search?q={word}' --data words.csv
  curtail bench load http://127.0.0.1:8080 --file workload.yaml --json run.json

Exit code 1 says that the run is void: the generator could not keep up."
)]
pub(crate) struct LoadArgs {
    /// Where requests go: `http://` or `https://`.
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// How long load is sent before it counts: `none`, a time, or `auto`, until latencies are steady.
    #[arg(long, value_name = "TIME", default_value = "none", value_parser = warm_up)]
    warm_up: WarmUp,
    /// Where all randomness comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Until it is steady, load is sent at most so long.
const WARM_UP_MAX: Duration = Duration::from_secs(120);

/// Runs `curtail bench load`.
///
/// # Errors
/// When the URL is none, a file has mistakes, or results cannot be written.
pub(crate) fn run(args: &LoadArgs) -> anyhow::Result<ExitCode> {
    let load = args.workload.load(&args.url, &Rng::new(args.seed))?;
    let about = load.target.to_string();
    let session = Session {
        name: args.url.clone(),
        command: command_line(),
        seed: args.seed,
        about_load: args.workload.about(),
        arms: vec![(Arm { name: args.url.clone(), about, rate: None }, load)],
        blocks: 1,
        warm_up: args.warm_up,
    };
    let results = run_session(&session)?;
    println!("{}", curtail_bench::report::file::to_json(&results));
    Ok(exit_code(&results))
}

/// Runs `session` until it is over or Ctrl-C is pressed.
///
/// # Errors
/// When the system gives no thread, no timer or no signals.
pub(super) fn run_session(session: &Session) -> anyhow::Result<Results> {
    let stop = Stop::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _entered = runtime.enter();
        StopSignals::new()?
    };
    let mut screen = Screen::new(session.arms.iter().map(|(arm, _)| arm.name.clone()).collect());
    let results = std::thread::scope(|scope| {
        let (over, is_over) = tokio::sync::oneshot::channel::<()>();
        let running = scope.spawn(|| {
            // Told by being dropped, however the run ends.
            let _over = over;
            session.run(&stop, |progress, slot| screen.show(progress, slot))
        });
        runtime.block_on(async {
            tokio::select! {
                _ = signals.told() => stop.stop(),
                _ = is_over => {}
            }
        });
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    screen.clear();
    Ok(results?)
}

/// What the caller learns from how a run ended.
pub(super) fn exit_code(results: &Results) -> ExitCode {
    match results.state {
        State::Complete => ExitCode::SUCCESS,
        State::Partial { .. } => ExitCode::from(crate::exit::INTERRUPTED),
        State::Void { .. } => ExitCode::from(crate::exit::NO),
    }
}

/// The command line, as the shell had it.
pub(super) fn command_line() -> String {
    let quoted = |argument: String| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
        if !argument.is_empty() && argument.bytes().all(is_plain) {
            argument
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    };
    let program = std::env::args().take(1).map(|_| "curtail".to_owned());
    let arguments: Vec<String> = program.chain(std::env::args().skip(1).map(quoted)).collect();
    arguments.join(" ")
}

pub(super) fn warm_up(text: &str) -> Result<WarmUp, String> {
    match text {
        "none" => Ok(WarmUp::None),
        "auto" => Ok(WarmUp::Steady { at_most: WARM_UP_MAX }),
        time => duration(time)
            .map(WarmUp::Lasts)
            .map_err(|_| "expected none, auto or a time (10s)".to_owned()),
    }
}
