//! `curtail bench report`: prints the results of a run.

use super::outcome::{self, OutputArgs};
use clap::Args;
use curtail_load::compare::Rule;
use curtail_report::file;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make reports from the results of a run
///
/// If several generators shared a run (--share), pass the file of each generator.
/// The command merges their histograms without loss.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail bench report run.json
  curtail bench report run.json --html run.html --hgrm run.hgrm
  curtail bench report generator-1.json generator-2.json --json run.json"
)]
pub(crate) struct ReportArgs {
    /// Results files (JSON) of one run, one file for each generator.
    #[arg(value_name = "RESULTS", required = true)]
    results: Vec<PathBuf>,
    #[command(flatten)]
    shown: OutputArgs,
}

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let parts = args.results.iter().map(|path| file::read(path));
    let results = curtail_report::merge(parts.collect::<Result<_, _>>()?)?;
    outcome::show(&results, &Rule::default(), &args.shown)
}
