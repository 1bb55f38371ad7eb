//! The cost of hostile clients: memory and CPU time of the proxy, and the latency of well-behaved clients beside them.
//!
//! Each kind of client has a proxy of its own: one worker, in front of one replica over HTTP/1.1. Well-behaved clients
//! send 1,000 requests a second, first alone, then beside the hostile ones. Their latency counts from the time at which a
//! request was due, so a stall of the proxy counts for each request that it delays. Memory is the growth of the resident
//! memory, with its peak during floods. CPU is the share of one core; the column before has the well-behaved load alone. A
//! flood whose connection ends begins again on a new one.
//!
//! The clients and the replica share the machine with the proxy, so floods also take CPU time from the latencies.
//!
//! ```sh
//! cargo bench -p curtail-proxy --bench hostile             # all kinds: two minutes
//! cargo bench -p curtail-proxy --bench hostile -- PING     # those whose name contains the text
//! ```

#[expect(dead_code, reason = "the tests use all of it")]
#[path = "../tests/it/frames.rs"]
mod frames;
#[expect(dead_code, reason = "the tests use all of it")]
#[path = "../tests/it/hostile/script.rs"]
mod script;

use curtail_text::{Column, Columns};
use frames::{CANCEL, CONTINUATION, END_STREAM, HEADERS, PREFACE, SETTINGS, frame_bytes, request};
use script::{FRAME_BYTES, INITIAL_WINDOW_SIZE, Script, WHOLE, WINDOW_MAX, hpack_bomb};
use std::io::BufRead as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A kind of client.
struct Peer {
    name: &'static str,
    connections: usize,
    /// Whether HTTP/2 begins each connection.
    is_http2: bool,
    sends: fn(&mut Script),
    /// Whether the clients send again and again; otherwise once, and then nothing.
    floods: bool,
    reads: bool,
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: service\r\n\r\n";
const BAD_HOST: &[u8] = b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nhost: service\r\ncontent-length: 1000000000000\r\n\r\n";
const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nhost: service\r\ntransfer-encoding: chunked\r\n\r\n";
const LONG: &[u8] = b"GET /long HTTP/1.1\r\nhost: service\r\n\r\n";

const fn held(name: &'static str, connections: usize, sends: fn(&mut Script)) -> Peer {
    Peer { name, connections, is_http2: true, sends, floods: false, reads: true }
}

const fn flood(name: &'static str, sends: fn(&mut Script)) -> Peer {
    Peer { name, connections: 2, is_http2: true, sends, floods: true, reads: true }
}

const fn http1_flood(name: &'static str, sends: fn(&mut Script)) -> Peer {
    Peer { is_http2: false, ..flood(name, sends) }
}

const PEERS: &[Peer] = &[
    Peer { is_http2: false, ..held("HTTP/1.1, no byte", 400, |_| {}) },
    Peer { is_http2: false, ..held("HTTP/1.1, half a head", 400, |s| s.bytes(&GET[..20])) },
    Peer { is_http2: false, reads: false, ..held("HTTP/1.1, unread", 200, |s| s.bytes(LONG)) },
    held("HTTP/2, no request", 400, |_| {}),
    held("HTTP/2, half a head", 400, |s| s.frame(HEADERS, END_STREAM, 1, &[0x82])),
    held("HTTP/2, 100 bodies to come", 20, |s| s.on_streams(100, |s, id| s.post(id, "/"))),
    held("HTTP/2, 16 zero windows", 20, |s| {
        s.setting(INITIAL_WINDOW_SIZE, 0);
        s.on_streams(16, |s, id| s.get(id, "/long"));
    }),
    Peer {
        reads: false,
        ..held("HTTP/2, unread", 200, |s| {
            s.setting(INITIAL_WINDOW_SIZE, WINDOW_MAX);
            s.window(0, WINDOW_MAX - 65_535);
            s.get(1, "/long");
        })
    },
    http1_flood("HTTP/1.1, pipelined", |s| s.repeat(1_000, |s| s.bytes(GET))),
    http1_flood("HTTP/1.1, unroutable", |s| s.repeat(1_000, |s| s.bytes(BAD_HOST))),
    http1_flood("HTTP/1.1, upload", |s| {
        s.bytes(POST);
        s.repeat(1 << 14, |s| s.bytes(&[b'x'; 1 << 14]));
    }),
    http1_flood("HTTP/1.1, chunks of a byte", |s| {
        s.bytes(CHUNKED);
        s.repeat(1 << 22, |s| s.bytes(b"1\r\nx\r\n"));
    }),
    http1_flood("HTTP/1.1, download", |s| s.bytes(LONG)),
    flood("PING", |s| s.repeat(4_096, Script::ping)),
    Peer { reads: false, ..flood("PING, unread", |s| s.repeat(4_096, Script::ping)) },
    flood("SETTINGS", |s| s.repeat(4_096, |s| s.frame(SETTINGS, 0, 0, &[]))),
    Peer {
        reads: false,
        ..flood("SETTINGS, unread", |s| s.repeat(4_096, |s| s.frame(SETTINGS, 0, 0, &[])))
    },
    flood("PRIORITY", |s| s.repeat(4_096, |s| s.priority(1, 0))),
    flood("unknown frames", |s| s.repeat(64, |s| s.frame(0xbe, 0, 0, &[0; FRAME_BYTES]))),
    flood("rapid reset", |s| {
        s.on_streams(20_000, |s, id| {
            s.get(id, "/");
            s.reset(id, CANCEL);
        });
    }),
    flood("MadeYouReset", |s| {
        s.on_streams(20_000, |s, id| {
            s.get(id, "/");
            s.window(id, 0);
        });
    }),
    flood("CONTINUATION", |s| {
        s.frame(HEADERS, END_STREAM, 1, &request("GET", "/"));
        s.repeat(4_096, |s| s.frame(CONTINUATION, 0, 1, &[0x90; FRAME_BYTES]));
    }),
    flood("empty CONTINUATION", |s| {
        s.frame(HEADERS, END_STREAM, 1, &request("GET", "/"));
        s.repeat(400_000, |s| s.frame(CONTINUATION, 0, 1, &[]));
    }),
    flood("empty DATA", |s| {
        s.post(1, "/");
        s.repeat(400_000, |s| s.data(1, 0, b""));
    }),
    flood("HPACK bombs", |s| {
        s.on_streams(50, |s, id| s.head(id, WHOLE, &hpack_bomb(&request("GET", "/"), 12_000)));
    }),
    flood("requests beyond the limit", |s| s.on_streams(20_000, |s, id| s.get(id, "/"))),
];

/// The time for which the load is measured alone.
const ALONE: Duration = Duration::from_secs(2);
/// The time for which the hostile clients stay.
const BESIDE: Duration = Duration::from_secs(4);
/// The interval of the well-behaved requests.
const INTERVAL: Duration = Duration::from_millis(1);
/// The well-behaved clients, which send in turn.
const CLIENTS: u32 = 20;

fn main() {
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let columns =
        Columns::new([Column::Left(26)].into_iter().chain([7, 9, 7, 7, 9, 9].map(Column::Right)));
    println!("{}", columns.row(["", "", "memory", "alone", "beside", "p50, ms", "p99, ms"]));
    println!(
        "{}",
        columns.row(["client", "number", "KiB each", "% CPU", "% CPU", "(alone)", "(alone)"])
    );
    for peer in PEERS.iter().filter(|peer| peer.name.contains(&wanted)) {
        let (alone, beside, bytes) = measure(peer);
        let ms = |load: &Load, quantile: f64| format!("{:.2}", load.latency(quantile) * 1e3);
        let kib = (bytes >> 10) as f64 / peer.connections as f64;
        println!(
            "{}",
            columns.row([
                peer.name.to_owned(),
                peer.connections.to_string(),
                format!("{kib:.1}"),
                format!("{:.0}", alone.cpu * 100.0),
                format!("{:.0}", beside.cpu * 100.0),
                ms(&beside, 0.5),
                ms(&beside, 0.99),
            ])
        );
        let nothing = "";
        println!(
            "{}",
            columns.row([
                nothing,
                nothing,
                nothing,
                nothing,
                nothing,
                &format!("({})", ms(&alone, 0.5)),
                &format!("({})", ms(&alone, 0.99)),
            ])
        );
    }
}

/// The well-behaved load during a time.
struct Load {
    /// In seconds, sorted.
    latencies: Vec<f64>,
    /// The proxy's share of one core.
    cpu: f64,
}

impl Load {
    fn latency(&self, quantile: f64) -> f64 {
        let last = self.latencies.len() - 1;
        #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "an index")]
        let at = (last as f64 * quantile).round() as usize;
        self.latencies[at]
    }
}

/// Measures the load alone and beside hostile clients, and the growth of the proxy's memory.
fn measure(peer: &'static Peer) -> (Load, Load, u64) {
    let replica = on_own_thread(replica);
    let proxy = Proxy::start(replica);
    let alone = load(&proxy, ALONE);
    let before = proxy.status("VmRSS:");
    // "5" starts a new measurement of the peak.
    std::fs::write(proxy.file("clear_refs"), "5").expect("a process of ours");
    let stop = Arc::new(Notify::new());
    let (stopped, address) = (Arc::clone(&stop), proxy.address);
    let attack = std::thread::spawn(move || {
        runtime().block_on(async {
            let mut clients = tokio::task::JoinSet::new();
            for _ in 0..peer.connections {
                clients.spawn(attack(peer, address));
            }
            stopped.notified().await;
        });
    });
    let beside = load(&proxy, BESIDE);
    let bytes = proxy.status(if peer.floods { "VmHWM:" } else { "VmRSS:" }).saturating_sub(before);
    stop.notify_one();
    attack.join().expect("no panic");
    (alone, beside, bytes)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs a server on a thread of its own. Its queue of connections takes a burst of cancelled and repeated requests: beyond
/// it, the kernel would delay each connection by a second.
fn on_own_thread<F: Future<Output = ()> + 'static>(serve: fn(TcpListener) -> F) -> SocketAddr {
    let runtime = runtime();
    let listener = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("loopback");
        socket.listen(4_096).expect("it is bound")
    });
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || runtime.block_on(serve(listener)));
    address
}

