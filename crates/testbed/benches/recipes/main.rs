//! Every fault recipe, simulated and started as real servers: the percentiles must be within 15 % of each other.
//!
//! The same keys describe both: three replicas behind random balancing, open-loop Poisson arrivals, times of tens of
//! milliseconds, so that neither loopback nor timers matter. Arrivals and faults come from the same seed; service times
//! and the choice of a replica are drawn independently. The simulation is longer than the run of the servers, and has no
//! error worth naming. A failed request is longer than all others. `crates/testbed/src/machine/tests.rs` compares the
//! same rows without sockets, in virtual time.
//!
//! ```sh
//! cargo bench -p curtail-testbed --bench recipes               # two minutes; a busy machine shows in the percentiles
//! cargo bench -p curtail-testbed --bench recipes -- 7 stall    # another seed; rows that contain the text
//! ```
//!
//! Ends with exit code 1 when a percentile is off by more.

use bytes::Bytes;
use curtail_http::clock::Clock;
use curtail_http::precise_timer::PreciseTimer;
use curtail_model::Spacing;
use curtail_testbed::{Running, TestbedConfig};
use curtail_units::{Duration, Instant, Rng};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rows::{
    Percentiles, QUANTILES, REQUESTS_PER_SECOND, ROWS, SERVERS, is_within, percentiles, simulate,
};
use std::process::ExitCode;
use tokio::task::JoinSet;

mod rows;

const LASTS: Duration = Duration::from_secs(40);
const TIMEOUT: Duration = Duration::from_secs(2);

/// Testbeds that run at the same time.
const ROWS_AT_ONCE: usize = 3;

/// Requests of a simulation.
const SIMULATED: u32 = 400_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let seed = words.first().map_or(1, |word| word.parse().expect("the seed is a number"));
    let rows: Vec<_> = ROWS
        .into_iter()
        .filter(|(name, ..)| words.get(1).is_none_or(|word| name.contains(word.as_str())))
        .enumerate()
        .collect();
    println!("seed {seed}, {LASTS} each, {REQUESTS_PER_SECOND} requests/s to {SERVERS} servers");
    println!("{:30}{}", "", QUANTILES.map(|(name, _)| format!("{name:>22}")).concat());
    println!("{:30}{}", "", QUANTILES.map(|_| " simulated servers    ±".to_owned()).concat());
    let mut all_within = true;
    for rows in rows.chunks(ROWS_AT_ONCE) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let measured = runtime.block_on(async {
            let mut measurements = JoinSet::new();
            for &(nth, (_, keys, fault)) in rows {
                measurements.spawn(async move { (nth, measure(keys, fault, seed).await) });
            }
            let mut measured = measurements.join_all().await;
            measured.sort_unstable_by_key(|(nth, _)| *nth);
            measured
        });
        for ((_, (name, keys, fault)), (_, measured)) in rows.iter().zip(measured) {
            all_within &= print(name, &simulate(keys, fault, seed, SIMULATED), &measured);
        }
    }
    if all_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a row; false when a difference is too large.
fn print(name: &str, simulated: &Percentiles, measured: &Percentiles) -> bool {
    print!("{name:30}");
    for (simulated, measured) in simulated.iter().zip(measured) {
        print!("{simulated:10.1}{measured:8.1}{:4.0}", (measured / simulated - 1.0) * 100.0);
    }
    let is_within = is_within(simulated, measured);
    println!("{}", if is_within { "" } else { "  too different" });
    is_within
}

async fn measure(keys: &str, fault: &str, seed: u64) -> Percentiles {
    let yaml = rows::testbed_yaml(keys, fault);
    let config = TestbedConfig::from_yaml("recipes", &yaml).expect("no errors");
    let testbed = Running::start(&config, seed).expect("loopback and threads");
    let (clock, mut timer) = (Clock::start(), PreciseTimer::new().expect("a file"));
    let mut connections = Vec::new();
    for replica in 0..SERVERS {
        connections.push(connect(&testbed, replica).await);
    }
    let root = Rng::new(seed);
    let (mut arrivals, mut choice) = (root.split("arrivals"), root.split("choice"));
    let mut intended = clock.now();
    let end = intended + LASTS;
    let mut requests = JoinSet::new();
    loop {
        intended = intended + Spacing::Poisson.gap(1e9 / REQUESTS_PER_SECOND, &mut arrivals);
        if intended > end {
            break;
        }
        timer.wait(intended.since(clock.now())).await.expect("a runtime that does I/O");
        let connection = connections[choice.below(SERVERS)].clone();
        requests.spawn(latency_ms(connection, clock, intended));
    }
    let latencies_ms = requests.join_all().await;
    percentiles(latencies_ms)
}

type Connection = http2::SendRequest<Empty<Bytes>>;

async fn connect(testbed: &Running, replica: usize) -> Connection {
    let stream = tokio::net::TcpStream::connect(testbed.address(0, replica)).await;
    let stream = stream.expect("it listens");
    stream.set_nodelay(true).expect("a socket");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a connection");
    tokio::spawn(connection);
    sender
}

/// From when the request was intended until its response is complete; infinite without a good one.
async fn latency_ms(mut connection: Connection, clock: Clock, intended: Instant) -> f64 {
    let request = Request::get("http://testbed/shard/0/keys?k=a").body(Empty::new());
    let response = async {
        let response = connection.send_request(request.expect("a valid request")).await.ok()?;
        let is_good = response.status() == StatusCode::OK;
        response.into_body().collect().await.ok().filter(|_| is_good)
    };
    let response = tokio::time::timeout(TIMEOUT.into(), response).await.ok().flatten();
    response.map_or(f64::INFINITY, |_| clock.now().since(intended).as_ms_f64())
}
