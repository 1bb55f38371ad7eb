//! A batch is acknowledged when it is durable, and not before.

use crate::client::{GRPC_TRACES, TRACES, framed, post, send};
use crate::receiver::Receiver;
use crate::run;
use curtail_ingest::Why;
use http::{StatusCode, Version};
use std::io;
use std::time::Duration;

const BATCH: &[u8] = include_bytes!("../../../otlp/tests/golden/traces.pb");

#[test]
fn nobody_is_answered_before_the_disk_has_it_and_who_waits_shares_a_sync() {
    run(async {
        let receiver = Receiver::start(|_| {});
        receiver.disk.hold();
        let one = || {
            let head = post(TRACES, "application/x-protobuf");
            tokio::spawn(send(receiver.address(), Version::HTTP_11, head, BATCH))
        };
        let mut senders = vec![one()];
        while receiver.disk.syncs() == 0 {
            tokio::task::yield_now().await;
        }
        // The others come while the disk is busy with the first.
        senders.extend((0..20).map(|_| one()));
        while receiver.counts().waiting() < 21 {
            tokio::task::yield_now().await;
        }
        assert!(senders.iter().all(|sender| !sender.is_finished()), "answered too early");
        receiver.disk.let_go();
        for sender in senders {
            assert_eq!(sender.await.expect("no panic").status, StatusCode::OK);
        }
        assert_eq!(receiver.logged().len(), 21);
        assert_eq!(receiver.disk.syncs(), 2, "all that waited are one group");
    });
}

#[test]
fn while_nothing_is_taken_senders_come_again_and_what_they_gave_up_is_not_kept() {
    run(async {
        let receiver = Receiver::start(|config| config.limits.full_for = Duration::ZERO);
        for (nth, why, said) in
            [(1, Why::Slow, "to the tables"), (2, Why::DiskFull, "the disk is full")]
        {
            receiver.room.fill(Some(why));
            let head = post(TRACES, "application/x-protobuf");
            let first = tokio::spawn(send(receiver.address(), Version::HTTP_11, head, BATCH));
            while !receiver.room.is_waited_for() {
                tokio::task::yield_now().await;
            }
            let head = post(TRACES, "application/x-protobuf");
            let answer = send(receiver.address(), Version::HTTP_11, head, BATCH).await;
            assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(answer.get("retry-after"), Some("1"));
            let head = post(GRPC_TRACES, "application/grpc");
            let answer =
                send(receiver.address(), Version::HTTP_2, head, framed(BATCH, false)).await;
            assert_eq!(answer.get("grpc-status"), Some("8"), "{answer:?}");
            let message = answer.get("grpc-message").expect("it says why");
            assert!(message.ends_with(said), "{message}");
            let first = first.await.expect("no panic");
            assert_eq!(first.status, StatusCode::TOO_MANY_REQUESTS);
            receiver.room.fill(None);
            let head = post(TRACES, "application/x-protobuf");
            let answer = send(receiver.address(), Version::HTTP_11, head, BATCH).await;
            assert_eq!(answer.status, StatusCode::OK);
            assert_eq!(receiver.logged().len(), nth);
        }
    });
}

#[test]
fn a_disk_that_is_full_is_said_and_senders_come_again() {
    run(async {
        let receiver = Receiver::start(|_| {});
        for (kind, said) in [
            (io::ErrorKind::StorageFull, "the disk is full"),
            (io::ErrorKind::Other, "the log cannot be written"),
        ] {
            receiver.disk.fail(Some(kind));
            let head = post(TRACES, "application/x-protobuf");
            let answer = send(receiver.address(), Version::HTTP_11, head, BATCH).await;
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.get("retry-after"), Some("1"));
            let head = post(GRPC_TRACES, "application/grpc");
            let answer =
                send(receiver.address(), Version::HTTP_2, head, framed(BATCH, false)).await;
            assert_eq!(answer.get("grpc-status"), Some("14"), "{answer:?}");
            assert_eq!(answer.get("grpc-message"), Some(said));
            receiver.disk.fail(None);
            let head = post(TRACES, "application/x-protobuf");
            let answer = send(receiver.address(), Version::HTTP_11, head, BATCH).await;
            assert_eq!(answer.status, StatusCode::OK, "it has recovered");
        }
        assert_eq!((receiver.logged().len(), receiver.taken().len()), (2, 2));
        assert_eq!((receiver.counts().batches(), receiver.counts().delayed_batches()), (2, 4));
    });
}

#[test]
fn who_stops_it_waits_for_what_was_begun() {
    run(async {
        let receiver = Receiver::start(|_| {});
        receiver.disk.hold();
        let head = post(TRACES, "application/x-protobuf");
        let sender = tokio::spawn(send(receiver.address(), Version::HTTP_11, head, BATCH));
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
