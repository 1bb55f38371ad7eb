//! Hedges of requests whose body is still on its way: every attempt gets all of it, whatever becomes of the
//! others.

use crate::body;
use crate::client::{Client, FullResponse};
use crate::deadline::run;
use crate::proxy::Setup;
use crate::replica::{Replica, Speaks, abort, ok};
use http::{StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// What a replica does when it has got the first piece of a body.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Reads all of it and responds with it.
    Respond,
    /// Reads all of it and says nothing.
    Hold,
    /// Resets the stream on a signal.
    Reset,
    /// Stays silent and reads no more.
    ReadNoMore,
}

/// A replica that tells which pieces it gets, and what tells it to reset.
async fn telling(speaks: Speaks, then: Then) -> (Replica, mpsc::Receiver<String>, Arc<Notify>) {
    let (tells, received) = mpsc::channel(16);
    let reset = Arc::new(Notify::new());
    let hears = Arc::clone(&reset);
    let replica = Replica::start(speaks, move |request| {
        let (tells, hears) = (tells.clone(), Arc::clone(&hears));
        async move {
            let mut body = request.into_body();
            let mut all = piece(&mut body).await.expect("a first piece");
            tells.send(all.clone()).await.expect("the test listens");
            match then {
                Then::Respond | Then::Hold => {
                    while let Some(piece) = piece(&mut body).await {
                        all += &piece;
                        tells.send(piece).await.expect("the test listens");
                    }
                    if matches!(then, Then::Hold) {
                        std::future::pending::<()>().await;
                    }
                    http::Response::new(body::whole(all))
                }
                Then::Reset => {
                    hears.notified().await;
                    abort()
                }
                Then::ReadNoMore => {
                    std::future::pending::<()>().await;
                    drop(body);
                    ok("never")
                }
            }
        }
    })
    .await;
    (replica, received, reset)
}

async fn piece(body: &mut Incoming) -> Option<String> {
    loop {
        let data = body.frame().await?.ok()?.into_data().ok()?;
        if !data.is_empty() {
            return Some(String::from_utf8(data.to_vec()).expect("text"));
        }
    }
}

const EAGER: &str = "balance: round_robin\nretry: false\nbudget: {ratio: 1.0}\n\
                     hedge: {delay_min: 1ms, delay_max: 1ms}";

/// Uploads three pieces, the second and third only after two attempts have got the first; each of them that
/// reads on must get all.
async fn upload(behind: Version, first: Then, second: Then) {
    println!("{behind:?}: {first:?} and {second:?}");
    let (speaks, connect) = match behind {
        Version::HTTP_2 => (Speaks::Http2, "connect: {protocol: http2}"),
        _ => (Speaks::Http1, ""),
    };
    let (a, mut a_received, a_reset) = telling(speaks.clone(), first).await;
    let (b, mut b_received, b_reset) = telling(speaks, second).await;
    let proxy = Setup::before(&[a.address(), b.address()])
        .route("idempotent: true")
        .upstream(&format!("{EAGER}\n{connect}"))
        .start();
    let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
    let (sender, body) = body::channel();
    let request = client.request_with("PUT", "/", body);
    let asking = tokio::spawn(async move { client.send(request).await });
    assert!(sender.data("one ").await);
    assert_eq!(a_received.recv().await.expect("a piece"), "one ");
    assert_eq!(b_received.recv().await.expect("a piece"), "one ");
    if matches!(second, Then::Reset) || matches!(first, Then::Reset) {
        // Whichever of the two got the first attempt.
        a_reset.notify_one();
        b_reset.notify_one();
        proxy.until(|metrics| metrics.in_flight() == 1).await;
    }
    for next in ["two ", "three"] {
        assert!(sender.data(next).await);
        for (then, received) in [(first, &mut a_received), (second, &mut b_received)] {
            if matches!(then, Then::Respond | Then::Hold) {
                assert_eq!(received.recv().await.expect("a piece"), next);
            }
        }
    }
    drop(sender);
    let response: FullResponse = asking.await.expect("no panic");
    assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"one two three"[..]));
}

#[test]
fn both_attempts_get_every_piece_as_it_comes() {
    run(async {
        for behind in [Version::HTTP_11, Version::HTTP_2] {
            upload(behind, Then::Respond, Then::Hold).await;
            upload(behind, Then::Hold, Then::Respond).await;
        }
    });
}

#[test]
fn an_attempt_that_is_lost_takes_nothing_from_the_other() {
    run(async {
        for behind in [Version::HTTP_11, Version::HTTP_2] {
            upload(behind, Then::Respond, Then::Reset).await;
            upload(behind, Then::Reset, Then::Respond).await;
        }
    });
}

#[test]
fn an_attempt_that_is_not_read_does_not_hold_up_the_other() {
    run(async {
        for behind in [Version::HTTP_11, Version::HTTP_2] {
            upload(behind, Then::Respond, Then::ReadNoMore).await;
            upload(behind, Then::ReadNoMore, Then::Respond).await;
        }
    });
}

#[test]
fn an_attempt_whose_window_is_full_does_not_hold_up_the_other() {
    run(async {
        // More than a stream's window at hyper's servers (64 KiB) and less than what is kept.
        const BYTES: usize = 200 << 10;
        let release = Arc::new(Notify::new());
        let stuck = Replica::start(Speaks::Http2, {
            let release = Arc::clone(&release);
            move |request| {
                let release = Arc::clone(&release);
                async move {
                    release.notified().await;
                    drop(request);
                    ok("never")
                }
            }
        })
        .await;
        let good = Replica::start(Speaks::Http2, |request| async move {
            let body = request.into_body().collect().await.expect("a whole body").to_bytes();
            http::Response::new(body::whole(body.len().to_string()))
        })
        .await;
        let proxy = Setup::before(&[stuck.address(), good.address()])
            .route("idempotent: true")
            .upstream(&format!("{EAGER}\nconnect: {{protocol: http2}}"))
            .top("limits: {replay: 1MiB}")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for _ in 0..4 {
            let request = client.request_with("PUT", "/", body::whole(vec![7; BYTES]));
            let response = client.send(request).await;
            assert_eq!(
                (response.status, &*response.body),
                (StatusCode::OK, BYTES.to_string().as_bytes())
            );
        }
        assert!(stuck.record().count() > 0, "the stuck replica got no request");
    });
}

#[test]
fn a_body_that_is_too_long_to_be_kept_has_no_second_copy() {
    run(async {
        let read = |request: http::Request<Incoming>| async move {
            let body = request.into_body().collect().await.expect("a whole body").to_bytes();
            http::Response::new(body::whole(body.len().to_string()))
        };
        let (a, b) =
            (Replica::start(Speaks::Http1, read).await, Replica::start(Speaks::Http1, read).await);
        let proxy = Setup::before(&[a.address(), b.address()])
            .route("idempotent: true")
            .upstream("hedge: false\ntie: true")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        // `limits.replay` is 64 KiB.
        for (bytes, ties) in [(1_000, 1), (70_000, 1), (64 << 10, 2)] {
            let request = client.request_with("PUT", "/", body::whole(vec![7; bytes]));
            let response = client.send(request).await;
            assert_eq!(&*response.body, bytes.to_string().as_bytes());
            let metrics = proxy.metrics().await;
            let tied = metrics.sum("curtail_attempts_total", &[("reason", "tie_first")]);
            assert_eq!(tied, ties, "after {bytes} bytes: {metrics}");
        }
    });
}
