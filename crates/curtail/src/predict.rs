//! `curtail predict`: predicts what each remedy would do to the tail of a service, from a recording.

use crate::exit::usage_error;
use crate::import;
use crate::input;
use crate::output::{Format, print, print_message};
use crate::query::request::command_for;
use crate::server_traces::{SERVER_TRACES_FLAGS, ServerTracesArgs};
use crate::server_url::ServerUrl;
use anyhow::Context as _;
use clap::{ArgGroup, Args};
use curtail_http::clock::unix_time;
use curtail_otlp::{Signal, events};
use curtail_predict::{
    CORES, Cancelled, Candidate, CoreLimit, Fit, FitOverrides, Prediction, REQUESTS_MAX, Recording,
    RecordingError, SpanReader, has_hedges_or_ties,
};
use serde_json::{Value, json};
use std::io::{self, BufRead, Cursor, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum size of a results file; `bench` writes none that is larger.
const RESULTS_BYTES_MAX: u64 = 1 << 30;

/// Maximum size of a line of spans: more than a server accepts as a batch.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// The bytes at the start of a recording that tell its kind.
const HEAD_BYTES: u64 = 256;

/// Predict what each remedy would do to the tail of a service
///
/// Fits a model to a recording of the service: arrivals, work, slow periods of
/// each replica. Then simulates the service with each remedy, with the very
/// policies of the proxy. A recording is a journal of the proxy
/// (curtail proxy --journal), spans in OTLP JSON with one batch a line, or
/// results of curtail bench load, and may be compressed with gzip or zstd. A server
/// predicts from the traces that it stores.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    group = ArgGroup::new("recording").args(["from", "service"]).required(true),
    after_help = "\
Examples:
  curtail predict --service search --since 1h
  curtail predict --service search --since 1h --keep
  curtail predict --from requests.journal
  curtail predict --from spans.jsonl.gz --upstream search --format json
  curtail predict --from run.json --replicas 5 --intrinsic-ratio 0.3
  curtail predict --from requests.journal --cores 2 --cancelled runs_on

Exit code 1: the model does not reproduce the recording, or no trace of the
server begins at the service."
)]
pub(crate) struct PredictArgs {
    /// Recording to predict from; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = SERVER_TRACES_FLAGS)]
    from: Option<PathBuf>,
    #[command(flatten)]
    traces: ServerTracesArgs,
    /// Upstream or service of the recording, or arm of the results; needed if there are several.
    /// Shards of a fan-out in spans: a pattern, such as 'shard-*'.
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    /// Number of replicas, if the recording does not name them [default there: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    replicas: Option<u32>,
    /// Share of requests that take equally long on every replica, from 0 to 1 [default: estimated from the recording].
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    intrinsic_ratio: Option<f64>,
    /// Number of cores that the executions at one replica share, such as the CPU limit of a container [default: estimated from a journal].
    #[arg(long, value_name = "CORES", value_parser = cores)]
    cores: Option<f64>,
    /// Number of cores that all replicas share, as processes on one machine [default: estimated from a journal].
    #[arg(long, value_name = "CORES", value_parser = cores, conflicts_with = "cores")]
    shared_cores: Option<f64>,
    /// Effect of a cancelled attempt at its server: it `stops`, `leaves_queue` (but goes on if it executes), or `runs_on` in any case [default: stops].
    #[arg(long, value_name = "EFFECT", value_parser = cancelled)]
    cancelled: Option<Cancelled>,
    /// Comma-separated names of the remedies to predict, such as 'hedge p95,tie' [default: all].
    #[arg(long, value_name = "NAMES")]
    remedies: Option<String>,
    /// Keep the prediction on the server, for curtail scorecard, if the model reproduces the recording.
    #[arg(long, requires = "service")]
    keep: bool,
    /// URL of the OTLP receiver that keeps it, without `/v1/logs`.
    #[arg(long, value_name = "URL", requires = "keep", default_value = "http://127.0.0.1:4318")]
    to: ServerUrl,
    /// Seed of all randomness.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

fn ratio(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "expected a ratio from 0 to 1".to_owned())
}

fn cores(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| CORES.contains(number));
    number.ok_or_else(|| format!("expected a number from {} to {}", CORES.start(), CORES.end()))
}

