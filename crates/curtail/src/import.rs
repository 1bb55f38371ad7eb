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

use crate::output::{NamedValue, one_of, print, print_message};
use crate::server_access::ServerAccessArgs;
use crate::server_url::ServerUrl;
use crate::terminal::ProgressLine;
use crate::{exit, input};
use batches::Batch;
pub(crate) use batches::{ReaderEvent, RecordPosition};
use clap::Args;
use curtail_otlp::Signal;
use sender::{SendOutcome, Sender};
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::JoinHandle;
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
const MALFORMED_SHOWN_MAX: u64 = 10;

/// Maximum duration of the retries of a batch that a person waits for.
const PATIENCE_OF_ONE: Duration = Duration::from_secs(10);

/// Maximum number of batches that are read ahead of the sender.
const AHEAD: usize = 2;

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let (events, receiver) = mpsc::channel(AHEAD);
    let reader = start_reader(&args.files, args.of, events)?;
    let patience = Duration::from_secs(args.patience.into());
    let sender = Sender::new(&args.to, &args.access, patience)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let counts = runtime.block_on(send_all(sender, receiver))?;
    join(reader)?;
    print(&format!("{counts}\n"))?;
    let is_complete = counts.malformed.0 == 0 && counts.rejected == 0;
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

/// Sends one batch, for at most [`PATIENCE_OF_ONE`].
pub(crate) fn send_batch(
    to: &ServerUrl,
    access: &ServerAccessArgs,
    signal: Signal,
    batch: &[u8],
) -> anyhow::Result<()> {
    let sender = Sender::new(to, access, PATIENCE_OF_ONE)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sent = runtime.block_on(sender.send((signal, batch), &mut |why| print_message(why)))?;
    match sent {
        SendOutcome::Accepted { rejected: 0, .. } => Ok(()),
        SendOutcome::Accepted { why, .. } | SendOutcome::Rejected(why) => anyhow::bail!(why),
    }
}

/// Reads files, malformed lines included, and calls `handle` with each event in their order.
pub(crate) fn read_files(
    files: &[PathBuf],
    signal: Option<Signal>,
    mut handle: impl FnMut(ReaderEvent),
) -> anyhow::Result<()> {
    let (events, mut receiver) = mpsc::channel(AHEAD);
    let reader = start_reader(files, signal, events)?;
    while let Some(event) = receiver.blocking_recv() {
        handle(event);
    }
    join(reader)
}

/// Starts the thread that reads `files`. A missing file, or a directory, is an error before anything is read.
fn start_reader(
    files: &[PathBuf],
    signal: Option<Signal>,
    events: mpsc::Sender<ReaderEvent>,
) -> anyhow::Result<JoinHandle<()>> {
    for file in files.iter().filter(|file| !input::is_stdin(file)) {
        drop(input::open_file(file)?);
    }
    let files = files.to_owned();
    let thread = std::thread::Builder::new().name("reader".to_owned());
    Ok(thread.spawn(move || batches::read(&files, signal, &events))?)
}

fn join(reader: JoinHandle<()>) -> anyhow::Result<()> {
    reader.join().map_err(|_| anyhow::anyhow!("the reader has panicked"))
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
                let message = counts.malformed.message(&position, &error, is_lost);
                message.iter().for_each(|text| progress.say(text));
            }
            ReaderEvent::Batch(batch) => {
                match sender.send((batch.signal, &batch.bytes), &mut |why| progress.say(why)).await
                {
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

/// The number of malformed lines, of which only the first are shown.
#[derive(Debug, Default)]
pub(crate) struct MalformedLines(u64);

impl MalformedLines {
    /// Counts a line; returns the message to show, if any.
    pub(crate) fn message(
        &mut self,
        position: &RecordPosition,
        error: &str,
        is_lost: bool,
    ) -> Option<String> {
        self.0 += 1;
        if is_lost || self.0 <= MALFORMED_SHOWN_MAX {
            Some(format!("{position}: {error}"))
        } else {
            (self.0 == MALFORMED_SHOWN_MAX + 1)
                .then(|| "further malformed lines are counted, but not shown".to_owned())
        }
    }
}

/// The numbers of records that were read, and of rows that were accepted or rejected.
#[derive(Debug, Default)]
struct ImportCounts {
    records: u64,
    malformed: MalformedLines,
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
        let Self { records, malformed: MalformedLines(malformed), spans, logs, points, rejected } =
            self;
        write!(f, "{records} lines, {malformed} malformed; {spans} spans, {logs} logs and ")?;
        write!(f, "{points} points accepted, {rejected} rejected")
    }
}
