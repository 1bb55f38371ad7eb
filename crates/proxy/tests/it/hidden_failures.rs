//! Failures of replicas that no client notices: a read succeeds as long as one replica can serve it.

use crate::body;
use crate::client::{Client, FullResponse};
use crate::deadline::run;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::{RawReplica, Refusing, response, serve};
use crate::replica::{Replica, Speaks, abort, status};
use crate::wire::Wire;
use http::{Response, StatusCode, Version};
use std::net::SocketAddr;

/// Clients that ask at once, each one request after the other.
const CLIENTS: usize = 4;
const REQUESTS_EACH: usize = 30;

/// Sends many reads; every one of them must succeed.
async fn assert_clients_do_not_notice(proxy: &Proxy) {
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        asking.spawn(async move {
            for nth in 0..REQUESTS_EACH {
                let response = client.get("/").await;
                assert_eq!(response.status, StatusCode::OK, "request {nth}: {response:?}");
                assert_eq!(response.body, "good", "request {nth}");
            }
        });
    }
    while let Some(ended) = asking.join_next().await {
        ended.expect("every read succeeds");
    }
}

/// A bad replica among three, with the proxy's own defaults except for how long silence is borne.
async fn one_of_three(bad: SocketAddr) {
    let (one, two) = (RawReplica::responding("good").await, RawReplica::responding("good").await);
    let proxy = Setup::before(&[one.address(), bad, two.address()])
        .upstream("retry: {overdue: {delay_min: 20ms, delay_max: 100ms}}")
        .start();
    assert_clients_do_not_notice(&proxy).await;
    let metrics = proxy.metrics().await;
    let further = metrics.attempts("retry") + metrics.attempts("overdue");
    assert!(further > 0, "the bad replica got no request: {metrics}");
    assert_eq!(metrics.in_flight(), 0, "{metrics}");
}

