//! A sender of spans that measures servers: as fast as they respond, or at a rate.
//!
//! It sends batches as services do (see `batches`): 512 spans of 11 attributes, all different. Every response must
//! accept the whole batch; any other ends the program with an error.
//!
//! The program prints a line for each batch, like h2load's log: the due time in microseconds since 1970, the status,
//! and the microseconds until the response. At a rate, the due times follow from the schedule alone: a slow server
//! cannot hide by holding senders back.
//!
//! ```sh
//! cargo bench -p curtail-ingest --bench load -- to=127.0.0.1:4318 protocol=http spans=10000000
//! cargo bench -p curtail-ingest --bench load -- to=127.0.0.1:4317 protocol=grpc spans=2000000 times=5 rate=100000
//! ```

#[path = "../../../store/benches/run/batches.rs"]
mod batches;
mod connection;
mod supply;

use connection::{Connection, Protocol};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use supply::Due;
use tokio::sync::{Mutex, mpsc};

const USAGE: &str = "\
to=ADDRESS       the server; without it nothing is sent
protocol=http    or grpc
spans=1000000    different ones; at a rate they are made before the first is sent
times=1          each is sent so often (at a rate), as other traces
rate=NUMBER      spans a second; without it, as fast as the server responds
senders=16       connections, each with one batch on its way
seed=1           what is random about the spans
ids=FILE         write trace IDs of one batch in ten there";

/// What the words on the command line ask for.
#[derive(Debug)]
struct LoadOptions {
    to: SocketAddr,
    protocol: Protocol,
    spans: usize,
    times: usize,
    rate: Option<f64>,
    senders: usize,
    seed: u64,
    ids: Option<PathBuf>,
}

/// A batch that was taken.
#[derive(Clone, Copy, Debug)]
struct DurableBatch {
    due: Instant,
    took: Duration,
}

fn main() -> ExitCode {
    let words = std::env::args().skip(1).filter(|word| word != "--bench").collect::<Vec<_>>();
    if words.is_empty() {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let sent =
        LoadOptions::parse(&words).and_then(|options| send(&options)).and_then(|(began, sent)| {
            print(began, &sent).map_err(|error| format!("standard output: {error}"))
        });
    if let Err(why) = sent {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

impl LoadOptions {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut arguments = words
            .iter()
            .map(|word| word.split_once('=').ok_or(format!("{word}: expected name=value\n{USAGE}")))
            .collect::<Result<BTreeMap<_, _>, _>>()?;
        let options = Self {
            to: take(&mut arguments, "to", None)?,
            protocol: take(&mut arguments, "protocol", Some(Protocol::Http))?,
            spans: take(&mut arguments, "spans", Some(1_000_000))?,
            times: take(&mut arguments, "times", Some(1))?,
            rate: arguments
                .contains_key("rate")
                .then(|| take(&mut arguments, "rate", None))
                .transpose()?,
            senders: take(&mut arguments, "senders", Some(16))?,
            seed: take(&mut arguments, "seed", Some(1))?,
            ids: arguments.remove("ids").map(PathBuf::from),
        };
        match arguments.keys().next() {
            Some(unknown) => Err(format!("{unknown}: not known\n{USAGE}")),
            None => Ok(options),
        }
    }
}

fn take<T: FromStr>(
    arguments: &mut BTreeMap<&str, &str>,
    name: &str,
    default: Option<T>,
) -> Result<T, String> {
    match arguments.remove(name) {
        Some(value) => {
            value.parse().map_err(|_| format!("{name}={value}: not understood\n{USAGE}"))
        }
        None => default.ok_or(format!("{name}: expected\n{USAGE}")),
    }
}

/// Sends everything; returns when it began, on both clocks, and what was taken.
fn send(options: &LoadOptions) -> Result<((SystemTime, Instant), Vec<DurableBatch>), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..options.senders {
            connections.push(Connection::open(options.to, options.protocol).await?);
        }
        let (jobs, receiver) = mpsc::channel(options.senders);
        let supplying = supply::start(options, jobs)?;
        let receiver = Arc::new(Mutex::new(receiver));
        let began = (SystemTime::now(), Instant::now());
        let senders: Vec<_> = connections
            .into_iter()
            .map(|connection| tokio::spawn(sender(connection, Arc::clone(&receiver))))
            .collect();
        // If all senders have failed, none of them waits for a job.
        drop(receiver);
        let mut taken = Vec::new();
        for sender in senders {
            taken.extend(sender.await.map_err(|error| format!("a sender has ended: {error}"))??);
        }
        supplying.join().map_err(|_| "batches were not made: see above".to_owned())??;
        Ok((began, taken))
    })
}

/// Sends one batch after the other.
async fn sender(
    mut connection: Connection,
    jobs: Arc<Mutex<mpsc::Receiver<Due>>>,
) -> Result<Vec<DurableBatch>, String> {
    let mut taken = Vec::new();
    loop {
        let job = jobs.lock().await.recv().await;
        let Some(Due { at, batch }) = job else { return Ok(taken) };
        let due = at.unwrap_or_else(Instant::now);
        connection.send(batch).await?;
        taken.push(DurableBatch { due, took: due.elapsed() });
    }
}

fn print(
    (since_1970, began): (SystemTime, Instant),
    taken: &[DurableBatch],
) -> std::io::Result<()> {
    let since_1970 = since_1970.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for DurableBatch { due, took } in taken {
        let due = since_1970 + due.saturating_duration_since(began);
        writeln!(out, "{}\t200\t{}", due.as_micros(), took.as_micros())?;
    }
    out.flush()
}
