//! `remedy: auto` over real sockets, on services whose right decision is known.
//!
//! A proxy with four replicas and 1,000 requests a second (open loop, Poisson). Each service has a proxy of its own:
//!
//! | service | right |
//! |---|---|
//! | stalls that stop: each replica stops for 200 ms every 3 s on average; later it no longer does | on, then off |
//! | intrinsic tail: one request in a hundred takes 20 times as long, on every replica | never on |
//! | saturation: stalls as above; later each replica executes one request at a time, and all are busy | on, then off |
//! | saturated: each replica executes one request at a time from the start | never on |
//!
//! Each decision may take two minutes. A service that must never be on is watched for four. Every decision is printed with
//! its reason, as the state page has it. The bench ends with exit code 1 if a decision is late or wrong.
//!
//! ```sh
//! cargo bench -p curtail-proxy --bench remedy              # all services, one after the other: 16 minutes at most
//! cargo bench -p curtail-proxy --bench remedy -- stalls 7  # those whose name contains the text, with seed 7
//! ```

use curtail_proxy::{Config, Options};
use curtail_units::Rng;
use serde_json::Value;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

const REPLICAS: usize = 4;
const REQUESTS_PER_SECOND: f64 = 1_000.0;
const WITHIN: Duration = Duration::from_secs(120);

/// Requests above this number in flight are not sent: a client that waits sends no more.
const IN_FLIGHT_MAX: usize = 400;

/// The median service time; the logarithm has a standard deviation of [`SIGMA`].
const MEDIAN_US: f64 = 3_000.0;
const SIGMA: f64 = 0.3;

const STALL: Duration = Duration::from_millis(200);
/// The mean time between the stalls of a replica.
const STALL_EVERY_S: f64 = 3.0;

const HEAVY_SHARE: f64 = 0.01;
const HEAVY_FACTOR: f64 = 20.0;

/// The behavior of the replicas and of the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Calm,
    Stalls,
    HeavyRequests,
    /// Each replica executes one request at a time.
    Saturated,
}

type SharedPhase = Arc<Mutex<Phase>>;

