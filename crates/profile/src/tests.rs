use super::{ProfileError, respond, seconds};
use curtail_protobuf::{Fields, Value};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use std::future::Future;
use std::io::Read as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// The status, media type and body of a `GET` below the prefix.
fn get(target: &str) -> (StatusCode, String, Vec<u8>) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    block_on(async {
        let response = respond(&Method::GET, &format!("/debug/pprof/{path}"), Some(query)).await;
        let media_type = response.headers()["content-type"].to_str().expect("text").to_owned();
        let status = response.status();
        let body = response.into_body().collect().await.expect("it is whole");
        (status, media_type, body.to_bytes().to_vec())
    })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(future)
}

#[test]
fn the_listing_and_errors_say_what_there_is() {
    let (status, _, body) = get("");
    let body = String::from_utf8(body).expect("text");
    assert_eq!(status, StatusCode::OK);
    assert!(body.contains("profile?seconds=10") && body.contains("threads?seconds=10"), "{body}");
    let (status, _, body) = get("heap");
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(String::from_utf8(body).expect("text").contains("profile?seconds=10"));
    let head = block_on(respond(&Method::HEAD, "/debug/pprof/profile", None));
    assert_eq!(head.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn seconds_have_a_default_and_a_range() {
    assert_eq!(seconds("").expect("the default"), 10);
    assert_eq!(seconds("debug=1&seconds=60").expect("the maximum"), 60);
    for bad in ["0", "61", "-1", "1.5", "x", ""] {
        assert!(
            matches!(seconds(&format!("seconds={bad}")), Err(ProfileError::Seconds(_))),
            "{bad}"
        );
    }
    let (status, _, body) = get("profile?seconds=61");
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(body, b"seconds: \"61\": expected a whole number from 1 to 60\n");
}

/// Computes until it is stopped; the profile must name it.
#[inline(never)]
fn planted_computation(stop: &AtomicBool) -> u64 {
    let mut sum = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
    }
    sum
}

/// One test, because a process records one CPU profile at a time.
#[test]
fn a_cpu_profile_names_the_busy_function_and_runs_once_at_a_time() {
    let stop = AtomicBool::new(false);
    let (status, _, compressed) = std::thread::scope(|scope| {
        let busy = std::thread::Builder::new().name("planted-cpu".to_owned());
        busy.spawn_scoped(scope, || planted_computation(&stop)).expect("a thread");
        let profile = get("profile?seconds=1");
        stop.store(true, Ordering::Relaxed);
        profile
    });
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&compressed));
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut profile).expect("gzip");
    let texts: Vec<&[u8]> = Fields(&profile)
        .filter_map(|field| match field {
            (6, Value::Bytes(text)) => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(texts[0], b"", "the first text is empty");
    let has = |part: &str| texts.iter().any(|text| String::from_utf8_lossy(text).contains(part));
    assert!(has("planted_computation") && has("planted-cpu"), "{texts:?}");
    let samples: u64 = Fields(&profile).filter(|(field, _)| *field == 2).count() as u64;
    assert!(samples > 0);

    // The first is begun and not awaited.
    let mut first = pin!(respond(&Method::GET, "/debug/pprof/profile", Some("seconds=60")));
    let begun = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(begun, Poll::Pending));
    let (status, _, body) = get("profile?seconds=1");
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(body, b"another profile is being recorded: retry when it has ended\n");
}
