//! Methods that change something are executed at most once; reads may be repeated.

use super::{executions, send};
use crate::client::Client;
use crate::deadline::run;
use crate::frames::{
    CANCEL, DATA, END_STREAM, Frames, GOAWAY, HEADERS, REFUSED_STREAM, RST_STREAM,
};
use crate::proxy::Setup;
use crate::raw_replica::{RawReplica, Refusing, response, serve};
use crate::replica::{Replica, Speaks};
use http::{StatusCode, Version};

/// What a replica does after it has read a request to its end.
#[derive(Clone, Copy, Debug)]
enum Then {
    Reset,
    Close,
    CloseItsHalf,
    SayGarbage,
    SayUnavailable,
    SayBadGateway,
    BreakOffTheHead,
    BreakOffTheBody,
    SayNothing,
}

const ALL: [Then; 9] = [
    Then::Reset,
    Then::Close,
    Then::CloseItsHalf,
    Then::SayGarbage,
    Then::SayUnavailable,
    Then::SayBadGateway,
    Then::BreakOffTheHead,
    Then::BreakOffTheBody,
    Then::SayNothing,
];

/// A replica that serves `good` requests of a connection before it fails.
async fn failing(then: Then, good: usize) -> RawReplica {
    RawReplica::start(move |mut wire, record, _| async move {
        for _ in 0..good {
            let Some(_) = record.read(&mut wire).await else { return };
            wire.send(response("good")).await;
        }
        let Some(_) = record.read(&mut wire).await else { return };
        let say = match then {
            Then::Reset => return wire.reset(),
            Then::Close => return,
            Then::CloseItsHalf => {
                wire.close_write().await;
                wire.read_to_close().await;
                return;
            }
            Then::SayGarbage => "\0\x01garbage\r\n\r\n",
            Then::SayUnavailable => "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",
            Then::SayBadGateway => "HTTP/1.1 502 No\r\ncontent-length: 0\r\n\r\n",
            Then::BreakOffTheHead => "HTTP/1.1 200 OK\r\ncontent-le",
            Then::BreakOffTheBody => "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
            Then::SayNothing => "",
        };
        wire.send(say).await;
        if matches!(then, Then::BreakOffTheHead | Then::BreakOffTheBody) {
            return;
        }
        // What comes on the same connection is executed as well.
        while record.read(&mut wire).await.is_some() {
            wire.send(say).await;
        }
    })
    .await
}

/// Everything that could repeat a request, as eager as it can be.
const EAGER: &str = "timeout: 400ms\nbalance: round_robin\nbudget: {ratio: 1.0}\n\
                     hedge: {delay_min: 1ms, delay_max: 1ms, hedges_max: 3}\n\
                     retry: {retries_max: 4, backoff: 1ms, overdue: {delay_max: 100ms}}";

/// Sends requests with `methods` to two replicas that both fail after `good` responses on each connection; each request
/// must be executed once.
async fn fails_once(then: Then, good: usize, methods: &[&str]) {
    println!("{then:?} after {good} good responses");
    let replicas = [failing(then, good).await, failing(then, good).await];
    let addresses = [replicas[0].address(), replicas[1].address()];
    let proxy = Setup::before(&addresses).upstream(EAGER).start();
    let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
    for _ in 0..2 * good {
        assert_eq!(send(&mut client, "POST", "good", "").await.status, StatusCode::OK);
    }
    for method in methods {
        let response = send(&mut client, method, method, "data").await;
        assert_eq!(executions(&[&replicas[0], &replicas[1]], method), 1, "{method}");
        let want = match then {
            Then::SayUnavailable => 503,
            Then::SayNothing => 504,
            Then::Reset
            | Then::Close
            | Then::CloseItsHalf
            | Then::SayGarbage
            | Then::SayBadGateway
            | Then::BreakOffTheHead
            | Then::BreakOffTheBody => 502,
        };
        assert_eq!(response.status, want, "{method}: {response:?}");
    }
}

#[test]
fn a_post_is_executed_once_however_it_fails() {
    run(async {
        for then in ALL {
            fails_once(then, 0, &["POST", "PUT", "DELETE", "PATCH", "TRACE", "ODD"]).await;
            // The same on a connection that is kept.
            fails_once(then, 1, &["POST"]).await;
        }
    });
}

