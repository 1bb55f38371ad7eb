//! `curtail server`: receives spans, logs and metrics, keeps them, and answers questions about them.
//!
//! | thread | does |
//! |---|---|
//! | `ingest-…` | receive and decode |
//! | `log` | writes the log, puts rows into memory |
//! | `keeper` | writes runs, merges them, looks after the tables |
//! | the main one | answers questions, waits to be told to stop |

mod keep;
mod place;
mod tail;

use crate::exit;
use crate::stop::StopSignals;
use anyhow::Context as _;
use clap::{Args, Command, FromArgMatches as _};
use curtail_api::Sql;
use curtail_ingest::{Committer, Config, Counts, Running, Sink, StartError, Taken, Why};
use curtail_store::log::{self, Damage, Log};
use curtail_store::recent::RecentBatches;
use curtail_store::tail::Tail;
use curtail_store::tree::Unread;
use curtail_store::{Found, Retention, Store};
use curtail_units::Ratio;
use keep::{Keeping, Room};
use place::Place;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Receive OpenTelemetry, store every span, and serve queries
///
/// The server receives spans, logs and metrics as OTLP over gRPC and HTTP, and
/// acknowledges them when they are durable. It stores them in Delta Lake tables
/// of Parquet files (DATA/tables/spans, logs, points), which other engines read.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Tables may be in an object store: s3://bucket/prefix, gs://bucket/prefix or
az://container/prefix. Credentials and endpoints are those of the environment
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …; GOOGLE_…; AZURE_…).

Examples:
  curtail server
  curtail server --data /var/lib/curtail --otlp 0.0.0.0:4317 --otlp 0.0.0.0:4318
  curtail server --data /var/lib/curtail --tables s3://traces/production
  curl -s localhost:3200/api/traces/4bf92f3577b34da6a3ce929d0e0e4736"
)]
pub(crate) struct ServerArgs {
    /// Data folder. A URL sets --tables instead, with curtail-data as the folder.
    #[arg(long, value_name = "DIR|URL", default_value = place::FOLDER)]
    data: PathBuf,
    /// Folder or object store of the tables [default: tables in the data folder].
    #[arg(long, value_name = "DIR|URL")]
    tables: Option<String>,
    /// Address of an OTLP receiver; each accepts gRPC and HTTP. Repeatable.
    #[arg(long, value_name = "ADDRESS", default_values = ["127.0.0.1:4317", "127.0.0.1:4318"])]
    otlp: Vec<SocketAddr>,
    /// Address of the query API.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3200")]
    api: SocketAddr,
    /// File of tokens, one a line; # begins a comment line. Senders must present one of them.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Origin whose web pages may send OTLP: scheme, host and port, or * for all. Repeatable.
    #[arg(long, value_name = "ORIGIN", value_parser = place::origin)]
    allow_origin: Vec<String>,
    /// Maximum size of a memtable before it is flushed, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    memory: u32,
    /// Maximum number of spans of a trace in a response; the rest is omitted.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_trace_spans: u32,
    /// Maximum size of a response of the API, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_response_mib: u32,
    /// Maximum time between flushes, in seconds; other engines see rows after the flush.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    flush_every: u32,
    /// Days to keep rows after the day of their arrival; 0: forever.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=36_500))]
    keep_days: u32,
    /// Maximum size of all tables, in GiB; the oldest runs are deleted first.
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u32).range(1..))]
    keep_gib: Option<u32>,
    /// Days after which a day keeps only its tail: errors, the slowest traces, and a weighted sample.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(..=36_500))]
    tail_after: Option<u32>,
    /// Share of the slowest traces to keep, for each operation.
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = tail::share)]
    tail_slowest: Ratio,
    /// Share of the other traces to sample, rounded to one in a whole number.
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = tail::one_in)]
    tail_sample: NonZeroU32,
}

impl ServerArgs {
    /// A server for this machine alone, on ports that the system chooses.
    pub(crate) fn on_loopback(data: PathBuf) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let defaults = Self::augment_args(Command::new("server")).get_matches_from(["server"]);
        let defaults = Self::from_arg_matches(&defaults).expect("nothing has to be said");
        Self { data, otlp: vec![any], api: any, ..defaults }
    }
}

