//! `curtail bench`: measures the tail of a service, and compares services.
//!
//! | command | does |
//! |---|---|
//! | [`load`] | sends load to one service, and prints the latencies |
//! | [`compare`] | sends the same load to two services in interleaved blocks, with a verdict for each percentile |
//! | [`sweep`] | measures latency against throughput, up to the knee |
//! | [`report`] | prints the results of a run, merged from several generators |
//! | [`suite`] | runs a whole experiment: starts servers, sends load, injects faults, compares |
//! | [`calibrate`] | compares A against A, and prints the rate of false alarms |
//! | [`buckets`] | measures the error of percentiles that are read from buckets |

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
