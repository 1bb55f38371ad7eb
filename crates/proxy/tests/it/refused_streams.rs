//! Replicas that refuse streams of HTTP/2 or exclude them by GOAWAY, as a healthy server may at any time.

use crate::body;
use crate::client::Client;
use crate::deadline::run;
use crate::frames::{
    DATA, END_HEADERS, END_STREAM, Frame, Frames, GOAWAY, HEADERS, REFUSED_STREAM, RST_STREAM,
    SETTINGS, WINDOW_UPDATE,
};
use crate::metrics::Metrics;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Speaks, ok};
use crate::wire::Wire;
use http::{StatusCode, Version};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// The number of streams that [`Refusing::ByGoAway`] processes on each connection.
const STREAMS_PER_CONNECTION: u32 = 2;

/// `:status: 200` in the static table of HPACK.
const STATUS_200: [u8; 1] = [0x88];

/// More than the replay buffer keeps by default.
const LONG_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Refusing {
    /// As nginx with `keepalive_requests`: the last stream that it processes ends the connection.
    ByGoAway,
    /// The first stream, with `REFUSED_STREAM`, at the end of its request.
    First,
    /// Each stream, likewise.
    EachStream,
    /// The first stream, before the end of its body. The replica then reads no byte of another body.
    FirstUpload,
    /// Each stream, as soon as more of its body has arrived than the replay buffer keeps.
    LongBodies,
}

/// What a [`RefusingReplica`] has done.
#[derive(Default)]
struct Record {
    processed: AtomicUsize,
    refused: AtomicUsize,
    /// The body of the last request, if there is one request at a time.
    body: Mutex<Vec<u8>>,
    /// Whether the replica processes all streams from now on.
    is_open: AtomicBool,
}

impl Record {
    /// Keeps the body of the last request.
    fn note_body(&self, frame: &Frame) {
        let mut body = self.body.lock().expect("no panic");
        match frame.kind {
            HEADERS => body.clear(),
            DATA => body.extend_from_slice(&frame.payload),
            _ => {}
        }
    }
}

pub(crate) struct RefusingReplica {
    address: SocketAddr,
    record: Arc<Record>,
    accepting: JoinHandle<()>,
}

impl Drop for RefusingReplica {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl RefusingReplica {
    pub(crate) async fn start(refusing: Refusing) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let record = Arc::<Record>::default();
        let kept = Arc::clone(&record);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("connections come");
                let record = Arc::clone(&record);
                tokio::spawn(async move {
                    if let Ok(frames) = Frames::accept(stream).await {
                        // Ends with the connection.
                        serve(frames, refusing, &record).await;
                    }
                });
            }
        });
        Self { address, record: kept, accepting }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    fn processed(&self) -> usize {
        self.record.processed.load(Ordering::SeqCst)
    }

    fn refused(&self) -> usize {
        self.record.refused.load(Ordering::SeqCst)
    }
}

