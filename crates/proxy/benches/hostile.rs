//! The cost of hostile clients: memory and CPU time of the proxy, and the latency of well-behaved clients beside them.
//!
//! Each kind of client has a proxy of its own: one worker, in front of one replica over HTTP/1.1. Well-behaved clients
//! send 1,000 requests a second, first alone, then beside the hostile ones. A request is sent when it is due, on an idle
//! connection or a new one, and its latency counts from that time: no request waits for the response to another one.
//! Responses other than 200 and requests without a response in time are counted apart, and have no latency.
//!
//! The clients and the replica share the machine with the proxy, so floods also take CPU time from the latencies. A tenth
//! of the requests goes to the replica without the proxy. If these are slow too, the replica or the machine is slow.
//!
//! Memory is the growth of the resident memory with its peak. CPU is the share of one core. Values in parentheses are
//! those of the well-behaved load alone. A flood whose connection ends begins again on a new one.
//!
//! ```sh
//! cargo bench -p curtail-proxy --bench hostile             # all kinds: three minutes
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
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufRead as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
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
/// Every request with a number that this divides goes to the replica without the proxy.
const DIRECT: u32 = 10;
/// Maximum time for a response to a well-behaved request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

fn main() {
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let widths = [7, 9, 7, 6, 9, 9, 10, 10];
    let columns = Columns::new(
        [Column::Left(26)].into_iter().chain(widths.map(Column::Right)).chain([Column::Left(16)]),
    );
    let header = ["", "", "memory", "peak", "CPU", "proxy", "proxy", "replica", "replica", ""];
    println!("{}", columns.row(header));
    let header = [
        "client", "number", "KiB each", "MiB", "%", "p50, ms", "p99, ms", "p50, ms", "p99, ms",
        "not 200",
    ];
    println!("{}", columns.row(header));
    for peer in PEERS.iter().filter(|peer| peer.name.contains(&wanted)) {
        let Measured { alone, beside, growth, peak } = measure(peer);
        let kib = (growth >> 10) as f64 / peer.connections as f64;
        let [cpu, latencies @ ..] = beside.cells();
        let memory = [format!("{kib:.1}"), format!("{:.1}", peak as f64 / f64::from(1 << 20)), cpu];
        let first = [peer.name.to_owned(), peer.connections.to_string()];
        let failures = [beside.failures()];
        println!(
            "{}",
            columns.row(first.into_iter().chain(memory).chain(latencies).chain(failures))
        );
        let alone_cells = alone.cells().map(|cell| format!("({cell})"));
        let failures =
            if alone.failed.is_empty() { String::new() } else { format!("({})", alone.failures()) };
        println!(
            "{}",
            columns
                .row([const { String::new() }; 4].into_iter().chain(alone_cells).chain([failures]))
        );
    }
}

/// The results of one kind of client.
struct Measured {
    alone: Load,
    beside: Load,
    /// The growth of the proxy's memory: for floods its peak.
    growth: u64,
    /// The peak of the proxy's memory in all.
    peak: u64,
}

/// The well-behaved load during a time.
#[derive(Default)]
struct Load {
    /// Through the proxy, in seconds, sorted.
    latencies: Vec<f64>,
    /// Of the replica without the proxy, in seconds, sorted.
    direct: Vec<f64>,
    /// The number of requests without a response 200, by the status or the error.
    failed: BTreeMap<String, u32>,
    /// The proxy's share of one core.
    cpu: f64,
}

impl Load {
    /// CPU, and the latencies of proxy and replica, as text.
    fn cells(&self) -> [String; 5] {
        let ms = |sorted: &[f64], quantile: f64| {
            #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "an index")]
            let at = (sorted.len().saturating_sub(1) as f64 * quantile).round() as usize;
            sorted
                .get(at)
                .map_or_else(|| "none".to_owned(), |latency| format!("{:.2}", latency * 1e3))
        };
        let (proxy, replica) = (&self.latencies, &self.direct);
        let cpu = format!("{:.0}", self.cpu * 100.0);
        [cpu, ms(proxy, 0.5), ms(proxy, 0.99), ms(replica, 0.5), ms(replica, 0.99)]
    }

    fn failures(&self) -> String {
        let all: Vec<_> =
            self.failed.iter().map(|(why, count)| format!("{why}: {count}")).collect();
        if all.is_empty() { "0".to_owned() } else { all.join(", ") }
    }
}

