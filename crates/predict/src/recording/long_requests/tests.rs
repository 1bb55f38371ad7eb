use crate::fit::{Fit, FitOverrides};
use crate::lab::Lab;
use crate::prediction::REQUESTS_MAX;
use crate::recording::{FanOut, FanOutRequest, Recording, UNKNOWN};
use curtail_units::{Duration, Instant};

/// Requests of 20 s, of which each n-th is a stream of 60 s.
fn with_streams(every: usize) -> Recording {
    let mut recording = Lab::small(1).record();
    let requests = recording.requests.iter_mut().zip(&mut recording.attempts);
    for (request, attempt) in requests.step_by(every) {
        attempt.lasted = Duration::from_secs(60);
        request.latency = Some(attempt.lasted);
    }
    recording
}

#[test]
fn streams_longer_than_the_recording_are_left_out_with_a_note() {
    let mut recording = with_streams(10);
    recording.shorten(REQUESTS_MAX);
    assert_eq!((recording.requests.len(), recording.attempts.len()), (1_800, 1_800));
    assert_eq!(recording.long_requests, 200);
    assert!(recording.attempts.iter().all(|attempt| attempt.lasted < Duration::from_secs(1)));
    // The first request was a stream.
    assert_eq!(recording.requests[0].arrived, Instant::ZERO);
    let fit = Fit::new(&recording, FitOverrides::default()).expect("enough requests");
    assert!(fit.notes.iter().any(|note| note.part == "long requests"), "{:?}", fit.notes);
    let mut without = Lab::small(1).record();
    without.shorten(REQUESTS_MAX);
    assert_eq!((without.requests.len(), without.long_requests), (2_000, 0));
}

#[test]
fn a_recording_of_streams_alone_is_rejected() {
    let mut recording = with_streams(1);
    recording.shorten(REQUESTS_MAX);
    let error = Fit::new(&recording, FitOverrides::default()).expect_err("all are streams");
    assert_eq!(
        error.to_string(),
        "0 requests succeeded: expected at least 1000; left out as longer than the recording: 2000"
    );
}

/// Each request makes two calls, and the second call of the second request is a stream.
#[test]
fn a_request_with_a_long_call_is_left_out_with_all_its_calls() {
    let mut recording = Lab::small(1).record();
    recording.shorten(8);
    let requests = (0..4).map(|nth| FanOutRequest {
        arrived: recording.requests[2 * nth].arrived,
        latency: Some(Duration::from_ms(1)),
        overhead: Duration::ZERO,
    });
    let requests: Vec<FanOutRequest> = requests.collect();
    for (request, nth) in recording.requests.iter_mut().zip(0..) {
        request.caller = nth / 2;
        request.latency = Some(Duration::from_ms(1));
    }
    for attempt in &mut recording.attempts {
        attempt.lasted = Duration::from_ms(1);
    }
    recording.attempts[3].lasted = Duration::from_secs(60);
    recording.fan_out = Some(FanOut { shards: 2, calls: 2, requests: requests.clone() });
    recording.leave_out_long_requests();
    let callers: Vec<u32> = recording.requests.iter().map(|request| request.caller).collect();
    assert_eq!((callers, recording.long_requests), (vec![0, 0, 1, 1, 2, 2], 1));
    let kept = recording.fan_out.expect("it is one").requests;
    let arrived = |of: &[FanOutRequest]| {
        of.iter().map(|one| one.arrived.since(of[0].arrived)).collect::<Vec<Duration>>()
    };
    assert_eq!(arrived(&kept), arrived(&[requests[0], requests[2], requests[3]]));
}

#[test]
fn the_last_requests_are_kept_and_arrive_from_zero_on() {
    let whole = Lab::small(1).record();
    let mut recording = whole.clone();
    recording.shorten(500);
    assert_eq!((recording.requests.len(), recording.left_out), (500, 1_500));
    let first = whole.requests[1_500].arrived;
    for (kept, own) in recording.requests.iter().zip(&whole.requests[1_500..]) {
        assert_eq!(kept.arrived.since(Instant::ZERO), own.arrived.since(first));
        assert_eq!(kept.latency, own.latency);
    }
    let sent = whole.attempts[1_500].sent.since(first);
    assert_eq!(recording.attempts[0].sent.since(Instant::ZERO), sent);
}

/// Each request makes a call; a call of a request that is left out is left out too, unless it came later.
#[test]
fn of_a_fan_out_the_last_requests_are_kept_with_their_calls() {
    let mut recording = Lab { requests: 3_000, ..Lab::small(4) }.record();
    let requests = recording.requests.iter().map(|call| FanOutRequest {
        arrived: call.arrived,
        latency: call.latency,
        overhead: Duration::ZERO,
    });
    let requests: Vec<FanOutRequest> = requests.collect();
    let late = requests.len() - 2_000;
    for (call, nth) in recording.requests.iter_mut().zip(0..) {
        call.caller = nth;
    }
    recording.requests[late + 1].caller = 0;
    recording.fan_out = Some(FanOut { shards: 2, calls: 1, requests: requests.clone() });
    recording.shorten(10);
    let kept = &recording.fan_out.as_ref().expect("it is one").requests;
    assert_eq!(kept.len(), 2_000, "twice the least number");
    assert_eq!(kept[0].arrived, Instant::ZERO);
    assert_eq!(kept[5].latency, requests[late + 5].latency);
    let callers: Vec<u32> = recording.requests.iter().map(|call| call.caller).collect();
    assert_eq!((callers.len(), &callers[..4]), (2_000, &[0, UNKNOWN, 2, 3][..]));
}
