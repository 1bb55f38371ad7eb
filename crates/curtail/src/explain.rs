//! `curtail explain`: why the slow requests are slow.
//!
//! | command | compares |
//! |---|---|
//! | `explain --service S` | the slowest traces of a server that begin at a service with the others |
//! | `explain FILE…` | the slowest traces of each operation with the other traces of this operation |
//! | `explain --baseline FILE --slow FILE` | the traces of some files with those of others |
//! | `explain … --between A B` | the traces of a time, or with a value of an attribute, with those of another |

mod watch;

use crate::exit::{self, usage_error};
use crate::import::{MalformedLines, ReaderEvent, read_files};
use crate::output::{Format, print, print_message, quantile};
use crate::query::request::command_for;
use crate::server_traces::{SERVER_TRACES_FLAGS, ServerTracesArgs};
use crate::server_url::ServerUrl;
use crate::terminal;
use clap::{ArgGroup, Args};
use curtail_api::{Comparison, SpanTable, SpanTableError, explanation_json, explanation_text};
use curtail_explain::{
    Explanation, NotExplained, Question, Side, SlowTraces, Tenants, Traces, explain,
};
use curtail_http::clock::unix_time;
use curtail_otlp::Signal;
use curtail_threads::run_on_all_processors;
use curtail_units::Quantile;
use std::path::PathBuf;
use std::process::ExitCode;

/// Maximum number of spans of files, and of their bytes.
const SPANS_MAX: usize = 40_000_000;
const BYTES_MAX: usize = 32 << 30;

/// Explain why the slow requests are slow
///
/// Compares the slow traces of each operation with its other traces: where the
/// additional time went, and what the slow traces have in common, with intervals.
/// The traces are those of a server, or of files that `curtail import` reads: OTLP,
/// from the Collector's file exporter.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    group = ArgGroup::new("source").args(["files", "slow", "service", "watch"]).required(true).multiple(true),
    after_help = "\
Examples:
  curtail explain --service shop --since 1h
  curtail explain traces.jsonl
  curtail explain traces.jsonl.gz --quantile 0.999
  curtail explain traces.jsonl --objective 250ms
  curtail explain --baseline before.jsonl --slow after.jsonl --format json
  curtail explain --service shop --between 2h..1h 1h..now
  curtail explain --service shop --by-tenant tenant.id
  curtail explain traces.jsonl --between service.version=1.4 service.version=1.5
  curtail explain --watch 5m --webhook https://hooks.example.com/T0/B0

The result may be that nothing stands out. Exit code 1: a file could not be read
to its end, or no trace of the server begins at the service."
)]
pub(crate) struct ExplainArgs {
    /// Files with traces; `-` is standard input.
    #[arg(value_name = "FILE", conflicts_with_all = ["slow", "baseline", "watch"], conflicts_with_all = SERVER_TRACES_FLAGS)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    traces: ServerTracesArgs,
    /// File with the traces to compare with. Repeatable.
    #[arg(long, value_name = "FILE", requires = "slow", conflicts_with_all = SERVER_TRACES_FLAGS)]
    baseline: Vec<PathBuf>,
    /// File with the traces to explain. Repeatable.
    #[arg(long, value_name = "FILE", requires = "baseline", conflicts_with_all = SERVER_TRACES_FLAGS)]
    slow: Vec<PathBuf>,
    /// Compare the traces of A with those of B: what changed? Each is ATTRIBUTE=VALUE,
    /// or a time range in which traces began: 2h..1h before now, 1h..now, or
    /// FROM..TO in RFC 3339.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["slow", "quantile", "objective"])]
    between: Vec<String>,
    /// Traces above this quantile of their operation and period are slow [default: 0.99,
    /// or less if there are few traces].
    #[arg(long, value_name = "Q", value_parser = quantile, conflicts_with = "slow")]
    quantile: Option<Quantile>,
    /// Traces that take longer than this time are slow: 250ms, 1s.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["quantile", "slow"])]
    objective: Option<String>,
    /// Length of a period: only traces of the same period are compared.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    period: String,
    /// Also print percentiles by tenant: by the values of this attribute, and by the
    /// number of requests that tenants have.
    #[arg(long, value_name = "ATTRIBUTE", conflicts_with = "watch")]
    by_tenant: Option<String>,
    /// Explain the traces of each such interval, of --service or of all services, and
    /// print what is new: a finding of two intervals in a row. Ctrl-C stops it.
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "5m", conflicts_with_all = ["slow", "between", "since", "until", "operation", "quantile", "objective"])]
    watch: Option<String>,
    /// Also send what is new to this URL: POST of JSON, with `text` for people.
    #[arg(long, value_name = "URL", requires = "watch")]
    webhook: Option<ServerUrl>,
    /// Also keep what is new on the server, as log records named curtail.finding.
    #[arg(long, requires = "watch")]
    keep: bool,
    /// URL of the OTLP receiver that keeps it, without `/v1/logs`.
    #[arg(long, value_name = "URL", requires = "keep", default_value = "http://127.0.0.1:4318")]
    to: ServerUrl,
    /// Seed of resampling and of random labels.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    if let Some(every) = &args.watch {
        return args.watch(every);
    }
    if args.traces.service.is_some() {
        return args.ask_server();
    }
    let mut traces = Traces::default();
    let mut is_whole = true;
    if let Some(mut comparison) = args.comparison()? {
        let (table, is_read) = read(&args.files)?;
        is_whole = is_read;
        table.add_compared(&mut traces, &mut comparison);
        comparison.check().map_err(|why| usage_error(&why))?;
        return args.explain(&traces, is_whole);
    }
    let sides =
        [(&args.files, Side::Baseline), (&args.baseline, Side::Baseline), (&args.slow, Side::Slow)];
    for (files, side) in sides.into_iter().filter(|(files, _)| !files.is_empty()) {
        let (table, is_read) = read(files)?;
        is_whole &= is_read;
        table.add_to(&mut traces, side);
    }
    args.explain(&traces, is_whole)
}