#[test]
fn a_read_is_repeated_however_it_fails() {
    run(async {
        for then in ALL {
            println!("{then:?}");
            let (bad, good) = (failing(then, 0).await, RawReplica::responding("good").await);
            let proxy = Setup::before(&[bad.address(), good.address()])
                .upstream(
                    "balance: round_robin\nhedge: false\n\
                     retry: {backoff: 1ms, overdue: {delay_min: 10ms, delay_max: 50ms}}",
                )
                .start();
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            for method in ["GET", "HEAD", "OPTIONS", "GET", "HEAD", "OPTIONS"] {
                let response = send(&mut client, method, method, "").await;
                assert_eq!(response.status, StatusCode::OK, "{method}: {response:?}");
            }
            let executed: usize = bad.record().requests().len();
            assert!(executed > 0, "the bad replica got no request");
        }
    });
}

#[test]
fn a_post_goes_elsewhere_when_nothing_was_sent() {
    run(async {
        let (refusing, good) = (Refusing::new(), RawReplica::responding("good").await);
        let proxy = Setup::before(&[refusing.address(), good.address()])
            .upstream("balance: round_robin")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for nth in 0..20 {
            let id = nth.to_string();
            let response = send(&mut client, "POST", &id, "data").await;
            assert_eq!(response.status, StatusCode::OK, "{response:?}");
            assert_eq!(executions(&[&good], &id), 1);
        }
        let metrics = proxy.metrics().await;
        assert!(metrics.attempts("retry") > 0, "the dead one was never tried: {metrics}");
    });
}

#[test]
fn a_post_goes_elsewhere_when_a_leaf_refused_it() {
    run(async {
        let refusing = RawReplica::start(|mut wire, _, _| async move {
            // The server behind has not seen it: nothing is put down.
            while let Ok(Some(_)) = wire.read_message().await {
                wire.send("HTTP/1.1 503 No\r\ncurtail-leaf: refused\r\ncontent-length: 0\r\n\r\n")
                    .await;
            }
        })
        .await;
        let good = RawReplica::responding("good").await;
        let proxy = Setup::before(&[refusing.address(), good.address()])
            .upstream("balance: round_robin")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for nth in 0..10 {
            let id = nth.to_string();
            let response = send(&mut client, "POST", &id, "data").await;
            assert_eq!(response.status, StatusCode::OK, "{response:?}");
            assert_eq!(response.get("curtail-leaf"), None);
            assert_eq!(executions(&[&good], &id), 1);
        }
        let metrics = proxy.metrics().await;
        let rejected_count =
            metrics.sum("curtail_attempts_responded_total", &[("outcome", "refused")]);
        assert!(rejected_count > 0, "nothing was refused: {metrics}");
    });
}

/// A replica that reads each request on an HTTP/2 connection, sends a frame (kind and payload), which is on the stream of
/// the request if it is a reset, and may then close the connection.
async fn posted_over_http2(
    (kind, payload): (u8, Vec<u8>),
    is_closed_after: bool,
) -> (StatusCode, usize) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    let refusing = tokio::spawn(async move {
        loop {
            let (stream_of_bytes, _) = listener.accept().await.expect("connections come");
            let payload = payload.clone();
            tokio::spawn(async move {
                let Ok(mut frames) = Frames::accept(stream_of_bytes).await else { return };
                while let Some(frame) = frames.read().await {
                    if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
                        // A reset is of the stream of the request, which may be sent again.
                        let on = if kind == RST_STREAM { frame.stream } else { 0 };
                        frames.send(kind, 0, on, &payload).await;
                        if is_closed_after {
                            return frames.close().await;
                        }
                    }
                }
            });
        }
    });
    let good = Replica::responding(Speaks::Http2, "good").await;
    let proxy = Setup::before(&[address, good.address()])
        .upstream("balance: round_robin\nconnect: {protocol: http2}")
        .start();
    let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
    // One of the two goes to the replica that refuses.
    let first = send(&mut client, "POST", "first", "data").await.status;
    let second = send(&mut client, "POST", "second", "data").await.status;
    refusing.abort();
    let record = good.record();
    (first.max(second), record.executions("first") + record.executions("second"))
}