fn cancelled(text: &str) -> Result<Cancelled, String> {
    Cancelled::from_name(text).ok_or_else(|| "expected stops, leaves_queue or runs_on".to_owned())
}

pub(crate) fn run(args: &PredictArgs) -> anyhow::Result<ExitCode> {
    let Some(from) = &args.from else { return ask_server(args) };
    let name = input::name(from);
    let overrides = FitOverrides {
        replicas: args.replicas,
        intrinsic_ratio: args.intrinsic_ratio,
        core_limit: {
            let per_replica = args.cores.map(CoreLimit::PerReplica);
            per_replica.or(args.shared_cores.map(CoreLimit::AllReplicas))
        },
        cancelled: args.cancelled,
    };
    let mut recording = read(args, from)?;
    recording.shorten(REQUESTS_MAX);
    let fit = Fit::new(&recording, overrides).map_err(of_caller).context(name)?;
    let candidates = match &args.remedies {
        Some(names) => Candidate::named(&fit, names).map_err(of_caller)?,
        None => Candidate::all(&fit),
    };
    let prediction = Prediction::of(&recording, fit, candidates, args.seed);
    match args.format {
        Format::Json => print(&format!("{}\n", prediction.json()))?,
        Format::Table => print(&prediction.table())?,
    }
    let is_reproduced = prediction.difference().is_none();
    Ok(if is_reproduced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Has a server predict from its traces.
fn ask_server(args: &PredictArgs) -> anyhow::Result<ExitCode> {
    let parameters = [
        ("upstream", args.upstream.clone()),
        ("replicas", args.replicas.map(|replicas| replicas.to_string())),
        ("intrinsic_ratio", args.intrinsic_ratio.map(|ratio| ratio.to_string())),
        ("cores", args.cores.map(|cores| cores.to_string())),
        ("shared_cores", args.shared_cores.map(|cores| cores.to_string())),
        ("cancelled", args.cancelled.map(|cancelled| cancelled.name().to_owned())),
        ("remedies", args.remedies.clone()),
        ("seed", Some(args.seed.to_string())),
        ("with_text", (args.format == Format::Table).then(|| true.to_string())),
    ];
    let response = match args.traces.ask("/api/v1/predict", &parameters, Format::Json)? {
        Ok(response) => response,
        Err(ended) => return Ok(ended),
    };
    let mut prediction: Value = serde_json::from_str(&response)?;
    // The table is for people, and not part of what is kept.
    let text = prediction.as_object_mut().and_then(|members| members.remove("text"));
    match text {
        Some(Value::String(text)) => print(&text)?,
        _ => print(&format!("{prediction}\n"))?,
    }
    if prediction["reproduced"] == false {
        if args.keep {
            print_message("not kept for the scorecard: the model does not reproduce the recording");
        }
        return Ok(ExitCode::FAILURE);
    }
    if args.keep {
        keep(args, &prediction)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Keeps a prediction as an event of the scorecard.
fn keep(args: &PredictArgs, prediction: &Value) -> anyhow::Result<()> {
    let service = args.traces.service.as_deref().unwrap_or_default();
    let resource = json!({ "service.name": service }).to_string();
    let body = json!({ "upstream": args.upstream, "prediction": prediction }).to_string();
    let batch = events::batch(&resource, unix_time().as_ns(), events::PREDICTION, &[body])?;
    import::send_batch(&args.to, args.traces.access(), Signal::Logs, &batch).context(
        "the prediction is not kept: give the address of the server's OTLP receiver with --to",
    )?;
    let scorecard = command_for("curtail scorecard", args.traces.server());
    let remedies = prediction["remedies"].as_array().into_iter().flatten();
    let recommended = remedies.into_iter().find(|one| one["name"] == prediction["recommended"]);
    let config = recommended.and_then(|one| one["config"].as_str());
    if config.is_some_and(|config| !has_hedges_or_ties(config)) {
        print_message(
            "kept; but a holdout measures only hedges and ties, which the recommended remedy does not have: \
             compare with and without it by curtail bench compare",
        );
    } else {
        print_message(&format!("kept: once the remedy is on, see\n  {scorecard}"));
    }
    Ok(())
}

fn read(args: &PredictArgs, from: &Path) -> anyhow::Result<Recording> {
    let (name, file) = input::open(from)?;
    let mut text = input::decompress(file).with_context(|| name.clone())?;
    let mut head = Vec::new();
    text.by_ref().take(HEAD_BYTES).read_to_end(&mut head).with_context(|| name.clone())?;
    let kind = kind(&head);
    let text = Cursor::new(head).chain(text);
    let upstream = args.upstream.as_deref();
    let recording = match kind {
        Kind::Journal => Recording::from_journal(text, upstream),
        Kind::Results => return read_results(args, &name, text),
        Kind::Spans => read_spans(text, upstream),
        Kind::NoJson => Err(RecordingError::Invalid {
            location: "byte 1".to_owned(),
            expected: "a recording in JSON: a journal of the proxy, spans in OTLP, or results of curtail bench load"
                .to_owned(),
        }),
    };
    recording.map_err(of_caller).context(name)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Journal,
    Results,
    Spans,
    NoJson,
}

/// The kind of a recording, by its first bytes.
fn kind(head: &[u8]) -> Kind {
    let has = |word: &[u8]| head.windows(word.len()).any(|window| window == word);
    let first = head.trim_ascii_start().first();
    if first.is_some_and(|first| *first != b'{') {
        Kind::NoJson
    } else if has(b"\"curtail.bench/") {
        Kind::Results
    } else if has(b"\"crc32\"") || has(b"\"curtail.journal/") {
        Kind::Journal
    } else {
        Kind::Spans
    }
}

fn read_spans(mut text: impl BufRead, service: Option<&str>) -> Result<Recording, RecordingError> {
    let mut reader = SpanReader::new();
    let mut line = String::new();
    while text.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)? > 0 {
        if line.len() as u64 == LINE_BYTES_MAX {
            let location = format!("after line {}", reader.lines());
            let expected = format!("a line with less than {LINE_BYTES_MAX} bytes");
            return Err(RecordingError::Invalid { location, expected });
        }
        reader.read_line(&line)?;
        line.clear();
    }
    reader.finish(service)
}

fn read_results(args: &PredictArgs, name: &str, text: impl BufRead) -> anyhow::Result<Recording> {
    let mut bytes = Vec::new();
    text.take(RESULTS_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(|| name.to_owned())?;
    if bytes.len() as u64 > RESULTS_BYTES_MAX {
        let text = format!("{name}: expected results of at most {RESULTS_BYTES_MAX} bytes");
        return Err(usage_error(&text));
    }
    let results = curtail_report::file::from_json(Path::new(name), &bytes)?;
    let names: Vec<String> = results.arms.iter().map(|arm| arm.name.clone()).collect();
    let wanted = args.upstream.as_ref();
    let arm = match wanted {
        Some(wanted) => names.iter().position(|name| name == wanted),
        None => (names.len() == 1).then_some(0),
    };
    let arm = arm.ok_or_else(|| {
        let text = format!("{name}: expected --upstream with one of the arms {}", names.join(", "));
        usage_error(&text)
    })?;
    let blocks = results.measured().filter(|block| block.arm == arm);
    let timelines: Vec<_> = blocks.map(|block| &block.timeline).collect();
    let source = format!("results, arm {}", names[arm]);
    Recording::from_slots(source, &timelines, args.seed).map_err(of_caller).context(name.to_owned())
}

/// A wrong name is an error of the caller, and an invalid recording is a file that cannot be read.
fn of_caller(error: RecordingError) -> anyhow::Error {
    match error {
        RecordingError::Ambiguous(_)
        | RecordingError::NotThere { .. }
        | RecordingError::FanOutInJournal { .. } => usage_error(&format!("--upstream: {error}")),
        RecordingError::NoRemedy { .. } => usage_error(&format!("--remedies: {error}")),
        RecordingError::Io(error) => error.into(),
        RecordingError::Journal(_)
        | RecordingError::Invalid { .. }
        | RecordingError::TooFew { .. }
        | RecordingError::TooManyLong { .. } => {
            io::Error::new(io::ErrorKind::InvalidData, error).into()
        }
    }
}
