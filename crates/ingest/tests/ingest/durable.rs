//! A batch is acknowledged when it is durable, and not before.

use crate::client::{GRPC_TRACES, TRACES, TestResponse, compressed, framed, post, send};
use crate::receiver::Receiver;
use crate::run;
use curtail_ingest::StallReason;
use http::{StatusCode, Version};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Two spans; each number below 128 gives another batch.
fn batch(nth: u8) -> Vec<u8> {
    // An unknown field.
    [include_bytes!("../../../otlp/tests/golden/traces.pb"), &[0x78, nth][..]].concat()
}

#[test]
fn no_batch_is_acknowledged_before_its_sync_and_waiting_batches_share_one() {
    run(async {
        let receiver = Receiver::start(|_| {});
        receiver.disk.hold();
        let one = |nth| {
            let head = post(TRACES, "application/x-protobuf");
            tokio::spawn(send(receiver.address(), Version::HTTP_11, head, batch(nth)))
        };
        let mut senders = vec![one(0)];
        while receiver.disk.syncs() == 0 {
            tokio::task::yield_now().await;
        }
        // The others come while the disk is busy with the first.
        senders.extend((1..=20).map(one));
        while receiver.metrics.waiting.get() < 21 {
            tokio::task::yield_now().await;
        }
        assert!(senders.iter().all(|sender| !sender.is_finished()), "acknowledged too early");
        receiver.disk.let_go();
        for sender in senders {
            assert_eq!(sender.await.expect("no panic").status, StatusCode::OK);
        }
        assert_eq!(receiver.logged().len(), 21);
        assert_eq!(receiver.disk.syncs(), 2, "all that waited are one group");
    });
}

#[test]
fn while_nothing_is_accepted_senders_retry_and_abandoned_batches_are_not_kept() {
    run(async {
        let receiver = Receiver::start(|config| config.limits.full_for = Duration::ZERO);
        for (nth, why, expected) in [
            (1, StallReason::Slow, "to the tables"),
            (2, StallReason::DiskFull, "the disk is full"),
        ] {
            receiver.room.fill(Some(why));
            let head = post(TRACES, "application/x-protobuf");
            let first = tokio::spawn(send(receiver.address(), Version::HTTP_11, head, batch(nth)));
            while !receiver.room.is_waited_for() {
                tokio::task::yield_now().await;
            }
            let head = post(TRACES, "application/x-protobuf");
            let response = send(receiver.address(), Version::HTTP_11, head, batch(nth)).await;
            assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(response.get("retry-after"), Some("1"));
            let head = post(GRPC_TRACES, "application/grpc");
            let response =
                send(receiver.address(), Version::HTTP_2, head, framed(&batch(nth), false)).await;
            assert_eq!(response.get("grpc-status"), Some("8"), "{response:?}");
            let message = response.get("grpc-message").expect("it says why");
            assert!(message.ends_with(expected), "{message}");
            let first = first.await.expect("no panic");
            assert_eq!(first.status, StatusCode::TOO_MANY_REQUESTS);
            receiver.room.fill(None);
            // Until the log thread has noticed it, senders still get 429.
            let response = loop {
                let head = post(TRACES, "application/x-protobuf");
                let response = send(receiver.address(), Version::HTTP_11, head, batch(nth)).await;
                if response.status != StatusCode::TOO_MANY_REQUESTS {
                    break response;
                }
            };
            assert_eq!(response.status, StatusCode::OK);
            assert_eq!(receiver.logged().len(), usize::from(nth));
        }
    });
}

#[test]
fn a_full_disk_is_reported_and_senders_retry() {
    run(async {
        let receiver = Receiver::start(|_| {});
        for (nth, kind, message) in [
            (1, io::ErrorKind::StorageFull, "the disk is full"),
            (2, io::ErrorKind::Other, "the log cannot be written"),
        ] {
            receiver.disk.fail(Some(kind));
            let head = post(TRACES, "application/x-protobuf");
            let response = send(receiver.address(), Version::HTTP_11, head, batch(nth)).await;
            assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.get("retry-after"), Some("1"));
            let head = post(GRPC_TRACES, "application/grpc");
            let response =
                send(receiver.address(), Version::HTTP_2, head, framed(&batch(nth), false)).await;
            assert_eq!(response.get("grpc-status"), Some("14"), "{response:?}");
            assert_eq!(response.get("grpc-message"), Some(message));
            receiver.disk.fail(None);
            let head = post(TRACES, "application/x-protobuf");
            let response = send(receiver.address(), Version::HTTP_11, head, batch(nth)).await;
            assert_eq!(response.status, StatusCode::OK, "it has recovered");
        }
        assert_eq!((receiver.logged().len(), receiver.taken().len()), (2, 2));
        assert_eq!((receiver.metrics.batch_counts().0, receiver.metrics.rejected.sum()), (2, 4));
    });
}

