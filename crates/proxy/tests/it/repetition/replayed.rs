//! Bodies that are sent again: the same bytes, or not at all.

use super::executions;
use crate::body;
use crate::client::{Client, FullResponse};
use crate::deadline::run;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use http::{HeaderValue, StatusCode, Version};

/// A replica that reads requests whole and then resets the connection.
async fn resetting() -> RawReplica {
    RawReplica::start(|mut wire, record, _| async move {
        record.read(&mut wire).await;
        wire.reset();
    })
    .await
}

/// A proxy before a bad replica and a good one, on a route that is declared idempotent.
async fn idempotent(replay_bytes: usize) -> (Proxy, RawReplica, RawReplica) {
    let (bad, good) = (resetting().await, RawReplica::responding("good").await);
    let proxy = Setup::before(&[bad.address(), good.address()])
        .route("idempotent: true")
        .upstream("balance: round_robin\nhedge: false\nretry: {backoff: 1ms}")
        .top(&format!("limits: {{replay: {replay_bytes}B}}"))
        .start();
    (proxy, bad, good)
}

/// Sends `pieces` as a body of unknown length.
async fn put(client: &mut Client, id: &str, pieces: &[&'static str]) -> FullResponse {
    let (sender, body) = body::channel();
    let pieces = pieces.to_vec();
    tokio::spawn(async move {
        for piece in pieces {
            sender.data(piece).await;
        }
    });
    let mut request = client.request_with("PUT", "/", body);
    request.headers_mut().insert("x-request-id", HeaderValue::from_str(id).expect("plain text"));
    client.send(request).await
}

#[test]
fn a_body_within_the_bound_is_repeated_byte_for_byte() {
    run(async {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let (proxy, bad, good) = idempotent(1 << 16).await;
            let mut client = Client::connect(proxy.address(), version).await;
            for id in ["a", "b", "c", "d"] {
                let response = put(&mut client, id, &["one ", "two ", "three"]).await;
                assert_eq!(response.status, StatusCode::OK, "{response:?}");
                assert!(matches!(executions(&[&bad, &good], id), 1 | 2));
            }
            let repeated: Vec<_> = bad.record().requests();
            assert!(!repeated.is_empty(), "the bad replica got no request");
            for request in repeated.iter().chain(&good.record().requests()) {
                assert_eq!(request.body, "one two three");
            }
        }
    });
}

#[test]
fn a_body_beyond_the_bound_is_sent_once() {
    run(async {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let (proxy, bad, good) = idempotent(10).await;
            let mut client = Client::connect(proxy.address(), version).await;
            for nth in 0..4 {
                let id = nth.to_string();
                let response = put(&mut client, &id, &["eleven byte", "s"]).await;
                assert_eq!(executions(&[&bad, &good], &id), 1);
                if executions(&[&bad], &id) == 1 {
                    assert_eq!((response.status.as_u16(), response.error()), (502, Some("broken")));
                } else {
                    assert_eq!(response.status, StatusCode::OK);
                }
            }
            assert!(!bad.record().requests().is_empty(), "the bad replica got no request");
        }
    });
}

#[test]
fn without_the_declaration_a_put_is_sent_once() {
    run(async {
        let (bad, good) = (resetting().await, RawReplica::responding("good").await);
        let proxy = Setup::before(&[bad.address(), good.address()])
            .upstream("balance: round_robin")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for id in ["a", "b", "c", "d"] {
            put(&mut client, id, &["data"]).await;
            assert_eq!(executions(&[&bad, &good], id), 1);
        }
        assert!(!bad.record().requests().is_empty(), "the bad replica got no request");
    });
}
