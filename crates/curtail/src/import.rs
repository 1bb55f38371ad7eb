//! `curtail import`: sends files of the Collector's file exporter to a server.
//!
//! | file | holds |
//! |---|---|
//! | [`pieces`] | what stands in a file, one line or message after the other, decompressed |
//! | [`read`] | from pieces to batches, in a thread of its own, at most two batches ahead |
//! | [`send`] | one batch after the other to the server, which may ask for patience |
//! | [`tally`] | what came of it all |
//!
//! **Limits**: a line or message has at most 64 MiB, as a batch of the server; short ones are sent together,
//! about a megabyte at a time. A batch whose answer is lost is sent again, and may then be there twice.

mod pieces;
mod read;
mod send;
mod tally;

use crate::server_access::ServerAccessArgs;
use crate::terminal::ProgressLine;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use curtail_otlp::Signal;
use read::{Batch, Told};
use send::{Sender, Target, Verdict};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tally::Tally;
use tokio::sync::mpsc;

/// Send files of the Collector's file exporter to a server
///
/// Each line is a batch in OTLP's JSON; its key tells traces, logs or metrics.
/// Files may be compressed (gzip, zstd); `-` is standard input. The first bytes
/// identify length-prefixed messages, which the exporter writes with
/// `format: proto` or with compression. The command merges short batches. It
/// retries after the time in `Retry-After` when the server is full. It reports a
/// malformed line with the byte and the expected input, and continues.
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
rejected rows. Exit code 3: the server is unavailable; the last error names the
position of the first batch that it did not accept."
)]
pub(crate) struct ImportArgs {
    /// Files to send; - is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// URL of the OTLP receiver, without /v1/traces.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4318")]
    to: Target,
    #[command(flatten)]
    access: ServerAccessArgs,
    /// Signal of protobuf messages; JSON lines name their own.
    #[arg(long, value_enum, value_name = "SIGNAL")]
    of: Option<Of>,
    /// Seconds to retry a server that accepts no batch.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    patience: u32,
}

/// What a batch is of.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Of {
    Traces,
    Logs,
    Metrics,
}

impl From<Of> for Signal {
    fn from(of: Of) -> Self {
        match of {
            Of::Traces => Self::Traces,
            Of::Logs => Self::Logs,
            Of::Metrics => Self::Metrics,
        }
    }
}

/// The time between two lines that say how far it has come, without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// So many batches are read ahead.
const AHEAD: usize = 2;

/// Runs `curtail import`.
///
/// # Errors
/// When a file cannot be opened, or the server does not take what it should.
pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    for file in args.files.iter().filter(|file| **file != Path::new(pieces::STDIN)) {
        // One that is not there is found before anything is sent.
        drop(File::open(file).with_context(|| file.display().to_string())?);
    }
    let patience = Duration::from_secs(args.patience.into());
    let sender = Sender::new(&args.to, &args.access, patience)?;
    let (told, telling) = mpsc::channel(AHEAD);
    let (files, of) = (args.files.clone(), args.of.map(Signal::from));
    let reading = std::thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || read::files(&files, of, &told))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tally = runtime.block_on(send_all(sender, telling))?;
    if reading.join().is_err() {
        anyhow::bail!("the reader has panicked");
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{tally}")?;
    out.flush()?;
    Ok(if tally.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(crate::exit::NO) })
}

/// Sends what the reader tells, to its end.
async fn send_all(sender: Sender, mut telling: mpsc::Receiver<Told>) -> anyhow::Result<Tally> {
    let (mut tally, mut progress) = (Tally::default(), ProgressLine::on_stderr(Some(LINE_EVERY)));
    while let Some(told) = telling.recv().await {
        match told {
            Told::Piece => tally.lines += 1,
            Told::Bad(place, what) => {
                tally.bad += 1;
                progress.say(&format!("{place}: {what}"));
            }
            Told::Batch(batch) => {
                let mut waits = |why: &str| progress.say(why);
                match sender.send(&batch, &mut waits).await {
                    Ok(verdict) => take(&batch, verdict, &mut tally, &mut progress),
                    Err(error) => {
                        progress.say(&format!("{}: from here on nothing was taken", batch.from));
                        progress.say(&tally.to_string());
                        return Err(error);
                    }
                }
                progress.show(|| format!("{}: {tally}", batch.to));
            }
        }
    }
    progress.clear();
    Ok(tally)
}

/// Counts what came of a batch.
fn take(batch: &Batch, verdict: Verdict, tally: &mut Tally, progress: &mut ProgressLine) {
    let (places, rows) = (batch.places(), batch.rows);
    match verdict {
        Verdict::Taken { refused: 0, .. } => tally.took(batch.signal, rows),
        Verdict::Taken { refused, why } => {
            tally.took(batch.signal, rows.saturating_sub(refused));
            tally.refused += refused;
            progress.say(&format!("{places}: {why}"));
        }
        Verdict::Refused(why) => {
            tally.refused += rows;
            progress.say(&format!("{places}: {rows} rows refused by the server: {why}"));
        }
    }
}
