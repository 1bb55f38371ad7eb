//! The CPU time that a holdout costs: one proxy, whose upstream has a holdout in one block of requests and none in the next.
//!
//! A reload before each block makes a new upstream with new connections, because two upstreams with the same keys differ
//! by several percent (which connections they have, where they are in memory). Each pair has a block with `holdout: 0.01`
//! and one without, in random order. A second block without shows the error of the method: its cost is zero. The CPU time
//! is that of the proxy's only worker, as the kernel counts it. The interval of the mean of the paired differences is that
//! of a normal mean, 95 %. Pairs that other processes disturb are cut: the tenth with the lowest differences, and the
//! tenth with the highest (a trimmed mean).
//!
//! ```sh
//! cargo bench -p curtail-proxy --bench holdout_cost            # 2,000 pairs: two minutes
//! cargo bench -p curtail-proxy --bench holdout_cost -- 10000   # more pairs, a narrower interval
//! ```

use curtail_proxy::{Config, Options};
use curtail_units::Rng;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

const PAIRS: usize = 2_000;
const CONNECTIONS: usize = 16;
/// Rounds of a block that are not measured: connections to the replicas, and caches.
const WARM_UP: usize = 10;
/// Measured rounds of a block: requests on each connection.
const ROUNDS: usize = 20;
/// Cuts one pair in this number on each side.
const TRIMMED: usize = 10;

/// The blocks of a pair: without a holdout, with one, and once more without.
const KEYS: [&str; 3] = ["", "holdout: 0.01", ""];
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: service\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn main() {
    let pairs = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(PAIRS);
    let replicas = [(); 2].map(|()| format!("\"http://{}\"", replica())).join(", ");
    // An upstream with another name is a new one.
    let config = |nth: usize, keys: &str| {
        let yaml = format!(
            "workers: 1\nlisteners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: u{nth}}}]\n\
             upstreams: {{u{nth}: {{replicas: [{replicas}], {keys}}}}}\n"
        );
        Config::from_yaml("bench", &yaml).unwrap_or_else(|errors| panic!("{errors}"))
    };
    let options = Options { journal: None, seed: 1 };
    let proxy = curtail_proxy::start(config(0, ""), &options).expect("it starts");
    let mut connections = connect(proxy.listeners()[0].1);
    round(&mut connections);
    let worker = worker();
    let mut rng = Rng::new(1);
    let mut measured = Vec::with_capacity(pairs);
    for pair in 1..=pairs {
        let mut ns = [0.0; KEYS.len()];
        let mut order: Vec<usize> = (0..KEYS.len()).collect();
        order.sort_by_cached_key(|_| rng.next_u64());
        for nth in order {
            let config = config(KEYS.len() * pair + nth, KEYS[nth]);
            proxy.reload(config).expect("it has the same workers");
            (0..WARM_UP).for_each(|_| round(&mut connections));
            let before = cpu_ns(&worker);
            (0..ROUNDS).for_each(|_| round(&mut connections));
            ns[nth] = (cpu_ns(&worker) - before) / (CONNECTIONS * ROUNDS) as f64;
        }
        measured.push(ns);
    }
    report(&measured);
    drop(connections);
    proxy.stop(std::time::Duration::from_secs(1));
}

/// Prints the cost of a holdout, from the CPU time of a request in each block.
fn report(measured: &[[f64; KEYS.len()]]) {
    let (without, _) = mean(measured.iter().map(|ns| ns[0]).collect());
    println!(
        "CPU time of a request without a holdout: {without:.0} ns; {} pairs of blocks of {} requests",
        measured.len(),
        CONNECTIONS * ROUNDS
    );
    for (name, nth) in [("a holdout", 1), ("nothing (error of the method)", 2)] {
        let (mean, half) = mean(measured.iter().map(|ns| ns[nth] - ns[0]).collect());
        let percent = |ns: f64| 100.0 * ns / without;
        println!(
            "cost of {name}: {mean:.0} ns ({:.0} to {:.0}), {:.2} % ({:.2} to {:.2})",
            mean - half,
            mean + half,
            percent(mean),
            percent(mean - half),
            percent(mean + half)
        );
    }
}

/// The trimmed mean, and half of its interval from the winsorized variance (Tukey and `McLaughlin`, Sankhya 25, 1963).
fn mean(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let cut = values.len() / TRIMMED;
    let kept = &values[cut..values.len() - cut];
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    let (first, last) = (kept[0], kept[kept.len() - 1]);
    let winsorized = || values.iter().map(|value| value.clamp(first, last));
    let center = winsorized().sum::<f64>() / n;
    let variance = winsorized().map(|value| (value - center).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, 1.96 * (variance / n).sqrt() / (1.0 - 2.0 / TRIMMED as f64))
}

/// A server that responds at once.
fn replica() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            std::thread::spawn(move || {
                let mut head = Vec::new();
                while read_until(&mut stream, &mut head, b"\r\n\r\n")
                    && stream.write_all(RESPONSE).is_ok()
                {}
            });
        }
    });
    address
}

/// Reads until the bytes end with `end`; false at the end of the connection.
fn read_until(stream: &mut TcpStream, bytes: &mut Vec<u8>, end: &[u8]) -> bool {
    bytes.clear();
    let mut part = [0; 2_048];
    while !bytes.ends_with(end) {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return false,
            Ok(len) => bytes.extend_from_slice(&part[..len]),
        }
    }
    true
}

fn connect(address: SocketAddr) -> Vec<TcpStream> {
    let connect = |_| {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream
    };
    (0..CONNECTIONS).map(connect).collect()
}

/// Sends a request on each connection, then reads the responses.
fn round(connections: &mut [TcpStream]) {
    for stream in &mut *connections {
        stream.write_all(REQUEST).expect("the proxy reads");
    }
    let mut response = Vec::new();
    for stream in connections {
        assert!(read_until(stream, &mut response, b"\r\n\r\nok"), "the proxy responds");
    }
}

/// The ID of the worker's thread.
fn worker() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let ids = tasks.map(|task| task.expect("a thread").file_name().to_string_lossy().into_owned());
    let is_worker = |id: &String| {
        let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm"));
        name.is_ok_and(|name| name.starts_with("worker"))
    };
    { ids }.find(is_worker).expect("it has responded")
}

/// The CPU time of a thread so far: the first number of its `schedstat`.
fn cpu_ns(thread: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
    let text = text.expect("a kernel with schedstat");
    let first = text.split_whitespace().next().expect("three numbers");
    first.parse().expect("nanoseconds")
}
