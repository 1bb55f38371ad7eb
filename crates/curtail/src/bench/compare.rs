//! `curtail bench compare A B`: sends the same load to two services by turns, and says whether they differ.

use super::ended::{self, Shown};
use super::load::warm_up;
use super::workload::WorkloadArgs;
use clap::Args;
use curtail_bench::Session;
use curtail_bench::results::Arm;
use curtail_bench::session::{Turns, WarmUp};
use curtail_load::compare::{BLOCKS_DEFAULT, Rule};
use curtail_units::Rng;
use std::process::ExitCode;

/// Compare two services: is B's tail shorter than A's, surely?
///
/// Blocks of load go to A and B by turns (A B, B A, ...), both blocks of a pair
/// with the same requests at the same instants. The verdict is about each
/// percentile: better, worse, equivalent, or undecided and how many more blocks
/// would decide. Settle the number of blocks before, and do not stop on the way.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    mut_arg("lasts", |lasts| lasts.default_value("15s")),
    after_help = "\
Examples:
  curtail bench compare http://127.0.0.1:8080/ http://127.0.0.1:7300/
  curtail bench compare http://old:80/ http://new:80/ --rate 1000 --blocks 20
  curtail bench compare http://a:80 http://b:80 --file workload.yaml --html ab.html

By default 80 blocks of 15 s of each arm, 40 minutes: what finds a shift of p99 by
10 % at 1,000 requests a second, four times out of five. 20 blocks find one by 25 %.
Exit code 1 says that the run is void because the generator could not keep up, or
that every request of A or of B failed."
)]
pub(crate) struct CompareArgs {
    /// Where the requests of A go.
    #[arg(value_name = "A")]
    a: String,
    /// Where those of B go.
    #[arg(value_name = "B")]
    b: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// How many blocks of load each gets; --for says how long one is.
    #[arg(long, value_name = "NUMBER", default_value_t = BLOCKS_DEFAULT, value_parser = blocks)]
    blocks: usize,
    /// Send to both at once instead of by turns; for services on machines of their own.
    #[arg(long)]
    mirrored: bool,
    /// How long load is sent before it counts: `none`, a time, or `auto`, until latencies are steady.
    #[arg(long, value_name = "TIME", default_value = "auto", value_parser = warm_up)]
    warm_up: WarmUp,
    #[command(flatten)]
    shown: Shown,
}

/// Runs `curtail bench compare`.
///
/// # Errors
/// When a URL is none, a file has mistakes, or results cannot be written.
pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let rng = Rng::new(args.workload.seed);
    let arm = |name: &str, url: &str| {
        let load = args.workload.load(url, &rng)?;
        let about = load.target.to_string();
        Ok::<_, anyhow::Error>((Arm { name: name.to_owned(), about, rate: None }, load))
    };
    let (a, b) = (arm("A", &args.a)?, arm("B", &args.b)?);
    let session = Session {
        name: format!("{} and {}", args.a, args.b),
        command: ended::command_line(),
        seed: args.workload.seed,
        about_load: format!("{}, {} blocks each", args.workload.about(&a.1), args.blocks),
        arms: vec![a, b],
        blocks: args.blocks,
        turns: if args.mirrored { Turns::Mirrored } else { Turns::Alternate },
        warm_up: args.warm_up,
    };
    ended::show(&ended::run_session(&session)?, &Rule::default(), &args.shown)
}

fn blocks(text: &str) -> Result<usize, String> {
    let wrong = || "expected a number of blocks from 1 to 10000".to_owned();
    let blocks = text.parse().map_err(|_| wrong())?;
    if (1..=10_000).contains(&blocks) { Ok(blocks) } else { Err(wrong()) }
}