/// Measures the load alone and beside hostile clients, and the growth of the proxy's memory.
fn measure(peer: &'static Peer) -> Measured {
    let replica = on_own_thread(replica);
    let proxy = Proxy::start(replica);
    let alone = load(&proxy, replica, ALONE);
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
    let beside = load(&proxy, replica, BESIDE);
    let peak = proxy.status("VmHWM:");
    let after = if peer.floods { peak } else { proxy.status("VmRSS:") };
    stop.notify_one();
    attack.join().expect("no panic");
    Measured { alone, beside, growth: after.saturating_sub(before), peak }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs a server on a thread of its own. Its queue of connections takes a burst of cancelled and repeated requests: beyond
/// it, the kernel would delay each connection by a second. Its send buffers are small: the kernel would grow them to 4 MiB
/// each, and while hundreds of responses without an end fill theirs, the replica responds to nobody else for seconds.
fn on_own_thread<F: Future<Output = ()> + 'static>(serve: fn(TcpListener) -> F) -> SocketAddr {
    let runtime = runtime();
    let listener = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.set_send_buffer_size(1 << 16).expect("a socket");
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
                            // Otherwise, a turn has 128 writes, and others wait for those of hundreds of responses.
                            tokio::task::yield_now().await;
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
            io::Result::Ok(())
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

/// Sends requests at a constant rate to the proxy, and some to the replica.
fn load(proxy: &Proxy, replica: SocketAddr, time: Duration) -> Load {
    let (cpu, begin) = (proxy.cpu(), Instant::now());
    let mut load = runtime().block_on(send_when_due([proxy.address, replica], begin, time));
    load.latencies.sort_by(f64::total_cmp);
    load.direct.sort_by(f64::total_cmp);
    load.cpu = (proxy.cpu() - cpu) / begin.elapsed().as_secs_f64();
    load
}

async fn send_when_due([proxy, replica]: [SocketAddr; 2], begin: Instant, time: Duration) -> Load {
    let mut requests = tokio::task::JoinSet::new();
    let idle = [(); 2].map(|()| Rc::new(RefCell::new(Vec::new())));
    let local = tokio::task::LocalSet::new();
    let sending = async {
        for nth in 0.. {
            let due = begin + nth * INTERVAL;
            if due >= begin + time {
                break;
            }
            tokio::time::sleep_until(due.into()).await;
            let is_direct = nth % DIRECT == 0;
            let address = if is_direct { replica } else { proxy };
            let idle = Rc::clone(&idle[usize::from(is_direct)]);
            requests.spawn_local(async move {
                let response = tokio::time::timeout(RESPONSE_TIMEOUT, send(address, &idle)).await;
                let result = match response {
                    Ok(Ok(200)) => Ok(due.elapsed().as_secs_f64()),
                    Ok(Ok(status)) => Err(status.to_string()),
                    Ok(Err(error)) => Err(error.kind().to_string()),
                    Err(_) => Err("timed out".to_owned()),
                };
                (is_direct, result)
            });
        }
        std::mem::take(&mut requests).join_all().await
    };
    let mut load = Load::default();
    for (is_direct, result) in local.run_until(sending).await {
        match result {
            Ok(latency) if is_direct => load.direct.push(latency),
            Ok(latency) => load.latencies.push(latency),
            Err(why) => *load.failed.entry(why).or_default() += 1,
        }
    }
    load
}

/// Sends a request on an idle connection, or on a new one; returns the status of the response.
async fn send(address: SocketAddr, idle: &RefCell<Vec<TcpStream>>) -> io::Result<u16> {
    let kept = idle.borrow_mut().pop();
    let mut stream = match kept {
        Some(stream) => stream,
        None => TcpStream::connect(address).await?,
    };
    stream.set_nodelay(true)?;
    stream.write_all(GET).await?;
    let (mut response, mut part) = (Vec::new(), [0; 4_096]);
    while !response.windows(4).any(|four| four == b"\r\n\r\n") {
        let len = stream.read(&mut part).await?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        response.extend_from_slice(&part[..len]);
    }
    let status =
        response.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
    // The body of a 200 comes with its head. The rest of another response is not read, so its connection is closed.
    if response.ends_with(b"\r\n\r\nok") {
        idle.borrow_mut().push(stream);
    }
    status.ok_or_else(|| io::ErrorKind::InvalidData.into())
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
        let mut lines = io::BufReader::new(stderr).lines().map_while(Result::ok);
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
        let of_one = |thread: io::Result<std::fs::DirEntry>| {
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