#[test]
fn a_post_goes_elsewhere_when_a_stream_was_not_begun_with() {
    run(async {
        let reset = |code: u32| (RST_STREAM, code.to_be_bytes().to_vec());
        // The last stream that the replica accepts, and the code for no error.
        let go_away = |last: u32| (GOAWAY, (u64::from(last) << 32).to_be_bytes().to_vec());
        for is_closed_after in [false, true] {
            let (worst, executed) = posted_over_http2(reset(REFUSED_STREAM), is_closed_after).await;
            assert_eq!((worst, executed), (StatusCode::OK, 2), "a refused stream");
            let (worst, executed) = posted_over_http2(go_away(0), is_closed_after).await;
            assert_eq!((worst, executed), (StatusCode::OK, 2), "a replica that goes away");
            // The replica may have executed it.
            let (worst, executed) = posted_over_http2(reset(CANCEL), is_closed_after).await;
            assert_eq!((worst, executed), (StatusCode::BAD_GATEWAY, 1), "a stream that was reset");
        }
        let (worst, executed) = posted_over_http2(go_away(1), true).await;
        assert_eq!((worst, executed), (StatusCode::BAD_GATEWAY, 1), "an accepted stream");
    });
}

#[test]
fn a_slow_post_is_not_hedged_and_a_slow_read_is() {
    run(async {
        let slow = RawReplica::silent().await;
        let fast = RawReplica::responding("fast").await;
        let proxy = Setup::before(&[slow.address(), fast.address()])
            .upstream(
                "balance: round_robin\nretry: false\nbudget: {ratio: 1.0}\n\
                 hedge: {delay_min: 50ms, delay_max: 50ms}",
            )
            .start();
        let mut asking = tokio::task::JoinSet::new();
        for (sent, method) in ["POST", "POST", "GET", "GET"].into_iter().enumerate() {
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            asking.spawn(async move { (method, send(&mut client, method, method, "").await) });
            // They are balanced in the order in which they arrive.
            let arrived = || ["POST", "GET"].map(|method| executions(&[&slow, &fast], method));
            while arrived().iter().sum::<usize>() <= sent {
                tokio::task::yield_now().await;
            }
        }
        // One POST and both GETs get a response; the other POST waits for the slow one.
        for _ in 0..3 {
            let (_, response) = asking.join_next().await.expect("three").expect("no panic");
            assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"fast"[..]));
        }
        assert_eq!(executions(&[&slow, &fast], "POST"), 2);
        assert_eq!(executions(&[&slow, &fast], "GET"), 3, "the slow one of two was not hedged");
    });
}

#[test]
fn an_idle_connection_that_the_replica_closes_costs_no_request() {
    run(async {
        let (closed, mut hears) = tokio::sync::mpsc::channel(1);
        let replica = RawReplica::start(move |mut wire, record, _| {
            let closed = closed.clone();
            async move {
                let Some(_) = record.read(&mut wire).await else { return };
                wire.send(response("good")).await;
                drop(wire);
                closed.send(()).await.expect("the test listens");
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).upstream("retry: false").start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for nth in 0..50 {
            // A POST too: nothing is written to a connection that is known to be closed.
            let method = if nth % 2 == 0 { "POST" } else { "GET" };
            let response = send(&mut client, method, "any", "data").await;
            assert_eq!(response.status, StatusCode::OK, "{method} {nth}: {response:?}");
            hears.recv().await.expect("it closes each");
        }
        assert_eq!(replica.record().connections(), 50);
    });
}

#[test]
fn a_kept_connection_that_closes_as_a_read_is_written_is_replaced() {
    run(async {
        // The second request of each connection is read, and the connection closed instead of a response.
        let replica = RawReplica::start(|mut wire, record, nth| async move {
            if nth > 0 {
                return serve(wire, record, "good").await;
            }
            let Some(_) = record.read(&mut wire).await else { return };
            wire.send(response("good")).await;
            record.read(&mut wire).await;
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for _ in 0..3 {
            assert_eq!(send(&mut client, "GET", "any", "").await.status, StatusCode::OK);
        }
    });
}
