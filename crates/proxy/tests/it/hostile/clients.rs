//! Hostile clients over HTTP/2: tables by topic, and how a row is run.

mod floods;
mod stalls;
mod violations;

use super::peer::{Peer, connect};
use super::process::ProxyProcess;
use super::script::Script;
use super::{
    Allowed, LIMITS, NEIGHBOR_REQUESTS, NO_LIMITS, Neighbors, Outcome, ROW_DEADLINE, Reads,
    Results, check_memory, neighbor_failure, section,
};
use crate::body::{self, Progress};
use crate::certificates::Authority;
use crate::client::Client;
use crate::deadline::run_within;
use crate::replica::{Replica, Speaks, ok, status};
use http::{Request, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::LocalSet;

/// A hostile client.
pub(super) struct Row {
    name: &'static str,
    /// The section of RFC 9113 that demands or allows the outcome, or of the RFC that is named.
    rfc: &'static str,
    sends: fn(&mut Script),
    /// Sent again and again afterwards, at the pace of the neighbors.
    pub(super) drop: &'static [u8],
    pub(super) reads: Reads,
    allows: &'static [Allowed],
    /// Whether the outcome is that of the stream on which the peer misbehaves; otherwise the response to the next
    /// request ends the row.
    pub(super) waits: bool,
    /// Whether a valid start of HTTP/2 comes first.
    begins: bool,
    /// Whether the next request follows.
    pub(super) has_next: bool,
}

impl Row {
    const fn new(
        name: &'static str,
        rfc: &'static str,
        sends: fn(&mut Script),
        allows: &'static [Allowed],
    ) -> Self {
        Self {
            name,
            rfc,
            sends,
            drop: &[],
            reads: Reads::All,
            allows,
            waits: false,
            begins: true,
            has_next: true,
        }
    }

    /// Writes the script on another thread, because neighbors must not wait for a long one.
    async fn script(&self) -> Script {
        let sends = self.sends;
        let write = move || {
            let mut script = Script::default();
            sends(&mut script);
            script
        };
        tokio::task::spawn_blocking(write).await.expect("no panic")
    }

    /// The peer waits for the end of the stream on which it misbehaves.
    const fn waits(self) -> Self {
        Self { waits: true, ..self }
    }

    const fn reads(self, reads: Reads) -> Self {
        Self { reads, ..self }
    }

    const fn drips(self, drop: &'static [u8]) -> Self {
        Self { drop, ..self }
    }

    /// The peer sends nothing after the script, and waits for the end of the connection.
    const fn then_silence(self) -> Self {
        Self { has_next: false, ..self }
    }

    /// The script begins with the first byte of the connection.
    const fn without_start(self) -> Self {
        Self { begins: false, ..self }
    }
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    [stalls::ROWS, floods::ROWS, violations::ROWS].into_iter().flatten().map(|row| row.name)
}

/// The time limit of a table.
const TABLE_DEADLINE: Duration = Duration::from_secs(300);

/// Far more than the windows and the socket buffers between the replica and a client.
const LONG_BYTES: u64 = 64 << 20;

/// A download of a well-behaved client.
const BIG_BYTES: u64 = 4 << 20;

/// The replica, the proxy before it, and its clients.
struct Bench {
    replica: Replica,
    /// Requests that the replica does not respond to.
    hanging: watch::Receiver<usize>,
    proxy: ProxyProcess,
    /// Where the hostile clients connect, and how if under TLS.
    address: SocketAddr,
    tls: Option<Arc<rustls::ClientConfig>>,
    neighbors: Neighbors,
    /// Its files are those of the proxy.
    _authority: Authority,
}

impl Bench {
    /// All requests share one connection to the replica. The neighbors connect in clear text.
    async fn start(limits: &str, is_tls: bool) -> Self {
        let (counts, hanging) = watch::channel(0);
        let replica =
            Replica::start(Speaks::Http2, move |request| respond(request, counts.clone()));
        let replica = replica.await;
        let authority = Authority::new();
        let proxy = ProxyProcess::start(&format!(
            "workers: 1\nlisteners:\n- {{address: \"127.0.0.1:0\"}}\n\
             - {{name: secure, address: \"127.0.0.1:0\", {}}}\n\
             admin: {{address: \"127.0.0.1:0\"}}\n{limits}\nroutes: [{{upstream: service}}]\n\
             upstreams:\n  service:\n    replicas: [\"http://{}\"]\n    hedge: false\n    retry: false\n    \
             timeout: 1h\n    connect: {{protocol: http2, http2_connections_max: 1, \
             http2_streams_max: 1000, http2_stream_window: 64KiB}}\n",
            authority.issue("localhost").listener_keys(),
            replica.address(),
        ))
        .await;
        let address = if is_tls { proxy.listener("secure").await } else { proxy.address() };
        let tls = is_tls.then(|| authority.client(&["h2"]));
        let neighbors = Neighbors::start(proxy.address()).await;
        neighbors.progress(1).await;
        Self { replica, hanging, proxy, address, tls, neighbors, _authority: authority }
    }

    async fn peer(&self, row: &Row) -> Peer {
        let mut peer = Peer::new(connect(self.address, self.tls.as_ref()).await);
        if row.begins {
            peer.begin().await;
        }
        peer
    }

    /// Runs a row; returns what is wrong with its outcome.
    async fn run(&mut self, row: &Row) -> Option<String> {
        let Row { name, rfc, allows, .. } = row;
        let rfc = section(9113, rfc);
        let before = self.proxy.reset_peak();
        let running = async { tokio::join!(self.outcome(row), self.progress(NEIGHBOR_REQUESTS)).0 };
        let outcome = tokio::time::timeout(ROW_DEADLINE, running).await;
        let memory = check_memory(name, &self.proxy, before);
        let after = async {
            // The peer has gone: its requests end, at the replica as well.
            self.proxy.until_clients(Neighbors::CONNECTIONS).await;
            self.hanging.clone().wait_for(|hanging| *hanging == 0).await.expect("the replica runs");
        };
        let is_clean = tokio::time::timeout(ROW_DEADLINE, after).await.is_ok();
        match outcome {
            Err(_) => Some(format!("no outcome after {ROW_DEADLINE:?}, {rfc} allows {allows:?}")),
            Ok(outcome) if !outcome.is_allowed(allows) => {
                Some(format!("{outcome:?}, {rfc} allows {allows:?}"))
            }
            Ok(outcome) if !is_clean => {
                Some(format!("{outcome:?}, and its requests go on without the client"))
            }
            Ok(_) => memory,
        }
    }

    async fn outcome(&self, row: &Row) -> Outcome {
        let mut peer = self.peer(row).await;
        let script = row.script().await;
        // A peer that reads nothing does not see the end of its connection.
        let is_cut_off = self.proxy.until_clients(Neighbors::CONNECTIONS);
        match row.reads {
            Reads::Nothing => tokio::select! {
                () = peer.send_until_closed(&script) => {}
                () = is_cut_off => {}
            },
            Reads::Slowly => tokio::select! {
                () = peer.send_and_read_slowly(&script, || self.progress(1)) => {}
                () = is_cut_off => {}
            },
            Reads::All | Reads::Deaf | Reads::ByteByByte => {
                return peer.exchange(row, &script, || self.progress(1)).await;
            }
        }
        Outcome::Closed
    }

    async fn progress(&self, count: usize) {
        self.neighbors.progress(count).await;
    }

    async fn finish(self) {
        self.neighbors.stop().await;
        assert_eq!(
            self.replica.record().connections(),
            1,
            "the requests did not share a connection"
        );
    }
}

/// What the replica does for each path.
async fn respond(
    request: Request<Incoming>,
    hanging: watch::Sender<usize>,
) -> Response<body::Body> {
    match request.uri().path() {
        "/next" => status(StatusCode::NO_CONTENT),
        "/long" => Response::new(body::long(LONG_BYTES, &Arc::new(Progress::default()))),
        "/big" => Response::new(body::long(BIG_BYTES, &Arc::new(Progress::default()))),
        "/read" => {
            // A client that stops is no failure of the replica.
            request.into_body().collect().await.ok();
            ok("read")
        }
        "/begin" => {
            let (sender, body) = body::channel();
            tokio::spawn(async move {
                // Silent until the proxy ends the request.
                request.into_body().collect().await.ok();
                sender.closed().await;
            });
            Response::new(body)
        }
        "/hang" => {
            hanging.send_modify(|hanging| *hanging += 1);
            let _in_service = InService(hanging);
            std::future::pending::<()>().await;
            drop(request);
            ok("never")
        }
        _ => ok("good"),
    }
}

struct InService(watch::Sender<usize>);

impl Drop for InService {
    fn drop(&mut self) {
        self.0.send_modify(|hanging| *hanging -= 1);
    }
}

fn run_table(rows: &'static [Row], is_tls: bool) {
    run_within(TABLE_DEADLINE, async {
        let transport = if is_tls { "TLS" } else { "clear text" };
        let mut bench = Bench::start(LIMITS, is_tls).await;
        let mut results = Results::default();
        for row in rows {
            let local = LocalSet::new();
            let ran = local.run_until(async move {
                let running = tokio::task::spawn_local(async move {
                    let failure = bench.run(row).await;
                    (bench, failure)
                });
                running.await
            });
            let failure;
            (bench, failure) = match ran.await {
                Ok(ran) => ran,
                Err(error) => (Bench::start(LIMITS, is_tls).await, Some(neighbor_failure(error))),
            };
            results.note(row.name, transport, failure);
        }
        bench.finish().await;
        results.finish();
    });
}

#[test]
fn clients_that_stall_are_cut_off() {
    run_table(stalls::ROWS, false);
}

#[test]
fn clients_that_stall_under_tls_are_cut_off() {
    run_table(stalls::ROWS, true);
}

#[test]
fn floods_of_clients_cost_little_memory() {
    run_table(floods::ROWS, false);
}

#[test]
fn floods_of_clients_under_tls_cost_little_memory() {
    run_table(floods::ROWS, true);
}

#[test]
fn violations_of_clients_have_an_outcome_of_the_rfc() {
    run_table(violations::ROWS, false);
}

#[test]
fn violations_of_clients_under_tls_have_an_outcome_of_the_rfc() {
    run_table(violations::ROWS, true);
}

/// Opens a connection for each stalled client of the table, and keeps all of them, with no limit that would cut them off.
fn assert_stalled_clients_starve_nobody(is_tls: bool) {
    run_within(TABLE_DEADLINE, async {
        let bench = Bench::start(NO_LIMITS, is_tls).await;
        let before = bench.proxy.reset_peak();
        let mut stalled = tokio::task::JoinSet::new();
        for row in stalls::ROWS {
            let (mut peer, script) = (bench.peer(row).await, row.script().await);
            stalled.spawn(async move { peer.send_until_closed(&script).await });
        }
        bench.progress(50).await;
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut client = Client::connect(bench.proxy.address(), version).await;
            let response =
                client.try_send(client.request("GET", "/big")).await.expect("a response");
            let bytes = body::check_long(response.into_body()).await.expect("a whole body");
            assert_eq!(bytes, BIG_BYTES);
        }
        let grown = bench.proxy.peak_bytes().saturating_sub(before) >> 10;
        println!("{} stalled clients: {grown} KiB", stalled.len());
        stalled.shutdown().await;
        bench.finish().await;
    });
}

#[test]
fn stalled_clients_starve_no_stream_of_a_shared_connection() {
    assert_stalled_clients_starve_nobody(false);
}

#[test]
fn stalled_clients_under_tls_starve_no_stream_of_a_shared_connection() {
    assert_stalled_clients_starve_nobody(true);
}
