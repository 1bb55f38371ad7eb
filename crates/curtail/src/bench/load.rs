//! `curtail bench load URL`: sends load to one service, and prints the latencies.

use super::outcome::{self, OutputArgs};
use super::workload::{WorkloadArgs, duration};
use clap::Args;
use curtail_generator::Session;
use curtail_generator::session::{Turns, WARM_UP_MAX, WarmUp};
use curtail_load::compare::Rule;
use curtail_report::results::Arm;
use curtail_units::Rng;
use std::process::ExitCode;

/// Send load to a service, and print the latencies
///
/// The generator plans the time of each request in advance, and does not wait for
/// responses. Only in a journey (a sequence of requests, see --file), each step
/// waits for the response to the step before. Latency is measured from the planned
/// time, so a pause of the server raises the latency of delayed requests.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail bench load http://127.0.0.1:8080/ --rate 1000 --for 20s
  curtail bench load http://127.0.0.1:8080 --path '/get?q={q}' --data words.csv
  curtail bench load http://127.0.0.1:8080 --file workload.yaml --html run.html

Exit code 1: every request failed, or the result is void because the generator
could not keep up with its plan."
)]
pub(crate) struct LoadArgs {
    /// URL of the service: `http://` or `https://`.
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Duration of the warm-up: `none`, a time, or `auto` (until latencies are steady).
    #[arg(long, value_name = "TIME", default_value = "none", value_parser = warm_up)]
    warm_up: WarmUp,
    #[command(flatten)]
    shown: OutputArgs,
}

pub(crate) fn run(args: &LoadArgs) -> anyhow::Result<ExitCode> {
    let load = args.workload.load(&args.url, &Rng::new(args.workload.seed))?;
    let about = load.target.to_string();
    let about_load = args.workload.about(&load);
    let session = Session {
        name: args.url.clone(),
        command: outcome::command_line(),
        seed: args.workload.seed,
        about_load,
        arms: vec![(Arm { name: args.url.clone(), about, rate: None }, load)],
        blocks: 1,
        turns: Turns::Alternate,
        warm_up: args.warm_up,
    };
    outcome::show(&outcome::run_session(&session)?, &Rule::default(), &args.shown)
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
