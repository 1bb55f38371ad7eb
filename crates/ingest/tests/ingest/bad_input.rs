//! Rejected requests, their messages, and that other requests succeed meanwhile.

use crate::client::{GRPC_TRACES, TRACES, TestResponse, compressed, framed, post, send};
use crate::receiver::Receiver;
use crate::run;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use curtail_http::access::{Access, Tokens};
use http::{Request, StatusCode, Version};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const BATCH: &[u8] = include_bytes!("../../../otlp/tests/golden/traces.pb");

async fn sent(receiver: &Receiver, head: http::request::Builder, body: &[u8]) -> TestResponse {
    send(receiver.address(), Version::HTTP_11, head, body.to_vec()).await
}

/// A valid batch is still accepted.
async fn is_good(receiver: &Receiver) {
    let response = sent(receiver, post(TRACES, "application/x-protobuf"), BATCH).await;
    assert_eq!(response.status, StatusCode::OK);
}

#[test]
fn what_is_no_batch_is_refused_in_the_form_in_which_it_came() {
    run(async {
        let receiver = Receiver::start(|config| config.limits.batch.batch_bytes = 100_000);
        let cut_off = &BATCH[..BATCH.len() / 2];
        let long = vec![0; 100_001];
        let bomb = compressed("zstd", &vec![0; 50 << 20]);
        assert!(bomb.len() < 100_000);
        let protobuf = || post(TRACES, "application/x-protobuf");
        for (head, body, status, expected) in [
            (protobuf(), cut_off, 400, "a length of"),
            (post(TRACES, "application/json"), b"{\"resourceSpans\":7}", 400, "expected a list"),
            (protobuf().header("content-encoding", "gzip"), BATCH, 400, "cannot be decompressed"),
            (protobuf(), &*long, 413, "more than 100000 bytes"),
            (protobuf().header("content-encoding", "zstd"), &*bomb, 413, "more than 100000 bytes"),
            (
                protobuf().header("content-encoding", "br"),
                BATCH,
                415,
                "identity, gzip, zstd, deflate",
            ),
            (post(TRACES, "text/plain"), BATCH, 415, "expected application/x-protobuf"),
            (post("/v1/other", "application/json"), b"{}", 404, "/v1/traces"),
            (Request::get(TRACES), b"", 405, "expected POST"),
        ] {
            let response = sent(&receiver, head, body).await;
            assert_eq!(response.status.as_u16(), status, "{response:?}");
            let text = String::from_utf8_lossy(&response.body);
            assert!(text.contains(expected), "{status}: {text:?}");
            assert_eq!(response.get("retry-after"), None, "it would be as bad again");
            is_good(&receiver).await;
        }
        assert_eq!(receiver.metrics.rejected.sum(), 9);
        let head = post(TRACES, "application/json");
        let response = sent(&receiver, head, b"[]").await;
        let status: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!(status["code"], 3, "{status}");
    });
}

#[test]
fn what_is_no_message_of_grpc_is_refused_in_its_words() {
    run(async {
        let receiver = Receiver::start(|config| config.limits.batch.batch_bytes = 100_000);
        let grpc = || post(GRPC_TRACES, "application/grpc");
        for (head, body, status, expected) in [
            (grpc(), framed(&BATCH[..100], false), "3", "a length of"),
            (grpc(), BATCH[..3].to_vec(), "3", "ends within the 5 bytes"),
            (grpc(), framed(BATCH, false)[..100].to_vec(), "3", "expected one message"),
            (grpc(), framed(&vec![0; 100_001], false), "3", "more than 100000 bytes"),
            (
                grpc().header("grpc-encoding", "gzip"),
                framed(BATCH, true),
                "3",
                "cannot be decompressed",
            ),
            (grpc().header("grpc-encoding", "br"), framed(BATCH, true), "12", "grpc-encoding"),
            (
                post("/other.Service/Export", "application/grpc"),
                framed(BATCH, false),
                "12",
                "nothing",
            ),
        ] {
            let response = send(receiver.address(), Version::HTTP_2, head, body).await;
            assert_eq!(response.status, StatusCode::OK, "gRPC's own status counts");
            assert_eq!(response.get("grpc-status"), Some(status), "{response:?}");
            let message = response.get("grpc-message").expect("it says why");
            assert!(message.contains(expected), "{message:?}");
            is_good(&receiver).await;
        }
    });
}

