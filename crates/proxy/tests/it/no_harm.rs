//! The defaults do no harm: through the proxy, no request is slower or executed more often than without it, beyond the
//! proxy's own cost and the budget.

use crate::client::Client;
use crate::deadline::run;
use crate::proxy::Setup;
use crate::raw_replica::{RawReplica, response};
use crate::repetition::{executions, send};
use http::{StatusCode, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::Notify;

/// A replica that responds to the first request of a connection, executes the second, and closes without a
/// response.
async fn closing_when_reused() -> RawReplica {
    RawReplica::start(|mut wire, record, _| async move {
        if record.read(&mut wire).await.is_some() && wire.write(response("good")).await.is_ok() {
            record.read(&mut wire).await;
        }
    })
    .await
}

/// The extra executions that the default budget allows from `begun` until now.
fn allowed_by_default(requests: usize, begun: Instant) -> usize {
    // 2 % of the requests, or 10 a window if that is more; a window lasts at least 9 of its 10 s.
    let windows = begun.elapsed().as_secs() / 9 + 1;
    requests / 50 + 10 * usize::try_from(windows).expect("a test is short")
}

#[test]
fn reads_that_a_server_may_have_executed_are_repeated_within_the_budget() {
    const CLIENTS: usize = 4;
    const READS: usize = 2_000;
    run(async {
        let replicas = [closing_when_reused().await, closing_when_reused().await];
        let begun = Instant::now();
        let proxy = Setup::before(&[replicas[0].address(), replicas[1].address()]).start();
        let mut reading = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            reading.spawn(async move {
                let mut good = 0;
                for _ in 0..READS / CLIENTS {
                    let status = send(&mut client, "GET", "read", "").await.status;
                    good += usize::from(status == StatusCode::OK);
                }
                good
            });
        }
        let good: usize = reading.join_all().await.into_iter().sum();
        let executed = executions(&[&replicas[0], &replicas[1]], "read");
        println!("{READS} reads, {executed} executions, {good} good responses");
        assert!((1..=executed).contains(&good), "{good} good responses of {executed} executions");
        assert!(executed <= READS + allowed_by_default(READS, begun), "{executed} executions");
    });
}

#[test]
fn a_write_on_a_reused_connection_is_executed_once() {
    run(async {
        let replicas = [closing_when_reused().await, closing_when_reused().await];
        let proxy = Setup::before(&[replicas[0].address(), replicas[1].address()]).start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for nth in 0..100 {
            let id = nth.to_string();
            send(&mut client, "POST", &id, "data").await;
            assert_eq!(executions(&[&replicas[0], &replicas[1]], &id), 1, "POST {nth}");
        }
    });
}

/// Two replicas: the first one to get the request responds once the second has it; the second never responds.
async fn slow_and_silent() -> [RawReplica; 2] {
    let (request_count, second_arrived) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let replica = || {
        let (request_count, second_arrived) =
            (Arc::clone(&request_count), Arc::clone(&second_arrived));
        RawReplica::start(move |mut wire, record, _| {
            let (request_count, second_arrived) =
                (Arc::clone(&request_count), Arc::clone(&second_arrived));
            async move {
                if record.read(&mut wire).await.is_none() {
                    return;
                }
                if request_count.fetch_add(1, Ordering::SeqCst) == 0 {
                    second_arrived.notified().await;
                    wire.write(response("slow")).await.ok();
                } else {
                    second_arrived.notify_one();
                }
                wire.read_to_close().await;
            }
        })
    };
    [replica().await, replica().await]
}

#[test]
fn a_slow_read_is_raced_and_not_restarted() {
    run(async {
        let replicas = slow_and_silent().await;
        let proxy = Setup::before(&[replicas[0].address(), replicas[1].address()])
            .upstream("timeout: 5s\nretry: {overdue: {delay_min: 10ms, delay_max: 50ms}}")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let response = send(&mut client, "GET", "slow", "").await;
        assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"slow"[..]));
        assert_eq!(executions(&[&replicas[0], &replicas[1]], "slow"), 2);
        let metrics = proxy.until(|metrics| metrics.in_flight() == 0).await;
        assert_eq!((metrics.attempts("overdue"), metrics.attempts("retry")), (1, 0), "{metrics}");
    });
}

#[test]
fn a_hung_replica_is_not_waited_for_where_traffic_is_thin() {
    run(async {
        let (hung, good) = (RawReplica::silent().await, RawReplica::responding("good").await);
        let proxy = Setup::before(&[hung.address(), good.address()])
            .upstream("balance: round_robin\nretry: {overdue: {delay_min: 10ms, delay_max: 50ms}}")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for nth in 0..10 {
            let id = nth.to_string();
            assert_eq!(send(&mut client, "GET", &id, "").await.status, StatusCode::OK);
            assert!(executions(&[&hung, &good], &id) <= 2, "GET {nth}");
        }
        assert!(!hung.record().requests().is_empty(), "the hung replica got no request");
    });
}