async fn serve(mut frames: Frames, refusing: Refusing, record: &Record) -> Option<()> {
    let window = u32::try_from(4 * LONG_BYTES).expect("a window").to_be_bytes();
    frames.write(WINDOW_UPDATE, 0, 0, &window).await.ok()?;
    let mut received = 0;
    loop {
        let frame = frames.read().await?;
        let is_end = matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0;
        let stream = frame.stream;
        if record.is_open.load(Ordering::SeqCst) {
            if is_end {
                respond(&mut frames, stream, record).await?;
            }
            continue;
        }
        match refusing {
            Refusing::ByGoAway if frame.kind == HEADERS => {
                let last = 2 * STREAMS_PER_CONNECTION - 1;
                if stream > last {
                    record.refused.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                if stream == last {
                    let goaway = (u64::from(last) << 32).to_be_bytes();
                    frames.write(GOAWAY, 0, 0, &goaway).await.ok()?;
                }
                respond(&mut frames, stream, record).await?;
            }
            Refusing::First => {
                record.note_body(&frame);
                if is_end && record.refused.load(Ordering::SeqCst) == 0 {
                    refuse(&mut frames, stream, record).await?;
                } else if is_end {
                    respond(&mut frames, stream, record).await?;
                }
            }
            Refusing::EachStream if is_end => refuse(&mut frames, stream, record).await?,
            Refusing::FirstUpload if frame.kind == DATA => {
                // SETTINGS_INITIAL_WINDOW_SIZE is zero.
                frames.write(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await.ok()?;
                refuse(&mut frames, stream, record).await?;
            }
            Refusing::LongBodies if frame.kind == HEADERS => {
                received = 0;
                frames.write(WINDOW_UPDATE, 0, stream, &window).await.ok()?;
            }
            Refusing::LongBodies if received < LONG_BYTES / 2 => {
                received += frame.payload.len();
                if received >= LONG_BYTES / 2 {
                    refuse(&mut frames, stream, record).await?;
                }
            }
            Refusing::ByGoAway
            | Refusing::EachStream
            | Refusing::FirstUpload
            | Refusing::LongBodies => {}
        }
    }
}

async fn respond(frames: &mut Frames, stream: u32, record: &Record) -> Option<()> {
    record.processed.fetch_add(1, Ordering::SeqCst);
    frames.write(HEADERS, END_HEADERS | END_STREAM, stream, &STATUS_200).await.ok()
}

async fn refuse(frames: &mut Frames, stream: u32, record: &Record) -> Option<()> {
    record.refused.fetch_add(1, Ordering::SeqCst);
    frames.write(RST_STREAM, 0, stream, &REFUSED_STREAM.to_be_bytes()).await.ok()
}

fn start_proxy(replica: SocketAddr, keys: &str) -> Proxy {
    let keys = format!("connect: {{protocol: http2}}\nhedge: false\n{keys}");
    Setup::before(&[replica]).upstream(&keys).start()
}

/// Sends this number of requests at once, each of which must succeed.
async fn send_burst(proxy: &Proxy, requests: usize) {
    let client = Client::connect(proxy.address(), Version::HTTP_2).await;
    let mut asking = JoinSet::new();
    for _ in 0..requests {
        let mut client = client.share();
        asking.spawn(async move { client.get("/").await });
    }
    while let Some(response) = asking.join_next().await {
        let response = response.expect("no panic");
        assert_eq!(response.status, StatusCode::OK, "{:?}", response.error());
    }
}

fn assert_no_ejection(metrics: &Metrics) {
    assert_eq!(metrics.sum("curtail_replica_ejections_total", &[]), 0, "{metrics}");
}

#[test]
fn requests_that_a_goaway_excludes_are_sent_over_other_connections() {
    run(async {
        let replica = RefusingReplica::start(Refusing::ByGoAway).await;
        // Only the pool sends them again.
        let proxy = start_proxy(replica.address, "retry: false");
        send_burst(&proxy, 12).await;
        assert_eq!(replica.processed(), 12, "each is processed once");
        let metrics = proxy.metrics().await;
        assert_no_ejection(&metrics);
        assert_eq!(metrics.sum("curtail_attempts_failed_total", &[]), 0, "{metrics}");
        let refused = metrics.sum("curtail_streams_refused_total", &[]);
        assert!(refused > 0, "the first connection was to exclude most of them: {metrics}");
    });
}

#[test]
fn requests_beyond_a_limit_of_streams_that_is_not_known_yet_are_sent_again() {
    run(async {
        let replica = Replica::start(Speaks::Http2Streams(1), |_| std::future::ready(ok("good")));
        let replica = replica.await;
        let proxy = start_proxy(replica.address(), "retry: false");
        send_burst(&proxy, 12).await;
        assert_eq!(replica.record().count(), 12, "each is processed once");
        assert_no_ejection(&proxy.metrics().await);
    });
}

#[test]
fn a_replica_that_refuses_every_stream_gets_few_of_each_request_and_is_not_ejected() {
    run(async {
        let replica = RefusingReplica::start(Refusing::EachStream).await;
        let proxy = start_proxy(replica.address, "retry: {retries_max: 1}");
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for nth in 1..=5 {
            let response = client.get("/").await;
            let found = (response.status.as_u16(), response.error());
            assert_eq!(found, (503, Some("unprocessed")));
            // Two attempts, each of which is sent again once.
            assert_eq!(replica.refused(), nth * 2 * (1 + 1));
        }
        let metrics = proxy.metrics().await;
        assert_no_ejection(&metrics);
        let unprocessed = [("failure", "unprocessed")];
        assert_eq!(metrics.sum("curtail_attempts_failed_total", &unprocessed), 10, "{metrics}");
        assert_eq!(metrics.sum("curtail_streams_refused_total", &[]), 20, "{metrics}");
        replica.record.is_open.store(true, Ordering::SeqCst);
        assert_eq!(client.get("/").await.status, StatusCode::OK);
    });
}

#[test]
fn a_refused_request_whose_body_is_not_kept_fails_and_ejects_no_replica() {
    run(async {
        let replica = RefusingReplica::start(Refusing::LongBodies).await;
        let proxy = start_proxy(replica.address, "");
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        for nth in 1..=5 {
            let upload = client.request_with("PUT", "/", body::whole(vec![0; LONG_BYTES]));
            let response = client.send(upload).await;
            let found = (response.status.as_u16(), response.error());
            assert_eq!(found, (503, Some("unprocessed")));
            assert_eq!(replica.refused(), nth, "it cannot be sent again");
        }
        assert_no_ejection(&proxy.metrics().await);
    });
}

#[test]
fn a_body_that_is_kept_is_sent_again_as_it_was() {
    run(async {
        let replica = RefusingReplica::start(Refusing::First).await;
        let proxy = start_proxy(replica.address, "retry: false");
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        let sent: Vec<u8> = (0..40_000_u32).map(|nth| nth.to_be_bytes()[3]).collect();
        let upload = client.request_with("PUT", "/", body::whole(sent.clone()));
        assert_eq!(client.send(upload).await.status, StatusCode::OK);
        assert_eq!((replica.refused(), replica.processed()), (1, 1));
        assert!(*replica.record.body.lock().expect("no panic") == sent, "other bytes");
    });
}

#[test]
fn a_replica_that_reads_nothing_of_a_body_that_is_sent_again_is_slow_and_not_its_client() {
    run(async {
        let replica = RefusingReplica::start(Refusing::FirstUpload).await;
        let keys = "connect: {protocol: http2, http2_connections_max: 1}\n\
                    hedge: false\nretry: false\ntimeout: 300ms";
        let proxy = Setup::before(&[replica.address]).workers(1).upstream(keys).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nx").await;
        let response = wire.response().await;
        assert_eq!(replica.refused(), 1);
        let found = (response.head.status(), response.head.get("curtail-error"));
        assert_eq!(found, (504, Some("timed_out")));
    });
}
