//! `curtail bench compare A B`: interleaves blocks of load on two services, with a verdict for each percentile.

use super::load::warm_up;
use super::outcome::{self, OutputArgs};
use super::workload::WorkloadArgs;
use clap::Args;
use curtail_generator::Session;
use curtail_generator::session::{Turns, WarmUp};
use curtail_load::compare::{BLOCKS_DEFAULT, Rule};
use curtail_report::results::Arm;
use curtail_units::Rng;
use std::process::ExitCode;

/// Compare the latency of two services, with a verdict for each percentile
///
/// The command interleaves blocks of load for A and B (A B, B A, ...). The two
/// blocks of a pair send the same requests with the same spacing. Each percentile
/// gets a verdict on B: better, worse, equivalent, undecided, not enough (too few
/// requests to decide) or failed (in A and in B, the percentile is a failed
/// request). The verdicts `undecided` and `not enough` also say how many blocks
/// more a new run should have. Choose the number of blocks in advance, and do not
/// stop early.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    mut_arg("lasts", |lasts| lasts.default_value("15s")),
    after_help = "\
Examples:
  curtail bench compare http://127.0.0.1:8080/ http://127.0.0.1:7300/
  curtail bench compare http://old:80/ http://new:80/ --rate 1000 --blocks 20
  curtail bench compare http://a:80 http://b:80 --file load.yaml --html ab.html

The default, 80 blocks of 15 s for each of A and B, takes 40 minutes and the
warm-up. With --rate 1000 (default: 100), 80 blocks detect a shift of p99 by
10 % in four runs out of five. 20 blocks detect a shift by 25 % as often.

Exit code 1: every request of A or of B failed, or the result is void because
the generator could not keep up with its plan. Verdicts leave the exit code 0."
)]
pub(crate) struct CompareArgs {
    /// URL of A.
    #[arg(value_name = "A")]
    a: String,
    /// URL of B.
    #[arg(value_name = "B")]
    b: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Number of blocks for A, and for B; --for is the duration of one block.
    #[arg(long, value_name = "NUMBER", default_value_t = BLOCKS_DEFAULT, value_parser = blocks)]
    blocks: usize,
    /// Send to A and B at the same time; only if A and B run on separate machines.
    #[arg(long)]
    mirrored: bool,
    /// Duration of the warm-up: `none`, a time, or `auto` (until latencies are steady).
    #[arg(long, value_name = "TIME", default_value = "auto", value_parser = warm_up)]
    warm_up: WarmUp,
    #[command(flatten)]
    shown: OutputArgs,
}

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
        command: outcome::command_line(),
        seed: args.workload.seed,
        about_load: format!("{}, {} blocks each", args.workload.about(&a.1), args.blocks),
        arms: vec![a, b],
        blocks: args.blocks,
        turns: if args.mirrored { Turns::Mirrored } else { Turns::Alternate },
        warm_up: args.warm_up,
    };
    outcome::show(&outcome::run_session(&session)?, &Rule::default(), &args.shown)
}

fn blocks(text: &str) -> Result<usize, String> {
    let wrong = || "expected a number of blocks from 1 to 10000".to_owned();
    let blocks = text.parse().map_err(|_| wrong())?;
    if (1..=10_000).contains(&blocks) { Ok(blocks) } else { Err(wrong()) }
}