impl ServerArgs {
    fn limits(&self) -> curtail_api::Limits {
        let all = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        curtail_api::Limits {
            trace_spans: all(self.max_trace_spans),
            response_bytes: all(self.max_response_mib).saturating_mul(1 << 20),
        }
    }
}

/// How long senders have to end what they have begun, once we are told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// So often it is looked whether all threads live.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// So many full memtables may wait to be written before senders have to wait.
const WAITING_MAX: usize = 4;

/// Runs the server until it is told to stop.
///
/// # Errors
/// When the data cannot be opened, an address cannot be listened on, or there are no threads.
pub(crate) fn run(args: &ServerArgs) -> anyhow::Result<ExitCode> {
    // Whoever reads the addresses may send a signal next.
    let begin = || {
        let mut signals = StopSignals::new()?;
        Ok(async move { signals.told().await })
    };
    serve(args, begin, print)?;
    Ok(ExitCode::SUCCESS)
}

/// Serves until what `begin` gives is over; it is called within the server's runtime. `ready` is told the addresses
/// of OTLP and of the API, once all of them are listened on.
///
/// # Errors
/// Those of [`run`], and those of `begin` and `ready`.
pub(crate) fn serve<Told: Future<Output = ()>>(
    args: &ServerArgs,
    begin: impl FnOnce() -> std::io::Result<Told>,
    ready: impl FnOnce(&[SocketAddr], SocketAddr) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    crate::open_files::allow(0)?;
    let tokens = args.tokens.as_deref().map(place::tokens).transpose()?.unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut told = pin!(begin()?);
        let place = Place::open(&args.data, args.tables.as_deref()).await?;
        let memtable_bytes = (args.memory as usize) << 20;
        let settings = place.settings(memtable_bytes);
        let (keeper, found) = Store::open(&settings, place::now_ms(), &place::uuid())
            .await
            .with_context(|| place.tables().to_owned())?;
        say(&found);
        let (store, room) =
            (Arc::clone(keeper.store()), Arc::new(Room::new(memtable_bytes * WAITING_MAX)));
        let log = Log::open(Arc::clone(&settings.files), keeper.last_segment(), place::entropy())?;
        let tables = place.objects().clone();
        let keeping =
            Keeping::start((keeper, tables), Arc::clone(&room), args.retention(), args.tail())?;
        let sink = Into { store: Arc::clone(&store), room: Arc::clone(&room) };
        let recent = Arc::clone(store.recent());
        let (committer, log) = Committer::start(log, Arc::clone(&recent), sink)?;
        let receivers = args.receivers(tokens, &committer)?;
        let mut counted =
            BatchCounts { counts: Arc::clone(receivers.counts()), recent, said: (0, 0, 0) };
        let sql = Sql::new(crate::sql::program()?, place.folder().map(Path::to_path_buf));
        let api = curtail_api::start(args.api, store, sql, args.limits()).await;
        let api = api.map_err(|error| cannot_listen("--api", args.api, error))?;
        ready(receivers.addresses(), api.address())?;
        let mut every = tokio::time::interval(Duration::from_secs(args.flush_every.into()));
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = &mut told => break,
                _ = every.tick() => {
                    committer.end_segment();
                    counted.say();
                }
                _ = looks.tick() => if log.is_finished() || keeping.is_finished() {
                    // What it has acknowledged is in the log; it could not take much more.
                    anyhow::bail!("a thread has ended that should not");
                },
            }
        }
        tracing::info!("stopping: what is being sent is taken, and written");
        api.stop().await;
        receivers.stop(GRACE);
        counted.say();
        drop(committer);
        room.end();
        if log.join().is_err() {
            tracing::error!("the thread of the log has panicked");
        }
        keeping.stop();
        Ok(())
    })
}

