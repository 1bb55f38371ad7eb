//! Every fault recipe, simulated and started as real servers: the percentiles must be within 15 % of each other.
//!
//! The same keys describe both: three replicas behind random balancing, open-loop Poisson arrivals, times of tens of
//! milliseconds, so that neither loopback nor timers matter. Arrivals and faults come from the same seed; service times
//! and the choice of a replica are drawn independently. The simulation is longer than the run of the servers, and has no
//! error worth naming. A failed request is longer than all others.
//!
//! ```sh
//! cargo bench -p curtail-testbed --bench recipes               # about two minutes; needs a quiet machine
//! cargo bench -p curtail-testbed --bench recipes -- 7 stall    # another seed; rows that contain the text
//! ```
//!
//! Ends with exit code 1 when a percentile is off by more.

use bytes::Bytes;
use curtail_model::Process;
use curtail_sim::{Scenario, run};
use curtail_testbed::{Alarm, Running, TestbedConfig};
use curtail_units::{Duration, Instant, Quantile, Rng};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The largest difference between simulation and servers.
const DIFFERENCE_MAX: f64 = 0.15;

const SERVERS: usize = 3;
const REQUESTS_PER_SECOND: f64 = 300.0;
const LASTS: Duration = Duration::from_secs(40);
const TIMEOUT: Duration = Duration::from_secs(2);

/// Testbeds that run at the same time.
const ROWS_AT_ONCE: usize = 3;

const QUANTILES: [(&str, Quantile); 4] = [
    ("p50", Quantile::P50),
    ("p90", Quantile::P90),
    ("p95", Quantile::P95),
    ("p99", Quantile::P99),
];

/// The server of all rows: of its 6 slots 2.2 are busy on average.
const SERVER: &str = "slots: 6, service: {shape: lognormal, median: 20ms, sigma: 0.4}";

/// Name, keys of the server beside [`SERVER`], and fault.
const ROWS: [(&str, &str, &str); 9] = [
    ("no fault", "", ""),
    (
        "stall",
        "",
        "recipe: stall, every: {shape: exponential, mean: 1s}, lasts: {shape: constant, value: 80ms}",
    ),
    (
        "garbage_collection",
        "",
        "recipe: garbage_collection, executions: 100, lasts: {shape: constant, value: 80ms}",
    ),
    (
        "background_job",
        "",
        "recipe: background_job, every: 2s, lasts: {shape: constant, value: 300ms}, slowdown: 2",
    ),
    (
        "background_job, synchronized",
        "",
        "recipe: background_job, every: 2s, lasts: {shape: constant, value: 300ms}, slowdown: 2, synchronized: true",
    ),
    ("slow_replica", "", "recipe: slow_replica, servers_first: 1, slowdown: 2"),
    ("errors", "", "recipe: errors, broken_ratio: 0.002, bad_ratio: 0.002, silent_ratio: 0.001"),
    (
        "noisy_neighbor",
        "",
        "recipe: noisy_neighbor, requests_per_second: 50, service: {shape: exponential, mean: 40ms}",
    ),
    (
        "antagonist",
        ", cores: {allocated: 2, machine: 6}",
        "recipe: antagonist, cores_max: 6, cores_left_min: 3, every: {shape: exponential, mean: 500ms}",
    ),
];

/// The percentiles of one row, in milliseconds; infinite among failed requests.
type Percentiles = [f64; QUANTILES.len()];

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
    let mut is_within = true;
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
            is_within &= print(name, &simulate(keys, fault, seed), &measured);
        }
    }
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a row; false when a difference is too large.
fn print(name: &str, simulated: &Percentiles, measured: &Percentiles) -> bool {
    print!("{name:30}");
    let mut is_within = true;
    for (simulated, measured) in simulated.iter().zip(measured) {
        let difference = measured / simulated - 1.0;
        is_within &= difference.abs() <= DIFFERENCE_MAX;
        print!("{simulated:10.1}{measured:8.1}{:4.0}", difference * 100.0);
    }
    println!("{}", if is_within { "" } else { "  too different" });
    is_within
}

fn faults(fault: &str) -> String {
    if fault.is_empty() { "[]".to_owned() } else { format!("[{{{fault}}}]") }
}

fn simulate(keys: &str, fault: &str, seed: u64) -> Percentiles {
    let faults = faults(fault);
    let yaml = format!(
        "model: {{replicas: {SERVERS}, {SERVER}{keys}, faults: {faults}, arrivals: {{requests_per_second: {REQUESTS_PER_SECOND}}}}}
arms: {{plain: {{balance: random, hedge: false, retry: false, timeout: 2s}}}}
requests_max: 400000
"
    );
    let scenario = Scenario::read("recipes", &yaml, &[]).expect("no errors");
    let report = run(&scenario, seed, |_| {});
    let arm = report.arm("", "plain").expect("the only arm");
    QUANTILES.map(|(_, quantile)| {
        let known = arm.quantiles_ns.iter().find(|(other, _)| *other == quantile);
        known.and_then(|(_, value)| *value).map_or(f64::INFINITY, |value| value.value / 1e6)
    })
}

async fn measure(keys: &str, fault: &str, seed: u64) -> Percentiles {
    let faults = faults(fault);
    let yaml = format!(
        "{{name: recipes, replicas: {SERVERS}, server: {{{SERVER}{keys}}}, faults: {faults}}}"
    );
    let config = TestbedConfig::from_yaml("recipes", &yaml).expect("no errors");
    let testbed = Running::start(&config, seed).expect("loopback and threads");
    let alarm = Arc::new(Alarm::start().expect("a thread"));
    let mut connections = Vec::new();
    for replica in 0..SERVERS {
        connections.push(connect(&testbed, replica).await);
    }
    let root = Rng::new(seed);
    let (mut arrivals, mut choice) = (root.split("arrivals"), root.split("choice"));
    let mut intended = alarm.now();
    let end = intended + LASTS;
    let mut requests = JoinSet::new();
    loop {
        intended = intended + Process::Poisson.gap(1e9 / REQUESTS_PER_SECOND, &mut arrivals);
        if intended > end {
            break;
        }
        alarm.until(intended).await;
        let connection = connections[choice.below(SERVERS)].clone();
        requests.spawn(latency_ms(connection, Arc::clone(&alarm), intended));
    }
    let mut latencies_ms = requests.join_all().await;
    latencies_ms.sort_unstable_by(f64::total_cmp);
    QUANTILES.map(|(_, quantile)| {
        let rank = (latencies_ms.len() as f64 * quantile.get()).ceil();
        let nth = (0..latencies_ms.len()).find(|nth| *nth as f64 + 1.0 >= rank);
        latencies_ms[nth.expect("a quantile is at most 1")]
    })
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
async fn latency_ms(mut connection: Connection, alarm: Arc<Alarm>, intended: Instant) -> f64 {
    let request = Request::get("http://testbed/shard/0/keys?k=a").body(Empty::new());
    let response = async {
        let response = connection.send_request(request.expect("a valid request")).await.ok()?;
        let is_good = response.status() == StatusCode::OK;
        response.into_body().collect().await.ok().filter(|_| is_good)
    };
    let response = tokio::time::timeout(TIMEOUT.into(), response).await.ok().flatten();
    response.map_or(f64::INFINITY, |_| alarm.now().since(intended).as_ms_f64())
}
