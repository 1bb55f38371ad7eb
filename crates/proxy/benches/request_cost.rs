//! The CPU time that a feature costs a request: one proxy, which has the feature in one block of requests and not in the
//! next.
//!
//! A reload before each block makes a new upstream with new connections, because two upstreams with the same keys differ
//! by several percent (which connections they have, where they are in memory). Each pair has a block with the feature and
//! one without, in random order. A second block without shows the error of the method: its cost is zero. The CPU time
//! is that of the proxy's only worker and of the writer of its access log, as the kernel counts it. The interval of the
//! mean of the paired differences is that of a normal mean, 95 %. Pairs that other processes disturb are cut: the tenth
//! with the lowest differences, and the tenth with the highest (a trimmed mean).
//!
//! ```sh
//! cargo bench -p curtail-proxy --bench request_cost -- holdout          # 2,000 pairs: two minutes
//! cargo bench -p curtail-proxy --bench request_cost -- holdout 10000    # more pairs, a narrower interval
//! cargo bench -p curtail-proxy --bench request_cost -- access_log
//! ```

use curtail_proxy::{Config, Options};
use curtail_units::Rng;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

/// A feature whose cost is measured.
struct Feature {
    name: &'static str,
    /// Its keys in the upstream.
    upstream: &'static str,
    /// Whether it is the access log, as JSON.
    is_access_log: bool,
    pairs: usize,
    /// Measured rounds of a block: requests on each connection.
    rounds: usize,
}

const FEATURES: [Feature; 2] = [
    Feature {
        name: "holdout",
        upstream: "holdout: 0.01",
        is_access_log: false,
        pairs: 2_000,
        rounds: 20,
    },
    // The writer wakes ten times a second, so a block must last about that long.
    Feature { name: "access_log", upstream: "", is_access_log: true, pairs: 300, rounds: 250 },
];

const CONNECTIONS: usize = 16;
/// Cuts one pair in this number on each side.
const TRIMMED: usize = 10;

/// Whether each block of a pair has the feature.
const BLOCKS: [bool; 3] = [false, true, false];
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: service\r\nuser-agent: bench\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn main() {
    let feature = |arg: String| FEATURES.iter().find(|feature| feature.name == arg);
    let feature = std::env::args().find_map(feature).unwrap_or(&FEATURES[0]);
    let pairs = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(feature.pairs);
    let replicas = [(); 2].map(|()| format!("\"http://{}\"", replica())).join(", ");
    let file = std::env::temp_dir().join(format!("curtail-request-cost-{}", std::process::id()));
    let options = Options { journal: None, seed: 1, ..Options::default() };
    let proxy = curtail_proxy::start(config(&replicas, 0, None, &file), &options);
    let proxy = proxy.expect("it starts");
    let mut connections = connect(proxy.listeners()[0].1);
    round(&mut connections);
    let mut rng = Rng::new(1);
    let (mut measured, mut of_writer) = (Vec::with_capacity(pairs), Vec::with_capacity(pairs));
    for pair in 1..=pairs {
        let mut ns = [0.0; BLOCKS.len()];
        let mut order: Vec<usize> = (0..BLOCKS.len()).collect();
        order.sort_by_cached_key(|_| rng.next_u64());
        for nth in order {
            // Each block has a file of its own, or the disk would fill up. There is none before the first one.
            std::fs::remove_file(&file).ok();
            let feature_now = BLOCKS[nth].then_some(feature);
            let config = config(&replicas, BLOCKS.len() * pair + nth, feature_now, &file);
            proxy.reload(config).expect("it has the same workers");
            // Connections to the replicas, caches, and the rhythm of the writer.
            (0..feature.rounds / 2).for_each(|_| round(&mut connections));
            let (worker, writer) = (threads("worker"), threads("access-log"));
            let before = (cpu_ns(&worker), cpu_ns(&writer));
            (0..feature.rounds).for_each(|_| round(&mut connections));
            let requests = (CONNECTIONS * feature.rounds) as f64;
            let in_writer = (cpu_ns(&writer) - before.1) / requests;
            ns[nth] = (cpu_ns(&worker) - before.0) / requests + in_writer;
            if BLOCKS[nth] {
                of_writer.push(in_writer);
            }
        }
        measured.push(ns);
    }
    report(feature, &measured);
    if feature.is_access_log {
        println!("of that in the thread that writes: {:.0} ns", mean(of_writer).0);
    }
    drop(connections);
    proxy.stop(std::time::Duration::from_secs(1));
    std::fs::remove_file(&file).ok();
}

/// A proxy with an upstream of its own, because an upstream with another name is a new one.
fn config(replicas: &str, nth: usize, feature: Option<&Feature>, file: &Path) -> Config {
    let upstream = feature.map_or("", |feature| feature.upstream);
    let access_log = match feature {
        Some(Feature { is_access_log: true, .. }) => {
            format!("access_log: {{file: {}}}\n", file.display())
        }
        _ => String::new(),
    };
    let yaml = format!(
        "workers: 1\nlisteners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: u{nth}}}]\n\
         upstreams: {{u{nth}: {{replicas: [{replicas}], {upstream}}}}}\n{access_log}"
    );
    Config::from_yaml("bench", &yaml).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Prints the cost of the feature, from the CPU time of a request in each block.
fn report(feature: &Feature, measured: &[[f64; BLOCKS.len()]]) {
    let (without, _) = mean(measured.iter().map(|ns| ns[0]).collect());
    println!(
        "CPU time of a request without {}: {without:.0} ns; {} pairs of blocks of {} requests",
        feature.name,
        measured.len(),
        CONNECTIONS * feature.rounds
    );
    for (name, nth) in [(feature.name, 1), ("nothing (error of the method)", 2)] {
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

/// The IDs of the threads whose names begin so: those of the worker, or of the writers of access logs.
fn threads(prefix: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let ids = tasks.map(|task| task.expect("a thread").file_name().to_string_lossy().into_owned());
    let is_measured = |id: &String| {
        let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm"));
        name.is_ok_and(|name| name.starts_with(prefix))
    };
    ids.filter(is_measured).collect()
}

/// The CPU time of threads so far: the first number of each `schedstat`. A writer that a reload has just replaced may have
/// ended meanwhile.
fn cpu_ns(threads: &[String]) -> f64 {
    let of_one = |id: &String| {
        let text = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    threads.iter().filter_map(of_one).sum()
}