#[test]
fn requests_without_a_token_are_rejected() {
    run(async {
        let receiver = Receiver::start(|config| {
            let tokens = Tokens::parse("secret").expect("a token");
            config.access = Arc::new(Access::new(tokens));
        });
        let head = || post(TRACES, "application/x-protobuf");
        let response = sent(&receiver, head(), BATCH).await;
        assert_eq!(
            (response.status.as_u16(), response.get("www-authenticate")),
            (401, Some("Bearer"))
        );
        let grpc = post(GRPC_TRACES, "application/grpc").header("authorization", "Bearer guess");
        let response = send(receiver.address(), Version::HTTP_2, grpc, framed(BATCH, false)).await;
        assert_eq!(response.get("grpc-status"), Some("16"));
        assert_eq!(receiver.logged().len(), 0);
        let response =
            sent(&receiver, head().header("authorization", "Bearer secret"), BATCH).await;
        assert_eq!(response.status, StatusCode::OK);
    });
}

/// A connection over which a batch of this length is announced, and only its beginning sent.
async fn begun(receiver: &Receiver, len: usize) -> TcpStream {
    let mut stream = TcpStream::connect(receiver.address()).await.expect("it listens");
    let head = format!(
        "POST {TRACES} HTTP/1.1\r\nhost: h\r\ncontent-type: application/x-protobuf\r\n\
         content-length: {len}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("it is read");
    stream
}

/// Reads a response.
async fn read_response(mut stream: TcpStream) -> String {
    let mut response = vec![0; 4_096];
    let len = stream.read(&mut response).await.expect("an response");
    String::from_utf8_lossy(&response[..len]).into_owned()
}

#[test]
fn a_body_that_does_not_arrive_gets_a_status_after_which_senders_retry() {
    run(async {
        let receiver =
            Receiver::start(|config| config.limits.body_timeout = Duration::from_secs(1));
        let mut stream = begun(&receiver, BATCH.len()).await;
        stream.write_all(&BATCH[..100]).await.expect("it is read");
        is_good(&receiver).await;
        let response = read_response(stream).await;
        assert!(response.starts_with("HTTP/1.1 503"), "{response}");
        assert!(response.contains("retry-after: 1"), "{response}");
    });
}

#[test]
fn a_head_that_does_not_come_is_not_waited_for() {
    run(async {
        let receiver =
            Receiver::start(|config| config.limits.header_timeout = Duration::from_secs(1));
        let mut streams = Vec::new();
        for begun in ["", "P", "POST /v1/tra", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let mut stream = TcpStream::connect(receiver.address()).await.expect("it listens");
            stream.write_all(begun.as_bytes()).await.expect("it is read");
            streams.push((begun, stream));
        }
        is_good(&receiver).await;
        for (begun, mut stream) in streams {
            let mut response = Vec::new();
            // Closed, in order or not.
            stream.read_to_end(&mut response).await.ok();
            assert!(!response.starts_with(b"HTTP/1.1 200"), "{begun:?}");
        }
    });
}

#[test]
fn a_tenant_that_sends_too_much_leaves_room_for_others() {
    run(async {
        // Batches that differ by an unknown field: one log entry for equal batches needs the memory of one.
        let batch = |number: u8| [BATCH, &[0x78, number]].concat();
        let bytes = 16 * batch(0).len();
        let receiver = Receiver::start(|config| {
            config.limits.receiving_bytes = u32::try_from(bytes).expect("short");
        });
        let much = || post(TRACES, "application/x-protobuf").header("x-scope-orgid", "much");
        // What has come of a body counts: one tenant has more than three quarters of the room.
        let response = sent(&receiver, much(), &vec![0; bytes / 4 * 3 + 1]).await;
        assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS, "{response:?}");
        let message = String::from_utf8_lossy(&response.body);
        assert!(message.contains("of one tenant"), "{message:?}");
        // Four of its batches wait for the disk, and take three times their bytes each with their rows.
        receiver.disk.hold();
        let waiting: Vec<_> = (0..4)
            .map(|number| send(receiver.address(), Version::HTTP_11, much(), batch(number)))
            .map(tokio::spawn)
            .collect();
        while receiver.metrics.waiting.get() < 4 {
            tokio::task::yield_now().await;
        }
        let response = sent(&receiver, much(), &batch(4)).await;
        assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS, "{response:?}");
        let other = post(TRACES, "application/x-protobuf").header("x-scope-orgid", "other");
        let other = tokio::spawn(send(receiver.address(), Version::HTTP_11, other, batch(5)));
        while receiver.metrics.waiting.get() < 5 {
            tokio::task::yield_now().await;
        }
        receiver.disk.let_go();
        assert_eq!(other.await.expect("no panic").status, StatusCode::OK);
        for waiting in waiting {
            assert_eq!(waiting.await.expect("no panic").status, StatusCode::OK);
        }
    });
}

