//! `curtail bench`: what a service's tail is, and whether a change has changed it.
//!
//! | command | does |
//! |---|---|
//! | [`load`] | sends load to one service, and prints what its requests took |
//! | [`compare`] | sends the same load to two services in interleaved blocks, and says whether they differ |
//! | [`sweep`] | latency against throughput, up to the knee |
//! | [`report`] | makes reports of what a run has found, several generators of one run merged |
//! | [`suite`] | starts what a file says, loads it, breaks it, compares, and takes it down again |
//! | [`calibrate`] | compares A against A, and prints how often a difference is found where there is none |
//! | [`buckets`] | how wrong a percentile is that was read from buckets |

mod buckets;
mod calibrate;
mod compare;
mod load;
pub(crate) mod outcome;
mod progress;
mod report;
mod suite;
mod sweep;
mod workload;

pub(crate) use calibrate::RecordedError;

use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Measure tails, and compare A against B with an error bar
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum BenchCommand {
    Load(load::LoadArgs),
    Compare(compare::CompareArgs),
    Sweep(sweep::SweepArgs),
    Report(report::ReportArgs),
    Suite(suite::SuiteArgs),
    Calibrate(calibrate::CalibrateArgs),
    Buckets(buckets::BucketsArgs),
}

/// Runs `curtail bench`.
///
/// # Errors
/// What the command below it says.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        BenchCommand::Load(args) => load::run(args),
        BenchCommand::Compare(args) => compare::run(args),
        BenchCommand::Sweep(args) => sweep::run(args),
        BenchCommand::Report(args) => report::run(args),
        BenchCommand::Suite(args) => suite::run(args),
        BenchCommand::Calibrate(args) => calibrate::run(args),
        BenchCommand::Buckets(args) => buckets::run(args),
    }
}
