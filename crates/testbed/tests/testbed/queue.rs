//! The concurrency limit and the queue before it.

use crate::client::{Client, Version, start};
use curtail_units::Duration;
use http::StatusCode;
use tokio::task::JoinSet;

#[tokio::test]
async fn one_slot_works_on_one_request_after_the_other() {
    let yaml = "
name: narrow
replicas: 1
server: {concurrency: 1, service: {shape: constant, value: 2ms}}
";
    let testbed = start(yaml, 1);
    let began = testbed.now();
    let mut clients = JoinSet::new();
    for _ in 0..20 {
        let testbed = testbed.clone();
        clients.spawn(async move {
            let mut client = Client::connect(testbed.address(0, 0), Version::Http1).await;
            let (stay, response) = client.read(&testbed).await;
            (stay.responded, response.spent)
        });
    }
    let mut stays = clients.join_all().await;
    stays.sort_unstable_by_key(|(responded, _)| *responded);
    for (nth, (responded, [queue, service, _])) in stays.into_iter().enumerate() {
        let done = Duration::from_ms(2 * (nth as u64 + 1));
        assert!(responded.since(began) >= done, "response {nth} after {}", responded.since(began));
        assert_eq!(service, Duration::from_ms(2));
        assert!(nth == 0 || queue > Duration::ZERO, "response {nth} did not wait");
    }
}

#[tokio::test]
async fn a_request_that_finds_the_queue_full_is_rejected_and_not_executed() {
    // Nothing ends while the test runs.
    let yaml = "
name: full
replicas: 1
server: {concurrency: 1, queue_len_max: 5, service: {shape: constant, value: 1h}}
";
    let testbed = start(yaml, 1);
    let mut reads = JoinSet::new();
    for _ in 0..10 {
        let mut client = Client::connect(testbed.address(0, 0), Version::Http1).await;
        reads.spawn(async move { client.get("/shard/0/keys?k=a").await.status });
    }
    // One is executed and five are queued.
    for _ in 0..4 {
        let status = reads.join_next().await.expect("ten requests").expect("a response");
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(testbed.executions(), 1);
}

#[tokio::test]
async fn a_request_whose_client_leaves_while_waiting_is_not_executed() {
    let yaml = "
name: left
replicas: 1
server: {concurrency: 1, service: {shape: constant, value: 300ms}}
";
    let testbed = start(yaml, 1);
    let mut first = Client::connect(testbed.address(0, 0), Version::Http1).await;
    let mut health = Client::connect(testbed.address(0, 0), Version::Http1).await;
    // One HTTP/2 connection whose one request is cancelled: the server sees the reset, not a close.
    let mut second = Client::connect(testbed.address(0, 0), Version::Http2).await;
    let (first, ()) = tokio::join!(first.get("/shard/0/keys?k=a"), async {
        while testbed.executions() == 0 {
            health.get("/healthz").await;
        }
        tokio::select! {
            biased;
            _ = second.get("/shard/0/keys?k=b") => panic!("it had to wait for the first"),
            // Three requests to the same server and back: by then the read is in the queue.
            () = async {
                for _ in 0..3 {
                    health.get("/healthz").await;
                }
            } => {}
        }
    });
    assert_eq!(first.status, StatusCode::OK);
    // The cancelled request left the queue, so the slot is free at once for the next.
    let third = second.get("/shard/0/keys?k=c").await;
    assert_eq!(third.status, StatusCode::OK);
    assert_eq!(testbed.executions(), 2);
}