#[test]
fn when_too_much_is_being_received_senders_retry_later() {
    run(async {
        let bytes = 4 * BATCH.len();
        let receiver = Receiver::start(|config| {
            config.limits.receiving_bytes = u32::try_from(bytes).expect("short");
        });
        // One that is not yet durable takes three times its bytes, with its rows.
        receiver.disk.hold();
        let head = post(TRACES, "application/x-protobuf");
        let waiting = tokio::spawn(send(receiver.address(), Version::HTTP_11, head, BATCH));
        while receiver.disk.syncs() == 0 {
            tokio::task::yield_now().await;
        }
        let rejected = sent(&receiver, post(TRACES, "application/x-protobuf"), BATCH).await;
        assert_eq!(rejected.status, StatusCode::TOO_MANY_REQUESTS, "{rejected:?}");
        assert_eq!(rejected.get("retry-after"), Some("1"));
        let grpc = post(GRPC_TRACES, "application/grpc");
        let response = send(receiver.address(), Version::HTTP_2, grpc, framed(BATCH, false)).await;
        assert_eq!(response.get("grpc-status"), Some("8"), "{response:?}");
        let details = response.get("grpc-status-details-bin").expect("the delay before a retry");
        let details = STANDARD_NO_PAD.decode(details).expect("base64");
        assert!(String::from_utf8_lossy(&details).contains("google.rpc.RetryInfo"), "{details:?}");
        receiver.disk.let_go();
        assert_eq!(waiting.await.expect("no panic").status, StatusCode::OK);
        is_good(&receiver).await;
        // What has come of a body counts before the rest does.
        let mut slow = begun(&receiver, 2 * bytes).await;
        slow.write_all(&vec![0; bytes + 1]).await.expect("it is read");
        let response = read_response(slow).await;
        assert!(response.starts_with("HTTP/1.1 429"), "{response}");
        is_good(&receiver).await;
    });
}

#[test]
fn a_batch_whose_sender_has_given_up_counts_until_it_is_durable() {
    run(async {
        let receiver = Receiver::start(|config| {
            config.limits.receiving_bytes = u32::try_from(4 * BATCH.len()).expect("short");
        });
        receiver.disk.hold();
        let head = post(TRACES, "application/x-protobuf");
        let sender = tokio::spawn(send(receiver.address(), Version::HTTP_11, head, BATCH));
        while receiver.disk.syncs() == 0 {
            tokio::task::yield_now().await;
        }
        sender.abort();
        while receiver.metrics.waiting.get() > 0 {
            tokio::task::yield_now().await;
        }
        let rejected = sent(&receiver, post(TRACES, "application/x-protobuf"), BATCH).await;
        assert_eq!(rejected.status, StatusCode::TOO_MANY_REQUESTS, "{rejected:?}");
        receiver.disk.let_go();
    });
}