/// Each service: its name, its behavior at first, and once the state is on. Without the latter, it must never be on.
const SERVICES: [(&str, Phase, Option<Phase>); 4] = [
    ("stalls that stop", Phase::Stalls, Some(Phase::Calm)),
    ("intrinsic tail", Phase::HeavyRequests, None),
    ("saturation after stalls", Phase::Stalls, Some(Phase::Saturated)),
    ("saturated from the start", Phase::Saturated, None),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let seed = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(1);
    let words: Vec<&String> = args.iter().filter(|arg| arg.parse::<u64>().is_err()).collect();
    let mut is_right = true;
    for (name, first, then) in SERVICES {
        if words.iter().all(|word| name.contains(*word)) {
            println!("{name} (seed {seed})");
            let verdict = run(seed, first, then);
            println!("  {}\n", verdict.as_ref().map_or_else(String::clone, String::clone));
            is_right &= verdict.is_ok();
        }
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a service.
///
/// # Errors
/// What is wrong.
fn run(seed: u64, first: Phase, then: Option<Phase>) -> Result<String, String> {
    let phase = Arc::new(Mutex::new(first));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let replicas: Vec<SocketAddr> = (0..REPLICAS)
        .map(|nth| {
            let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).expect("a port");
            let address = listener.local_addr().expect("bound");
            let rng = Rng::new(seed).split("stalls").split_index(nth as u64);
            runtime.spawn(replica(listener, Arc::clone(&phase), rng));
            address
        })
        .collect();
    let urls: Vec<String> =
        replicas.iter().map(|address| format!("\"http://{address}\"")).collect();
    let yaml = format!(
        "workers: 1\nlisteners: [{{address: \"127.0.0.1:0\"}}]\nadmin: {{address: \"127.0.0.1:0\"}}\n\
         routes: [{{upstream: service}}]\n\
         upstreams: {{service: {{replicas: [{}], remedy: auto}}}}\n",
        urls.join(", ")
    );
    let config = Config::from_yaml("bench", &yaml).expect("no errors");
    let proxy =
        curtail_proxy::start(config, &Options { journal: None, seed, ..Options::default() })
            .expect("it starts");
    let (listener, admin) = (proxy.listeners()[0].1, proxy.admin().expect("configured"));
    let rng = Rng::new(seed).split("requests");
    runtime.spawn(send_requests(listener, Arc::clone(&phase), rng));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let service = std::thread::spawn(move || _ = runtime.block_on(stopped));
    let verdict = watch(admin, &phase, then);
    // The clients end before the proxy.
    drop(stop);
    service.join().expect("it does not panic");
    proxy.stop(Duration::from_secs(1));
    verdict
}

/// Prints the decisions of the proxy until all were made, or one is late or wrong.
fn watch(admin: SocketAddr, phase: &SharedPhase, then: Option<Phase>) -> Result<String, String> {
    let start = Instant::now();
    let (mut printed, mut changed) = (String::new(), None);
    loop {
        std::thread::park_timeout(Duration::from_millis(500));
        let remedy = state(admin)["upstreams"][0]["remedy"].clone();
        let text = |key: &str| remedy[key].as_str().unwrap_or_default().to_owned();
        let state = text("state");
        let line = format!("{state:8} {}: {}", text("reason"), text("reason_detail"));
        if line != printed {
            println!("  {:5.1} s  {line}", start.elapsed().as_secs_f64());
            printed = line;
        }
        let since: Instant = changed.unwrap_or(start);
        let is_trial_late =
            state == "trial" && remedy["age_s"].as_f64() > Some(WITHIN.as_secs_f64());
        match (then, state.as_str()) {
            (None, "on") => return Err("WRONG: on".to_owned()),
            (None, _) if start.elapsed() > 2 * WITHIN => return Ok("right: never on".to_owned()),
            (Some(then), "on") if changed.is_none() => {
                println!("  {:5.1} s  --- the service changes", start.elapsed().as_secs_f64());
                *phase.lock().unwrap_or_else(PoisonError::into_inner) = then;
                changed = Some(Instant::now());
            }
            (Some(_), "off") if changed.is_some() => {
                let (on, off) = (since - start, since.elapsed());
                return Ok(format!("right: on after {on:.0?}, off {off:.0?} after the change"));
            }
            (Some(_), _) if since.elapsed() > WITHIN => return Err("WRONG: late".to_owned()),
            _ if is_trial_late => return Err("WRONG: a trial without an end".to_owned()),
            _ => {}
        }
    }
}

/// The state page of a proxy.
fn state(admin: SocketAddr) -> Value {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(admin).expect("it listens");
    stream
        .write_all(b"GET /state HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n")
        .expect("a connection");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let body = response.split_once("\r\n\r\n").expect("a header").1;
    serde_json::from_str(body).expect("JSON")
}

fn read(phase: &SharedPhase) -> Phase {
    *phase.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One replica: in phases with stalls, it stops now and then.
async fn replica(listener: TcpListener, phase: SharedPhase, mut rng: Rng) {
    let stalled_until = Arc::new(Mutex::new(tokio::time::Instant::now()));
    let (until, stalls) = (Arc::clone(&stalled_until), Arc::clone(&phase));
    tokio::spawn(async move {
        loop {
            let gap = Duration::from_secs_f64(STALL_EVERY_S * rng.exponential());
            tokio::time::sleep(gap).await;
            if read(&stalls) == Phase::Stalls {
                let end = tokio::time::Instant::now() + STALL;
                *until.lock().unwrap_or_else(PoisonError::into_inner) = end;
                tokio::time::sleep_until(end).await;
            }
        }
    });
    let turn = Arc::new(Semaphore::new(1));
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let (phase, until) = (Arc::clone(&phase), Arc::clone(&stalled_until));
        tokio::spawn(serve(stream, phase, until, Arc::clone(&turn)));
    }
}

/// Serves the requests of a connection, each of which names its service time. `turn` is for one request at a time.
async fn serve(
    mut stream: TcpStream,
    phase: SharedPhase,
    stalled_until: Arc<Mutex<tokio::time::Instant>>,
    turn: Arc<Semaphore>,
) {
    let mut head = Vec::new();
    while read_head(&mut stream, &mut head).await {
        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let named = text.lines().find_map(|line| line.strip_prefix("x-service-us: "));
        let service_us = named.and_then(|us| us.parse().ok()).unwrap_or(0);
        let permit = match read(&phase) {
            Phase::Saturated => Some(turn.acquire().await.expect("never closed")),
            Phase::Calm | Phase::Stalls | Phase::HeavyRequests => None,
        };
        let until = *stalled_until.lock().unwrap_or_else(PoisonError::into_inner);
        tokio::time::sleep_until(until).await;
        tokio::time::sleep(Duration::from_micros(service_us)).await;
        drop(permit);
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
            return;
        }
    }
}

/// Reads a head without a body; false at the end of the connection.
async fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>) -> bool {
    head.clear();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_buf(head).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
    true
}

/// Sends requests at random times, each on a connection of its own among those that are idle.
async fn send_requests(address: SocketAddr, phase: SharedPhase, mut rng: Rng) {
    let idle: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    let mut intended = tokio::time::Instant::now();
    loop {
        intended += Duration::from_secs_f64(rng.exponential() / REQUESTS_PER_SECOND);
        tokio::time::sleep_until(intended).await;
        let is_heavy = rng.chance(HEAVY_SHARE) && read(&phase) == Phase::HeavyRequests;
        let factor = if is_heavy { HEAVY_FACTOR } else { 1.0 };
        let service_us = factor * MEDIAN_US * (SIGMA * rng.normal()).exp();
        let Ok(permit) = Arc::clone(&in_flight).try_acquire_owned() else { continue };
        let idle = Arc::clone(&idle);
        tokio::spawn(async move {
            let _permit = permit;
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut stream = match kept {
                Some(stream) => stream,
                None => TcpStream::connect(address).await.expect("it listens"),
            };
            let request =
                format!("GET / HTTP/1.1\r\nhost: service\r\nx-service-us: {service_us:.0}\r\n\r\n");
            let mut head = Vec::new();
            if stream.write_all(request.as_bytes()).await.is_ok()
                && read_head(&mut stream, &mut head).await
            {
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
            }
        });
    }
}