#[test]
fn a_stop_waits_for_requests_in_progress() {
    run(async {
        // No other test listens on this address, so the port stays closed.
        let own = SocketAddr::from(([127, 0, 0, 2], 0));
        let receiver = Receiver::start(|config| config.addresses = vec![own]);
        receiver.disk.hold();
        let head = post(TRACES, "application/x-protobuf");
        let sender = tokio::spawn(send(receiver.address(), Version::HTTP_11, head, batch(0)));
        while receiver.disk.syncs() == 0 {
            tokio::task::yield_now().await;
        }
        let (address, disk) = (receiver.address(), receiver.disk.clone());
        let stopping = receiver.stop();
        while tokio::net::TcpStream::connect(address).await.is_ok() {}
        assert!(!stopping.is_finished() && !sender.is_finished());
        disk.let_go();
        assert_eq!(sender.await.expect("no panic").status, StatusCode::OK);
        let receiver = tokio::task::spawn_blocking(|| stopping.join()).await;
        let receiver = receiver.expect("no panic").expect("no panic");
        assert_eq!(receiver.logged().len(), 1);
    });
}

/// Sends a protobuf batch of a tenant over HTTP/1.1.
fn sends(
    receiver: &Receiver,
    path: &str,
    tenant: &str,
    batch: Vec<u8>,
) -> JoinHandle<TestResponse> {
    let head = post(path, "application/x-protobuf").header("x-scope-orgid", tenant);
    tokio::spawn(send(receiver.address(), Version::HTTP_11, head, batch))
}

#[test]
fn a_batch_that_is_sent_again_is_acknowledged_and_not_written_again() {
    run(async {
        let receiver = Receiver::start(|_| {});
        let status = async |path, tenant, batch| {
            sends(&receiver, path, tenant, batch).await.expect("no panic").status
        };
        let metrics = include_bytes!("../../../otlp/tests/golden/metrics.pb");
        let logs = include_bytes!("../../../otlp/tests/golden/logs.pb");
        for _ in 0..3 {
            for tenant in ["shop", "other"] {
                assert_eq!(status(TRACES, tenant, batch(1)).await, StatusCode::OK);
                assert_eq!(status("/v1/metrics", tenant, metrics.to_vec()).await, StatusCode::OK);
            }
            assert_eq!(status("/v1/logs", "shop", logs.to_vec()).await, StatusCode::OK);
            // The same batch compressed, and the same rows in another encoding.
            let head = post(TRACES, "application/x-protobuf").header("content-encoding", "gzip");
            let head = head.header("x-scope-orgid", "shop");
            let compressed = compressed("gzip", &batch(1));
            let response = send(receiver.address(), Version::HTTP_11, head, compressed).await;
            assert_eq!(response.status, StatusCode::OK);
            assert_eq!(status(TRACES, "shop", batch(2)).await, StatusCode::OK);
        }
        // Two batches of each tenant, one in another encoding, and every batch of logs.
        assert_eq!(receiver.logged().len(), 2 * 2 + 1 + 3);
        assert_eq!(receiver.taken().len(), 8);
        assert_eq!(receiver.metrics.batch_counts(), (8, 2 * 4 + 2 + 3));
    });
}

#[test]
fn a_batch_that_is_sent_again_while_it_waits_has_the_outcome_of_the_first() {
    run(async {
        let receiver = Receiver::start(|_| {});
        for (nth, fails) in [(1, None), (2, Some(io::ErrorKind::Other)), (2, None)] {
            let logged = receiver.logged().len();
            // The sink accepts nothing for a while, so that all senders wait.
            receiver.room.fill(Some(StallReason::Slow));
            let mut senders: Vec<_> =
                (0..3).map(|_| sends(&receiver, TRACES, "shop", batch(nth))).collect();
            while receiver.metrics.waiting.get() < 3 || !receiver.room.is_waited_for() {
                tokio::task::yield_now().await;
            }
            // The first sender may be the one that disconnects.
            let gone = senders.remove(0);
            gone.abort();
            assert!(gone.await.is_err());
            receiver.disk.fail(fails);
            receiver.room.fill(None);
            let want = fails.map_or(StatusCode::OK, |_| StatusCode::SERVICE_UNAVAILABLE);
            for sender in senders {
                assert_eq!(sender.await.expect("no panic").status, want);
            }
            receiver.disk.fail(None);
            assert_eq!(receiver.logged().len() - logged, usize::from(fails.is_none()));
        }
    });
}

#[test]
fn while_the_disk_of_the_log_hangs_senders_retry() {
    run(async {
        let receiver =
            Receiver::start(|config| config.limits.full_for = Duration::from_millis(300));
        receiver.disk.hold();
        let one = || {
            let head = post(TRACES, "application/x-protobuf");
            send(receiver.address(), Version::HTTP_11, head, batch(1))
        };
        let response = one().await;
        assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE, "{response:?}");
        assert_eq!(response.get("retry-after"), Some("1"));
        let message = String::from_utf8_lossy(&response.body);
        assert!(message.contains("its disk does not respond"), "{message}");
        receiver.disk.let_go();
        // As a sender does: it sends the batch again until it is accepted.
        while one().await.status != StatusCode::OK {}
        assert_eq!(receiver.logged().len(), 1);
    });
}
