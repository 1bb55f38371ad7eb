//! `curtail import`: sends files of the Collector's file exporter to a server.
//!
//! | file | does |
//! |---|---|
//! | [`records`] | reads lines or messages from a file |
//! | [`batches`] | merges them into batches, in a separate thread, at most two batches ahead of the sender |
//! | [`sender`] | sends the batches, with retries |
//!
//! **Limits**: a line or message has at most 64 MiB, the server's maximum for a batch. Short lines are merged to about
//! a megabyte. A batch is sent again if its response is lost.

mod batches;
mod records;
mod sender;

use crate::output::{NamedValue, one_of, print};
use crate::server_access::ServerAccessArgs;
use crate::server_url::ServerUrl;
use crate::terminal::ProgressLine;
use crate::{exit, input};
use anyhow::Context as _;
use batches::{Batch, ReaderEvent};
use clap::Args;
use curtail_otlp::Signal;
use sender::{SendOutcome, Sender};
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;

/// Send files of the Collector's file exporter to a server
///
/// The file exporter writes one of two formats: lines of OTLP's JSON, or, with
/// `format: proto`, protobuf messages, each after its length. The command
/// recognizes both formats, also compressed (gzip, zstd). It merges short batches.
/// When the server is overloaded, the command retries after the time in
/// `Retry-After`. The command skips a malformed line, and reports the position of
/// the error and what was expected there, for at most 100 lines; it always
/// reports a file whose rest it cannot read.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail import traces.jsonl logs.jsonl.gz
  curtail import --to http://127.0.0.1:4318 --tenant shop archive/*.jsonl.zst
  curtail import --of traces traces.binpb
  kubectl logs collector | curtail import -

Exit code 1: some input was skipped, because a line is malformed or the server
rejected rows. Exit code 3: the server is unavailable or denies access; an error
names the position of the first batch that the server did not accept."
)]
pub(crate) struct ImportArgs {
    /// Files to send; `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// URL of the OTLP receiver, without `/v1/traces`.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4318")]
    to: ServerUrl,
    #[command(flatten)]
    access: ServerAccessArgs,
    /// Signal of protobuf messages; a JSON line itself names its signal.
    #[arg(long, value_name = "SIGNAL", value_parser = one_of(SIGNALS))]
    of: Option<Signal>,
    /// Maximum duration of the retries of one batch, in seconds; the command then fails.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    patience: u32,
}

const SIGNALS: &[NamedValue<Signal>] = &[
    ("traces", "Spans", Signal::Traces),
    ("logs", "Log records", Signal::Logs),
    ("metrics", "Metric points", Signal::Metrics),
];

/// The interval between two progress lines if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of malformed lines that are reported one by one.
const MALFORMED_SHOWN_MAX: u64 = 100;

/// Maximum number of batches that are read ahead of the sender.
const AHEAD: usize = 2;

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    // A missing file is an error before anything is sent.
    for file in args.files.iter().filter(|file| !input::is_stdin(file)) {
        drop(File::open(file).with_context(|| file.display().to_string())?);
    }
    let patience = Duration::from_secs(args.patience.into());
    let sender = Sender::new(&args.to, &args.access, patience)?;
    let (events, receiver) = mpsc::channel(AHEAD);
    let (files, signal) = (args.files.clone(), args.of);
    let reader = std::thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || batches::read(&files, signal, &events))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let counts = runtime.block_on(send_all(sender, receiver))?;
    if reader.join().is_err() {
        anyhow::bail!("the reader has panicked");
    }
    print(&format!("{counts}\n"))?;
    let is_complete = counts.malformed == 0 && counts.rejected == 0;
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

async fn send_all(
    sender: Sender,
    mut events: mpsc::Receiver<ReaderEvent>,
) -> anyhow::Result<ImportCounts> {
    let mut counts = ImportCounts::default();
    let mut progress = ProgressLine::on_stderr(Some(LINE_EVERY));
    while let Some(event) = events.recv().await {
        match event {
            ReaderEvent::Record => counts.records += 1,
            ReaderEvent::Malformed(position, error, is_lost) => {
                counts.malformed += 1;
                if is_lost || counts.malformed <= MALFORMED_SHOWN_MAX {
                    progress.say(&format!("{position}: {error}"));
                } else if counts.malformed == MALFORMED_SHOWN_MAX + 1 {
                    progress.say("further malformed lines are counted, but not shown");
                }
            }
            ReaderEvent::Batch(batch) => {
                match sender.send(&batch, &mut |why| progress.say(why)).await {
                    Ok(outcome) => counts.add(&batch, outcome, &mut progress),
                    Err(error) => {
                        progress
                            .say(&format!("{}: nothing was accepted from here on", batch.first));
                        progress.say(&counts.to_string());
                        return Err(error);
                    }
                }
                progress.show(|| format!("{}: {counts}", batch.last));
            }
        }
    }
    progress.clear();
    Ok(counts)
}

/// The numbers of records that were read, and of rows that were accepted or rejected.
#[derive(Debug, Default)]
struct ImportCounts {
    records: u64,
    malformed: u64,
    spans: u64,
    logs: u64,
    points: u64,
    /// Rejected rows.
    rejected: u64,
}

impl ImportCounts {
    fn add(&mut self, batch: &Batch, outcome: SendOutcome, progress: &mut ProgressLine) {
        let (positions, rows) = (batch.positions(), batch.rows);
        let rejected = match outcome {
            SendOutcome::Accepted { rejected: 0, .. } => 0,
            SendOutcome::Accepted { rejected, why } => {
                progress.say(&format!("{positions}: {why}"));
                rejected
            }
            SendOutcome::Rejected(why) => {
                progress.say(&format!("{positions}: the server rejected {rows} rows: {why}"));
                rows
            }
        };
        self.rejected += rejected;
        let accepted = match batch.signal {
            Signal::Traces => &mut self.spans,
            Signal::Logs => &mut self.logs,
            Signal::Metrics => &mut self.points,
        };
        *accepted += rows.saturating_sub(rejected);
    }
}

impl fmt::Display for ImportCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, malformed, spans, logs, points, rejected } = self;
        write!(f, "{records} lines, {malformed} malformed; {spans} spans, {logs} logs and ")?;
        write!(f, "{points} points accepted, {rejected} rejected")
    }
}