#[test]
fn each_error_of_broken_responses_has_a_warning_with_the_replica() {
    run(async {
        let broken = RawReplica::start(|mut wire, record, _| async move {
            let Some(request) = record.read(&mut wire).await else { return };
            match request.head.request().1 {
                "/invalid" => wire.send("SPDY/9 200 OK\r\n\r\n").await,
                "/none" => {}
                _ => wire.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nhalf").await,
            }
        })
        .await;
        let proxy = Setup::before(&[broken.address()]).upstream("retry: false").start();
        for path in ["/invalid", "/invalid", "/none", "/half"] {
            let mut wire = Wire::connect(proxy.address()).await;
            wire.send(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n")).await;
            // `/half` has no whole response.
            drop(wire.read_message().await);
        }
        let replica = format!("replica=\"{}\"", broken.address());
        let warning = ["WARN", "no complete and valid response", "upstream=\"service\"", &replica];
        for error in [
            "not a valid HTTP/1.1 message",
            "closed before the first byte of the response",
            "closed before the message was complete",
        ] {
            crate::logs::until(&[&warning[..], &[error]].concat()).await;
        }
        assert_eq!(crate::logs::find_all(&warning).len(), 3);
    });
}

#[test]
fn an_ejected_replica_is_visible_in_the_metrics_and_the_state() {
    run(async {
        let (good, bad) = (RawReplica::responding("good").await, Refusing::new());
        let proxy = Setup::before(&[good.address(), bad.address()]).start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        // Each further failure ejects it for longer.
        loop {
            client.get("/").await;
            let metrics = proxy.metrics().await;
            let state = proxy.admin("/state").await;
            let state: serde_json::Value = serde_json::from_slice(&state.body).expect("JSON");
            let replicas = &state["upstreams"][0]["replicas"];
            let ejected = |address: SocketAddr| {
                metrics.sum("curtail_replica_ejected", &[("replica", &address.to_string())])
            };
            assert_eq!((ejected(good.address()), &replicas[0]["ejected"]), (0, &false.into()));
            if ejected(bad.address()) == 1 && replicas[1]["ejected"] == true {
                break;
            }
        }
    });
}

#[test]
fn a_replica_that_refuses_connections() {
    run(async {
        let refusing = Refusing::new();
        one_of_three(refusing.address()).await;
    });
}

#[test]
fn a_replica_that_accepts_and_closes() {
    run(async {
        let bad = RawReplica::start(|wire, _, _| async move { drop(wire) }).await;
        one_of_three(bad.address()).await;
    });
}

#[test]
fn a_replica_that_accepts_and_resets() {
    run(async {
        let bad = RawReplica::start(|wire, _, _| async move { wire.reset() }).await;
        one_of_three(bad.address()).await;
    });
}

#[test]
fn a_replica_that_resets_after_the_request() {
    run(async {
        let bad = RawReplica::start(|mut wire, record, _| async move {
            record.read(&mut wire).await;
            wire.reset();
        })
        .await;
        one_of_three(bad.address()).await;
    });
}

#[test]
fn a_replica_that_never_responses() {
    run(async { one_of_three(RawReplica::silent().await.address()).await });
}

#[test]
fn a_replica_that_closes_its_half_and_says_nothing() {
    run(async {
        let bad = RawReplica::start(|mut wire, _, _| async move {
            wire.close_write().await;
            wire.read_to_close().await;
        })
        .await;
        one_of_three(bad.address()).await;
    });
}

#[test]
fn a_replica_that_responses_garbage() {
    run(async {
        let bad = RawReplica::start(|mut wire, record, _| async move {
            while record.read(&mut wire).await.is_some() {
                wire.send("SSH-2.0-OpenSSH_9.6\r\n").await;
            }
        })
        .await;
        one_of_three(bad.address()).await;
    });
}

#[test]
fn a_replica_that_sends_a_header_without_end() {
    run(async {
        let bad = RawReplica::start(|mut wire, record, _| async move {
            record.read(&mut wire).await;
            wire.send("HTTP/1.1 200 OK\r\n").await;
            // Until the proxy has had enough and closes.
            let mut nth = 0_u64;
            while wire.write(format!("x-{nth}: {}\r\n", "y".repeat(1_000))).await.is_ok() {
                nth += 1;
            }
        })
        .await;
        one_of_three(bad.address()).await;
    });
}

#[test]
fn a_replica_that_sends_a_head_byte_by_byte_without_end() {
    run(async {
        let bad = RawReplica::start(|mut wire, record, _| async move {
            record.read(&mut wire).await;
            while wire.write("\r\n").await.is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        one_of_three(bad.address()).await;
    });
}

#[test]
fn a_replica_that_cannot_do_it() {
    run(async {
        for code in [502, 503, 504] {
            let bad = Replica::start(Speaks::Http1, move |_| {
                std::future::ready(status(StatusCode::from_u16(code).expect("a status")))
            })
            .await;
            one_of_three(bad.address()).await;
        }
    });
}

#[test]
fn a_replica_that_breaks_off_a_small_response() {
    run(async {
        let bad = RawReplica::start(|mut wire, record, _| async move {
            record.read(&mut wire).await;
            wire.send("HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\nbad").await;
        })
        .await;
        one_of_three(bad.address()).await;
    });
}

#[test]
fn replicas_that_close_every_connection_after_its_first_response() {
    run(async {
        let close = |mut wire: Wire, record: std::sync::Arc<crate::raw_replica::Record>, _| async move {
            if record.read(&mut wire).await.is_some() {
                wire.send(response("good")).await;
            }
        };
        let (one, two) = (RawReplica::start(close).await, RawReplica::start(close).await);
        let proxy = Setup::before(&[one.address(), two.address()]).start();
        assert_clients_do_not_notice(&proxy).await;
    });
}

#[test]
fn a_replica_over_http_2_that_resets_its_streams() {
    run(async {
        let bad = Replica::start(Speaks::Http2, |_| std::future::ready(abort())).await;
        let good = Replica::responding(Speaks::Http2, "good").await;
        let proxy = Setup::before(&[good.address(), bad.address()])
            .upstream("connect: {protocol: http2}")
            .start();
        assert_clients_do_not_notice(&proxy).await;
        assert!(bad.record().count() > 0, "the bad replica got no request");
    });
}

#[test]
fn a_replica_over_http_2_that_speaks_http_1() {
    run(async {
        let bad = RawReplica::start(|mut wire, _, _| async move {
            wire.send("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
            wire.read_to_close().await;
        })
        .await;
        let good = Replica::responding(Speaks::Http2, "good").await;
        let proxy = Setup::before(&[good.address(), bad.address()])
            .upstream("connect: {protocol: http2}")
            .start();
        assert_clients_do_not_notice(&proxy).await;
        assert!(bad.record().connections() > 0, "the bad replica got no request");
    });
}

#[test]
fn a_replica_that_comes_back_is_used_again() {
    run(async {
        let flaky = RawReplica::start(|wire, record, nth| async move {
            if nth >= 5 {
                serve(wire, record, "good").await;
            }
        })
        .await;
        let other = RawReplica::responding("good").await;
        let proxy =
            Setup::before(&[flaky.address(), other.address()]).upstream("balance: random").start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        while flaky.record().requests().is_empty() {
            assert_eq!(client.get("/").await.body, "good");
        }
    });
}

/// A proxy before a replica that sends `part` of a response and closes, and a good one, in turn.
async fn breaking_off(part: &'static str) -> (Proxy, [RawReplica; 2]) {
    let bad = RawReplica::start(move |mut wire, record, _| async move {
        record.read(&mut wire).await;
        wire.send(part).await;
    })
    .await;
    let good = RawReplica::responding("good").await;
    let proxy = Setup::before(&[bad.address(), good.address()])
        .upstream("balance: round_robin\nhedge: false")
        .start();
    (proxy, [bad, good])
}

/// Reads the response of a replica that breaks off in the middle of a long one. There is a good replica, but the client
/// has part of the response already.
async fn broken_off(version: Version, part: &'static str) -> Result<FullResponse, hyper::Error> {
    let (proxy, _replicas) = breaking_off(part).await;
    let mut client = Client::connect(proxy.address(), version).await;
    loop {
        let request = client.request("GET", "/");
        let response: Response<_> = client.try_send(request).await?;
        let response = FullResponse::read(response).await?;
        // The other one's turn.
        assert_eq!(response.body, "good", "a part was given for the whole");
    }
}

#[test]
fn a_long_response_that_breaks_off_is_never_given_for_a_whole_one() {
    run(async {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            for head in [
                "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nhalf",
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n40\r\nha",
            ] {
                let error = broken_off(version, head).await.expect_err("broken off");
                println!("{version:?}, {head:?}: {error}");
            }
        }
    });
}

/// A close without a byte would look like that of an idle connection, after which clients send the request again.
#[test]
fn a_client_of_http_1_1_gets_what_there_is_of_a_response_that_breaks_off_at_once() {
    run(async {
        const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        for (sent, body) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nhalf".to_owned(), "half"),
            (format!("{CHUNKED}4\r\nhalf\r\n"), "4\r\nhalf\r\n"),
            (format!("{CHUNKED}4\r\nhalf\r\nzz\r\n"), "4\r\nhalf\r\n"),
            (format!("{CHUNKED}zz\r\n"), ""),
        ] {
            let whole = sent.clone();
            let replica = RawReplica::start(move |mut wire, record, _| {
                let sent = sent.clone();
                async move {
                    record.read(&mut wire).await;
                    wire.send(sent).await;
                }
            })
            .await;
            let proxy = Setup::before(&[replica.address()]).start();
            let mut wire = Wire::connect(proxy.address()).await;
            wire.send("GET / HTTP/1.1\r\nhost: service\r\n\r\n").await;
            let got = wire.read_to_close().await;
            let got = String::from_utf8_lossy(&got);
            let (head, rest) = got.split_once("\r\n\r\n").unwrap_or_default();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{whole:?}: {got:?}");
            assert_eq!(rest, body, "{whole:?}");
            assert_eq!(replica.record().requests().len(), 1, "{whole:?}");
        }
    });
}

#[test]
fn a_replica_whose_responses_break_off_is_counted_and_ejected() {
    run(async {
        for head in [
            "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nhalf",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfour\r\n",
        ] {
            let (proxy, _replicas) = breaking_off(head).await;
            let mut broken = 0;
            for _ in 0..30 {
                let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
                let request = client.request("GET", "/");
                let whole = match client.try_send(request).await {
                    Ok(response) => FullResponse::read(response).await.is_ok(),
                    Err(_) => false,
                };
                broken += u64::from(!whole);
            }
            let metrics = proxy.metrics().await;
            // Without ejection it is the replica's turn 15 times. After the third failure each one ejects it for twice as
            // long, from 100 ms on.
            assert!((3..=10).contains(&broken), "{head:?}: {broken}, {metrics}");
            let failed = metrics.sum("curtail_attempts_failed_total", &[("failure", "broken")]);
            assert_eq!(failed, broken, "{head:?}: {metrics}");
            let requests = |status| metrics.sum("curtail_requests_total", &[("status", status)]);
            let counted = (requests("incomplete"), requests("2xx"));
            assert_eq!(counted, (broken, 30 - broken), "{head:?}: {metrics}");
        }
    });
}

#[test]
fn a_client_of_http_1_0_that_waits_for_the_end_is_not_given_a_false_one() {
    run(async {
        for (end, is_whole) in [("0\r\n\r\n", true), ("", false)] {
            let replica = RawReplica::start(move |mut wire, record, _| async move {
                record.read(&mut wire).await;
                let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                wire.send(format!("{head}4\r\nhalf\r\n{end}")).await;
            })
            .await;
            let proxy =
                Setup::before(&[replica.address()]).upstream("retry: false\nhedge: false").start();
            let mut wire = Wire::connect(proxy.address()).await;
            wire.send("GET / HTTP/1.0\r\n\r\n").await;
            let message = wire.read_message().await;
            assert_eq!(message.is_ok(), is_whole, "{message:?}");
        }
    });
}

#[test]
fn a_client_that_breaks_off_its_body_is_not_responded_to_for_it() {
    run(async {
        for speaks in [Speaks::Http1, Speaks::Http2] {
            let connect =
                if matches!(speaks, Speaks::Http2) { "connect: {protocol: http2}" } else { "" };
            let replica = Replica::start(speaks, |request| async move {
                let read = http_body_util::BodyExt::collect(request.into_body()).await;
                assert!(read.is_err(), "a part was given for the whole");
                status(StatusCode::OK)
            })
            .await;
            let proxy = Setup::before(&[replica.address()]).upstream(connect).start();
            let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
            let (sender, body) = body::channel();
            let request = client.request_with("POST", "/", body);
            let record = std::sync::Arc::clone(replica.record());
            let (response, ()) = tokio::join!(client.try_send(request), async {
                assert!(sender.data("half").await);
                record.until(|record| record.count() == 1).await;
                sender.break_off().await;
            });
            assert!(response.is_err(), "{response:?}");
            proxy.until(|metrics| metrics.in_flight() == 0).await;
            assert_eq!(replica.record().count(), 1);
        }
    });
}