/// Reads the spans of files; returns also whether all files were read to their ends. Malformed lines are reported and
/// skipped.
fn read(files: &[PathBuf]) -> anyhow::Result<(SpanTable, bool)> {
    let mut table = SpanTable::new(SPANS_MAX, BYTES_MAX);
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
            is_full = match table.add(&batch.bytes) {
                // The reader reports what is malformed.
                Ok(()) | Err(SpanTableError::Malformed(_)) => false,
                Err(SpanTableError::TooManySpans | SpanTableError::TooManyBytes) => true,
            };
        }
        ReaderEvent::Batch(_) | ReaderEvent::Record => {}
    })?;
    if is_full {
        print_message(&format!(
            "more than {SPANS_MAX} spans or {} GiB: the rest of the files is not used",
            BYTES_MAX >> 30
        ));
        is_whole = false;
    }
    Ok((table, is_whole))
}

impl ExplainArgs {
    fn explain(&self, traces: &Traces, is_whole: bool) -> anyhow::Result<ExitCode> {
        let question =
            Question { slow: self.slow(traces.len())?, period_ns: self.period()?, seed: self.seed };
        let explained = explain(traces, &question, run_on_all_processors);
        let tenants = self.by_tenant.as_deref().map(|key| Tenants::of(traces, key));
        let explained = explained.map(|explanation| Explanation { tenants, ..explanation });
        if let Err(
            error @ (NotExplained::NoTraces
            | NotExplained::EmptySide
            | NotExplained::NoCommonOperation),
        ) = explained
        {
            return Err(usage_error(&error.to_string()));
        }
        print(&match self.format {
            Format::Json => explanation_json(&explained),
            Format::Table => explanation_text(&explained, terminal::width_of_stdout()),
        })?;
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
    }

    /// The two populations of `--between`.
    fn comparison(&self) -> anyhow::Result<Option<Comparison>> {
        let [baseline, slow] = &*self.between else { return Ok(None) };
        let now_ns = i64::try_from(unix_time().as_ns()).unwrap_or(i64::MAX);
        let comparison = Comparison::parse([baseline, slow], now_ns);
        comparison.map(Some).map_err(|why| usage_error(&format!("--between: {why}")))
    }

    fn slow(&self, traces: usize) -> anyhow::Result<SlowTraces> {
        if !self.slow.is_empty() || !self.between.is_empty() {
            return Ok(SlowTraces::OfSide);
        }
        if let Some(objective) = &self.objective {
            return Ok(SlowTraces::LongerThan { duration_ns: duration("--objective", objective)? });
        }
        Ok(SlowTraces::AboveQuantile(
            self.quantile.unwrap_or_else(|| SlowTraces::quantile_for(traces)),
        ))
    }

    fn ask_server(&self) -> anyhow::Result<ExitCode> {
        let parameters = [
            ("quantile", self.quantile.map(|quantile| quantile.get().to_string())),
            ("objective", self.objective.clone()),
            ("baseline", self.between.first().cloned()),
            ("slow", self.between.get(1).cloned()),
            ("period", Some(self.period.clone())),
            ("seed", Some(self.seed.to_string())),
            ("by_tenant", self.by_tenant.clone()),
            ("width", Some(terminal::width_of_stdout().to_string())),
        ];
        match self.traces.ask("/api/v1/explain", &parameters, self.format)? {
            Ok(response) => print(&self.with_server(&response))?,
            Err(ended) => return Ok(ended),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The text of the server, whose commands ask the same server: it does not know its URL here.
    fn with_server(&self, text: &str) -> String {
        if self.format == Format::Json {
            return text.to_owned();
        }
        let line = |line: &str| {
            if line.trim_start().starts_with("curtail query ") {
                command_for(line, self.traces.server()) + "\n"
            } else {
                format!("{line}\n")
            }
        };
        text.lines().map(line).collect()
    }

    fn watch(&self, every: &str) -> anyhow::Result<ExitCode> {
        let every_ns = duration("--watch", every)?;
        if every_ns < watch::EVERY_MIN_NS {
            return Err(usage_error("--watch: expected at least 1s"));
        }
        self.period()?;
        watch::run(&watch::Plan {
            every_ns,
            server: self.traces.server().to_owned(),
            access: self.traces.access().clone(),
            service: self.traces.service.clone(),
            period: self.period.clone(),
            seed: self.seed,
            webhook: self.webhook.clone(),
            keep: self.keep.then(|| self.to.clone()),
            format: self.format,
        })
    }

    fn period(&self) -> anyhow::Result<i64> {
        duration("--period", &self.period)
    }
}

fn duration(flag: &str, text: &str) -> anyhow::Result<i64> {
    // A number alone would be seconds for the server.
    let has_unit = text.parse::<f64>().is_err();
    let ns = curtail_api::duration_ns(text).filter(|ns| has_unit && *ns > 0);
    ns.ok_or_else(|| {
        usage_error(&format!("{flag}: expected a length of time, as 250ms or 1h, found {text:?}"))
    })
}