/// The batch counts of the log messages.
struct BatchCounts {
    counts: Arc<Counts>,
    recent: Arc<RecentBatches>,
    said: (u64, u64, u64),
}

impl BatchCounts {
    /// Logs the batches since the start if they have changed: stored ones, duplicates, and those that were evicted
    /// before ten minutes were over.
    fn say(&mut self) {
        let (batches, duplicates) = (self.counts.batches(), self.counts.duplicate_batches());
        let forgotten_early = self.recent.forgotten_early();
        let now = (batches, duplicates, forgotten_early);
        if std::mem::replace(&mut self.said, now) != now {
            tracing::info!(batches, duplicates, forgotten_early, "batches since the start");
        }
    }
}

/// The error of an address that cannot be bound, with the option that chooses another one.
fn cannot_listen(option: &str, address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    let what = if error.kind() == ErrorKind::AddrInUse {
        format!("port {} is already in use", address.port())
    } else {
        format!("cannot listen on {address}")
    };
    anyhow::Error::new(error).context(format!("{what}; pass {option} to choose another address"))
}

impl ServerArgs {
    /// Starts the receivers.
    fn receivers(&self, tokens: Vec<String>, committer: &Committer) -> anyhow::Result<Running> {
        let config = Config {
            addresses: self.otlp.clone(),
            tokens,
            origins: self.allow_origin.clone(),
            ..Config::default()
        };
        curtail_ingest::start(&config, committer).map_err(|error| match error {
            StartError::Listen { address, source } => cannot_listen("--otlp", address, source),
            error @ StartError::Thread(_) => error.into(),
        })
    }

    fn retention(&self) -> Retention {
        Retention {
            days: Some(self.keep_days).filter(|days| *days > 0),
            bytes: self.keep_gib.map(|gib| u64::from(gib) << 30),
        }
    }

    fn tail(&self) -> Option<Tail> {
        let (slowest, sample) = (self.tail_slowest, self.tail_sample);
        self.tail_after.map(|after_days| Tail { after_days, slowest, sample })
    }
}

/// From the log into memory.
struct Into {
    store: Arc<Store>,
    room: Arc<Room>,
}

impl Sink for Into {
    fn wait(&mut self, tell: &mut dyn FnMut(Why)) {
        self.room.wait(|| self.store.waiting_bytes(), tell);
    }

    fn take(&mut self, segment: u64, taken: Vec<Taken>) -> bool {
        for Taken { record, rows } in &taken {
            self.store.insert(segment, record, rows);
        }
        self.store.is_full()
    }

    fn ended(&mut self, segment: u64) {
        self.store.seal(segment);
    }
}

fn say(found: &Found) {
    let Found { spans, logs, points, damaged, undecoded, duplicates, unread_records, unread } =
        found;
    if spans + logs + points > 0 {
        tracing::info!(spans, logs, points, duplicates, "replayed the log");
    }
    for (segment, Damage { at, bytes, records, is_torn }) in damaged {
        if *is_torn {
            tracing::warn!(segment, at, bytes, "the log ends with an unfinished record");
            continue;
        }
        let file = log::damaged_name(*segment);
        let lost = records.map_or_else(|| "unknown".to_owned(), |records| records.to_string());
        let what = "a segment of the log is damaged; its other records were replayed, and the file is kept";
        tracing::error!(file, at, bytes, lost, "{what}");
    }
    if *undecoded > 0 {
        tracing::error!(
            records = undecoded,
            "some records of the log are not valid batches; their segments are kept"
        );
    }
    for file in unread_records {
        tracing::warn!(
            file,
            "a flush record cannot be read: batches that are sent again may count twice for ten minutes"
        );
    }
    for Unread { path, error } in unread {
        let error = exit::describe_error(&anyhow::Error::new(Arc::clone(error)));
        tracing::error!(%path, error, "a run cannot be read");
    }
}

fn print(otlp: &[SocketAddr], api: SocketAddr) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for address in otlp {
        writeln!(out, "otlp http://{address} (gRPC and HTTP)")?;
    }
    writeln!(out, "api  http://{api}")?;
    out.flush()
}
