//! The program `curtail-sql`: executes the query in its arguments, and prints the result.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success; also when the reader closes the output early |
//! | 2 | the query is not SQL, would change something, or exceeds its memory or time |
//! | 3 | environment: there are no tables, or a file cannot be read |
//! | 4 | a bug of curtail |
//!
//! The query runs on its own threads, so the main thread can end it at the timeout. The stacks of these threads are
//! large, because only the length of the query bounds the depth of an expression.

use crate::error::{OpenError, QueryError};
use crate::print::{Format, PrintError, Printer};
use crate::tables::{Bounds, Tables};
use clap::Parser;
use curtail_store::SQL_BYTES_MAX;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::MemoryReservation;
use rlimit::Resource;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Query the tables of a server in SQL
///
/// The tables are `spans`, `logs`, `points` and `traces`; DESCRIBE lists columns.
/// Rows that the server has not flushed yet are missing (key `flush_every`).
/// Read-only: SELECT, WITH, VALUES, EXPLAIN, DESCRIBE, SHOW.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "curtail-sql",
    term_width = 80,
    version,
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail-sql 'SELECT service, count(*) FROM spans GROUP BY service'
  curtail-sql --data /var/lib/curtail --format json - < query.sql"
)]
pub struct Cli {
    /// SQL query; `-` reads it from standard input.
    #[arg(value_name = "SQL")]
    query: String,
    /// Data folder of `curtail server`.
    #[arg(long, value_name = "DIR", default_value = "curtail-data")]
    data: PathBuf,
    /// Folder of the tables, if it is outside the data folder.
    #[arg(long, value_name = "DIR")]
    tables: Option<PathBuf>,
    /// Tenant to query [default: all tenants].
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Maximum memory for sorting, grouping and joining, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    memory: u32,
    /// Maximum duration of a query, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    timeout: u32,
    /// Maximum number of rows to print.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
}

/// The folder of the tables in the data folder.
const TABLES: &str = "tables";

/// The size of a query thread's stack; the system commits only the pages that are used.
const STACK_BYTES: usize = 512 << 20;

/// Maximum number of threads that read files.
const READERS_MAX: usize = 2;

/// The allowance for memory that the pool does not count, such as batches in flight and footers.
const UNCOUNTED_BYTES: u64 = 1 << 30;

/// Maximum number of batches that wait to be printed.
const WAITING_MAX: usize = 1;

/// The query is invalid, or exceeds its limits.
const INVALID_QUERY: u8 = 2;
/// The environment.
const ENVIRONMENT: u8 = 3;
/// A bug of curtail.
const OURS: u8 = 4;

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("no result within {0} s: narrow the query, or raise --timeout")]
    Late(u32),
    #[error("standard input: {0}")]
    Input(io::Error),
    #[error(transparent)]
    Output(io::Error),
    #[error("no threads: {0}")]
    Threads(io::Error),
    #[error("the query thread has panicked")]
    Panicked,
}

/// Executes a query; returns the exit code. Errors are printed.
#[must_use]
pub fn run(args: &Cli) -> ExitCode {
    let Err(failure) = execute(args) else { return ExitCode::SUCCESS };
    let code = failure.code();
    if code != 0 {
        let ours = if code == OURS { "\nThis is a bug of curtail: please report it." } else { "" };
        let failure = anyhow::Error::new(failure);
        let _written = writeln!(io::stderr(), "{failure:#}{ours}");
    }
    ExitCode::from(code)
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => 0,
            Self::Late(_) => INVALID_QUERY,
            Self::Open(_) | Self::Input(_) | Self::Output(_) | Self::Threads(_) => ENVIRONMENT,
            Self::Panicked => OURS,
            Self::Query(error) => match error {
                QueryError::Read(_) => ENVIRONMENT,
                QueryError::Bug(_) => OURS,
                QueryError::Long(_)
                | QueryError::Refused(_)
                | QueryError::NoTable { .. }
                | QueryError::NoColumn { .. }
                | QueryError::Invalid(_)
                | QueryError::Memory(_) => INVALID_QUERY,
            },
        }
    }
}