/// Responds at once, to `/long` without an end, and to uploads never.
async fn replica(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("connections come");
        stream.set_nodelay(true).expect("a socket");
        tokio::spawn(async move {
            let (mut read, mut part) = (Vec::new(), [0; 4_096]);
            while let Ok(len @ 1..) = stream.read(&mut part).await {
                read.extend_from_slice(&part[..len]);
                while let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                    if read.starts_with(b"POST") {
                        while stream.read(&mut part).await.is_ok_and(|len| len > 0) {}
                        return;
                    }
                    let is_long = read.starts_with(b"GET /long");
                    read.drain(..end + 4);
                    if is_long {
                        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
                        let mut sent = stream.write_all(head).await;
                        while sent.is_ok() {
                            sent = stream.write_all(&[b'x'; 1 << 16]).await;
                        }
                        return;
                    }
                    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    if stream.write_all(response).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}

/// One hostile client; one that floods connects again when the proxy has closed its connection.
async fn attack(peer: &'static Peer, address: SocketAddr) {
    loop {
        let mut stream = TcpStream::connect(address).await.expect("the proxy listens");
        let script = Script::new(peer.sends);
        let (mut reader, mut writer) = stream.split();
        let writing = async {
            if peer.is_http2 {
                writer.write_all(PREFACE).await?;
                writer.write_all(&frame_bytes(SETTINGS, 0, 0, &[])).await?;
            }
            loop {
                for (bytes, times) in script.parts() {
                    for _ in 0..*times {
                        writer.write_all(bytes).await?;
                    }
                }
                if !peer.floods {
                    std::future::pending::<()>().await;
                }
            }
            #[expect(unreachable_code, reason = "it has the type of the errors")]
            std::io::Result::Ok(())
        };
        let reading = async {
            if !peer.reads {
                std::future::pending::<()>().await;
            }
            let mut part = vec![0; 1 << 16];
            while reader.read(&mut part).await.is_ok_and(|len| len > 0) {}
        };
        tokio::select! {
            _ = writing => {}
            () = reading => {}
        }
    }
}

/// Sends requests at a constant rate, over several connections: one alone would add the delays of all its requests.
fn load(proxy: &Proxy, time: Duration) -> Load {
    let (cpu, begin) = (proxy.cpu(), Instant::now());
    let mut latencies: Vec<f64> = runtime().block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        for nth in 0..CLIENTS {
            clients.spawn(client(proxy.address, begin + nth * INTERVAL, begin + time));
        }
        clients.join_all().await.concat()
    });
    latencies.sort_by(f64::total_cmp);
    Load { latencies, cpu: (proxy.cpu() - cpu) / begin.elapsed().as_secs_f64() }
}

/// One well-behaved client; returns its latencies in seconds.
async fn client(address: SocketAddr, first: Instant, end: Instant) -> Vec<f64> {
    let mut stream = TcpStream::connect(address).await.expect("the proxy listens");
    stream.set_nodelay(true).expect("a socket");
    let (mut latencies, mut part) = (Vec::new(), [0; 4_096]);
    let mut due = first;
    while due < end {
        tokio::time::sleep_until(due.into()).await;
        stream.write_all(GET).await.expect("the proxy reads");
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nok") {
            let len = stream.read(&mut part).await.expect("the proxy responds");
            assert!(len > 0, "the proxy has closed the connection of a well-behaved client");
            response.extend_from_slice(&part[..len]);
        }
        latencies.push(due.elapsed().as_secs_f64());
        due += CLIENTS * INTERVAL;
    }
    latencies
}

/// A proxy as a process of its own.
struct Proxy {
    child: Child,
    address: SocketAddr,
}

impl Proxy {
    fn start(replica: SocketAddr) -> Self {
        let replica = format!("http://{replica}");
        let mut child = Command::new(env!("CARGO_BIN_EXE_curtail-proxy"))
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--set", "workers=1"])
            .args(["--upstream", &replica])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        let stderr = child.stderr.take().expect("it is piped");
        let mut lines = std::io::BufReader::new(stderr).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("\"listening\"")).expect("the proxy starts");
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON to a pipe");
        let address = line["fields"]["address"].as_str().expect("an address");
        let address = address.parse().expect("an address");
        // A full pipe would stop the proxy.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// The CPU time so far, in seconds: the first number of the `schedstat` of each thread.
    fn cpu(&self) -> f64 {
        let threads = std::fs::read_dir(self.file("task")).expect("Linux");
        let of_one = |thread: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<f64>().ok()
        };
        threads.filter_map(of_one).sum::<f64>() / 1e9
    }

    /// A size in bytes from `/proc/PID/status`.
    fn status(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(self.file("status")).expect("a process of ours");
        let kib = status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("Linux has the key") << 10
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
