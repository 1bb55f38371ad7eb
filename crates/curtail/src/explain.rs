//! `curtail explain`: why the slow requests are slow.
//!
//! | command | compares |
//! |---|---|
//! | `explain FILE…` | the slowest traces of each endpoint with the other traces of this endpoint |
//! | `explain --baseline FILE --slow FILE` | the traces of some files with those of others |

mod span_table;
mod table;

use crate::exit;
use crate::exit::usage_error;
use crate::import::{MalformedLines, ReaderEvent, read_files};
use crate::output::{Format, print, print_message, quantile};
use crate::terminal;
use clap::Args;
use curtail_explain::{Explanation, NotExplained, Question, Side, SlowTraces, Traces, explain};
use curtail_otlp::{Decoded, Limits, Signal};
use curtail_units::Quantile;
use span_table::{SPANS_MAX, SpanTable};
use std::path::PathBuf;
use std::process::ExitCode;

/// Explain why the slow requests are slow
///
/// Compares the slow traces of each endpoint with its other traces: where the
/// additional time went, and what the slow traces have in common, with intervals.
/// The files are those that `curtail import` reads: OTLP, from the Collector's
/// file exporter.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail explain traces.jsonl
  curtail explain traces.jsonl.gz --quantile 0.999
  curtail explain traces.jsonl --objective 250ms
  curtail explain --baseline before.jsonl --slow after.jsonl --format json

The result may be that nothing stands out. Exit code 1: a file could not be read
to its end."
)]
pub(crate) struct ExplainArgs {
    /// Files with traces; `-` is standard input.
    #[arg(value_name = "FILE", required_unless_present = "slow", conflicts_with_all = ["slow", "baseline"])]
    files: Vec<PathBuf>,
    /// File with the traces to compare with. Repeatable.
    #[arg(long, value_name = "FILE", requires = "slow")]
    baseline: Vec<PathBuf>,
    /// File with the traces to explain. Repeatable.
    #[arg(long, value_name = "FILE", requires = "baseline")]
    slow: Vec<PathBuf>,
    /// Traces above this quantile of their endpoint and period are slow [default: 0.99,
    /// or less if there are few traces].
    #[arg(long, value_name = "Q", value_parser = quantile, conflicts_with = "slow")]
    quantile: Option<Quantile>,
    /// Traces that take longer than this time are slow: 250ms, 1s.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["quantile", "slow"])]
    objective: Option<String>,
    /// Length of a period: only traces of the same period are compared.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    period: String,
    /// Seed of resampling and of random labels.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let mut traces = Traces::default();
    let mut is_whole = true;
    let sides =
        [(&args.files, Side::Baseline), (&args.baseline, Side::Baseline), (&args.slow, Side::Slow)];
    for (files, side) in sides.into_iter().filter(|(files, _)| !files.is_empty()) {
        let (table, is_read) = read(files)?;
        is_whole &= is_read;
        table.add_to(&mut traces, side);
    }
    let question =
        Question { slow: args.slow(traces.len())?, period_ns: args.period()?, seed: args.seed };
    match explain(&traces, &question) {
        Ok(explanation) => print(&show(&explanation, args.format))?,
        Err(error @ (NotExplained::NoneSlow | NotExplained::TooFew { .. })) => {
            print(&show_nothing(error, args.format))?;
        }
        Err(error) => return Err(usage_error(&error.to_string())),
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

fn show(explanation: &Explanation, format: Format) -> String {
    match format {
        Format::Json => {
            let json =
                serde_json::to_string_pretty(explanation).expect("it has texts and numbers only");
            format!("{json}\n")
        }
        Format::Table => table::table(explanation, terminal::width_of_stdout()),
    }
}

fn show_nothing(why: NotExplained, format: Format) -> String {
    match format {
        Format::Json => {
            let schema = curtail_explain::SCHEMA;
            let json = serde_json::json!({"schema": schema, "ranking": [], "findings": [], "why": why.to_string()});
            format!("{json:#}\n")
        }
        Format::Table => format!("Nothing stands out: {why}.\n"),
    }
}

/// Reads the spans of files; returns also whether all files were read to their ends. Malformed lines are reported and
/// skipped.
fn read(files: &[PathBuf]) -> anyhow::Result<(SpanTable, bool)> {
    let mut table = SpanTable::default();
    let mut malformed = MalformedLines::default();
    let (mut is_full, mut is_whole) = (false, true);
    read_files(files, Some(Signal::Traces), |event| match event {
        ReaderEvent::Malformed(position, error, is_lost) => {
            is_whole &= !is_lost;
            malformed
                .message(&position, &error, is_lost)
                .iter()
                .for_each(|text| print_message(text));
        }
        ReaderEvent::Batch(batch) if batch.signal == Signal::Traces && !is_full => {
            let decoded = Decoded::of(Signal::Traces, &batch.bytes, &Limits::default());
            if let Ok((Decoded::Spans(spans), _)) = decoded {
                is_full = !table.add(&batch.bytes, &spans);
            }
        }
        ReaderEvent::Batch(_) | ReaderEvent::Record => {}
    })?;
    if is_full {
        print_message(&format!("more than {SPANS_MAX} spans: the rest of the files is not used"));
        is_whole = false;
    }
    Ok((table, is_whole))
}

impl ExplainArgs {
    fn slow(&self, traces: usize) -> anyhow::Result<SlowTraces> {
        if !self.slow.is_empty() {
            return Ok(SlowTraces::OfSide);
        }
        if let Some(objective) = &self.objective {
            return Ok(SlowTraces::LongerThan { duration_ns: duration("--objective", objective)? });
        }
        Ok(SlowTraces::AboveQuantile(
            self.quantile.unwrap_or_else(|| SlowTraces::quantile_for(traces)),
        ))
    }

    fn period(&self) -> anyhow::Result<i64> {
        duration("--period", &self.period)
    }
}

fn duration(flag: &str, text: &str) -> anyhow::Result<i64> {
    let ns = curtail_api::duration_ns(text).filter(|ns| *ns > 0);
    ns.ok_or_else(|| {
        usage_error(&format!("{flag}: expected a length of time, as 250ms or 1h, found {text:?}"))
    })
}