impl From<PrintError> for Failure {
    fn from(error: PrintError) -> Self {
        match error {
            PrintError::Output(error) => Self::Output(error),
            PrintError::Query(error) => Self::Query(error),
        }
    }
}

/// A part of a result, on its way to the printer.
enum ResultPart {
    Begun(SchemaRef, MemoryReservation),
    Rows(RecordBatch),
}

fn execute(args: &Cli) -> Result<(), Failure> {
    let query = read_query(args).map_err(Failure::Input)?;
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let memory_bytes = (args.memory as usize) << 20;
    bound(memory_bytes, threads).map_err(Failure::Threads)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.get())
        .max_blocking_threads(READERS_MAX)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(Failure::Threads)?;
    let bounds = Bounds { memory_bytes, threads };
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let worked = runtime.spawn(work(args.clone(), query, bounds, sender));
    let printed = printed(args, &runtime, receiver, worked);
    runtime.shutdown_background();
    printed
}

/// Limits the memory of the process, because the pool does not count the result of a function on one value. A process
/// that exceeds the limit aborts with a message.
fn bound(memory_bytes: usize, threads: NonZeroUsize) -> io::Result<()> {
    let stacks = (threads.get() + READERS_MAX) as u64 * STACK_BYTES as u64;
    let most = 2 * memory_bytes as u64 + UNCOUNTED_BYTES + stacks;
    let (_, hard) = Resource::DATA.get()?;
    Resource::DATA.set(most.min(hard), hard)
}

/// Reads the query from the argument or from standard input.
fn read_query(args: &Cli) -> io::Result<String> {
    if args.query != "-" {
        return Ok(args.query.clone());
    }
    let mut query = String::new();
    // One byte more than allowed, to detect a query that is too long.
    let at_most = SQL_BYTES_MAX as u64 + 1;
    io::stdin().lock().take(at_most).read_to_string(&mut query)?;
    Ok(query)
}

/// Executes the query; returns whether it has more rows than requested.
async fn work(
    args: Cli,
    query: String,
    bounds: Bounds,
    sender: mpsc::Sender<ResultPart>,
) -> Result<bool, Failure> {
    let folder = args.tables.unwrap_or_else(|| args.data.join(TABLES));
    let tables = Tables::open(&folder, args.tenant.as_deref(), bounds).await?;
    let mut result = tables.query(&query, args.rows as usize).await?;
    // A receiver that is gone has given up.
    let begun = ResultPart::Begun(result.columns(), result.reservation());
    let mut is_received = sender.send(begun).await.is_ok();
    while is_received && let Some(rows) = result.next().await? {
        is_received = sender.send(ResultPart::Rows(rows)).await.is_ok();
    }
    Ok(result.is_cut())
}

/// Prints the result. The timeout includes the time of the query, not the time of printing.
fn printed(
    args: &Cli,
    runtime: &Runtime,
    mut receiver: mpsc::Receiver<ResultPart>,
    worked: JoinHandle<Result<bool, Failure>>,
) -> Result<(), Failure> {
    let mut left = Duration::from_secs(args.timeout.into());
    let mut printer = None;
    loop {
        let begun = Instant::now();
        let part = runtime.block_on(async { timeout(left, receiver.recv()).await });
        left = left.saturating_sub(begun.elapsed());
        match (part.map_err(|_| Failure::Late(args.timeout))?, &mut printer) {
            (Some(ResultPart::Begun(columns, kept)), _) => {
                let out = io::BufWriter::new(io::stdout().lock());
                printer = Some(Printer::new(args.format, &columns, kept, out)?);
            }
            (Some(ResultPart::Rows(rows)), Some(printer)) => printer.rows(&rows)?,
            (Some(ResultPart::Rows(_)), None) => unreachable!("it begins first"),
            (None, _) => break,
        }
    }
    let is_cut = runtime.block_on(worked).map_err(|_| Failure::Panicked)??;
    if let Some(printer) = printer {
        printer.end().map_err(Failure::Output)?;
    }
    if is_cut {
        let rows = args.rows;
        let _written =
            writeln!(io::stderr(), "There are more rows than {rows}: --rows prints more.");
    }
    Ok(())
}
