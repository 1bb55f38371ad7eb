use super::sample::{get, trail, usual};
use super::{BUFFERED_BYTES_MAX, CHUNK_BYTES, SPARE_CHUNKS_MAX, Settled, SpanSink, decoded, lock};
use crate::guard::planted::ENCODER_PANICS;
use crate::trail::Trail;
use bytes::Bytes;
use curtail_http::clock::Clock;
use std::sync::Arc;

/// Everything that was written, decoded.
fn take_all(sink: &SpanSink) -> Vec<decoded::Span> {
    let mut request = decoded::Request::default();
    loop {
        // What waits may leave no room for what threads still hold: as often as it takes.
        sink.hand_over_all();
        let Some(batch) = sink.take(usize::MAX) else { return request.spans };
        for chunk in &batch.chunks {
            decoded::scope_spans(chunk, &mut request);
        }
        sink.settle(batch, Settled::Sent { rejected: 0 });
    }
}

#[test]
fn requests_that_are_not_sampled_leave_no_trace() {
    let (sink, clock) = (SpanSink::default(), Clock::start());
    let mut unwanted = usual();
    unwanted.context.sampled = false;
    sink.record(&unwanted, &clock);
    assert_eq!(sink.counts(), SpanSink::default().counts());
    assert!(take_all(&sink).is_empty());
}

#[test]
fn threads_that_write_at_once_lose_nothing_and_tear_nothing() {
    const THREADS: u8 = 20;
    const REQUESTS: usize = 2_000;
    let (sink, clock) = (Arc::new(SpanSink::default()), Clock::start());
    let mut taken = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let sink = &sink;
            scope.spawn(move || {
                let mut trail = usual();
                trail.context.span_id = [thread + 100; 8];
                (0..REQUESTS).for_each(|_| sink.record(&trail, &clock));
            });
        }
        // Taken while they write: 20 × 2,000 requests are more than the buffers hold.
        while sink.counts().recorded + sink.counts().dropped
            < 2 * REQUESTS as u64 * u64::from(THREADS)
        {
            taken.extend(take_all(&sink));
        }
    });
    taken.extend(take_all(&sink));
    let counts = sink.counts();
    assert_eq!(counts.recorded, taken.len() as u64);
    assert_eq!((counts.sent, counts.undelivered), (counts.recorded, 0));
    for thread in 0..THREADS {
        let id = &[thread + 100; 8][..];
        let requests = taken.iter().filter(|span| span.span_id == id).count() as u64;
        let attempts = taken.iter().filter(|span| span.parent == id).count() as u64;
        assert_eq!(requests, attempts, "thread {thread}");
    }
}

#[test]
fn a_full_buffer_drops_and_counts_and_stays_within_its_bound() {
    let (sink, clock) = (SpanSink::default(), Clock::start());
    let trail = usual();
    while sink.counts().dropped == 0 {
        sink.record(&trail, &clock);
    }
    sink.record(&trail, &clock);
    let counts = sink.counts();
    assert_eq!(counts.dropped, 4);
    let spans = take_all(&sink);
    assert_eq!(spans.len() as u64, counts.recorded);
    // This thread alone fills its own buffer and all that may wait.
    let usual = usual_bytes();
    let buffered = spans.len() / 2 * usual;
    assert!(buffered <= BUFFERED_BYTES_MAX - 15 * CHUNK_BYTES + usual, "{buffered} bytes");
    assert!(buffered >= BUFFERED_BYTES_MAX - 17 * CHUNK_BYTES, "{buffered} bytes");
    sink.record(&trail, &clock);
    assert_eq!(sink.counts().dropped, 4);
    assert_eq!(take_all(&sink).len(), 2);
}

fn usual_bytes() -> usize {
    let sink = SpanSink::default();
    sink.record(&usual(), &Clock::start());
    sink.hand_over_all();
    sink.take(0).expect("what was recorded").bytes
}

#[test]
fn chunks_are_taken_together_up_to_a_size_and_always_at_least_one() {
    let (sink, clock) = (SpanSink::default(), Clock::start());
    for _ in 0..3 {
        sink.record(&usual(), &clock);
        sink.hand_over_all();
    }
    let bytes = usual_bytes();
    let sizes: Vec<_> = [1, 2 * bytes].map(|most| sink.take(most).map(|b| b.bytes)).into();
    assert_eq!(sizes, [Some(bytes), Some(2 * bytes)]);
    assert!(sink.take(usize::MAX).is_none());
}

#[test]
fn what_is_abandoned_is_counted_wherever_it_was() {
    let (sink, clock) = (SpanSink::default(), Clock::start());
    sink.record(&usual(), &clock);
    sink.hand_over_all();
    let batch = sink.take(usize::MAX).expect("what was recorded");
    sink.record(&usual(), &clock);
    sink.hand_over_all();
    sink.record(&trail(get("/")), &clock);
    sink.abandon();
    assert_eq!(batch.spans, 2);
    let counts = sink.counts();
    assert_eq!((counts.recorded, counts.undelivered, counts.sent), (5, 5, 0));
}

#[test]
fn a_receiver_cannot_reject_more_than_it_was_sent() {
    let (sink, clock) = (SpanSink::default(), Clock::start());
    sink.record(&usual(), &clock);
    sink.hand_over_all();
    let batch = sink.take(usize::MAX).expect("what was recorded");
    sink.settle(batch, Settled::Sent { rejected: 1_000 });
    let counts = sink.counts();
    assert_eq!((counts.sent, counts.rejected), (0, 2));
}

#[test]
fn the_buffers_of_a_batch_that_was_sent_are_used_again() {
    let (sink, clock) = (SpanSink::default(), Clock::start());
    let send = |held: &mut Vec<Bytes>| {
        sink.record(&usual(), &clock);
        sink.hand_over_all();
        let batch = sink.take(usize::MAX).expect("what was recorded");
        held.extend(batch.chunks.first().cloned());
        batch
    };
    let spare = || lock(&sink.waiting).spare.len();
    let first = send(&mut Vec::new());
    let memory = first.chunks[0].as_ptr();
    sink.settle(first, Settled::GivenUp);
    assert_eq!(spare(), 1);
    // The second buffer is new, because the first one was still on its way when it was needed.
    let (mut held, mut batches) = (Vec::new(), Vec::new());
    batches.extend([(); 2].map(|()| send(&mut Vec::new())));
    assert_eq!((spare(), batches[1].chunks[0].as_ptr()), (0, memory));
    // A transport holds this one.
    batches.push(send(&mut held));
    batches.into_iter().for_each(|batch| sink.settle(batch, Settled::GivenUp));
    assert_eq!(spare(), 2);
    let many = [(); 2 * SPARE_CHUNKS_MAX].map(|()| send(&mut Vec::new()));
    many.into_iter().for_each(|batch| sink.settle(batch, Settled::GivenUp));
    assert_eq!(spare(), SPARE_CHUNKS_MAX);
}

#[test]
fn a_request_whose_encoder_panics_leaves_no_part_of_a_span() {
    let (sink, clock) = (SpanSink::default(), Clock::start());
    let request_head = trail(get(ENCODER_PANICS)).request_head;
    let panics = Trail { request_head, ..usual() };
    for trail in [&usual(), &panics, &usual()] {
        sink.record(trail, &clock);
    }
    let counts = sink.counts();
    assert_eq!((counts.recorded, counts.encoder_panicked), (4, 2));
    assert_eq!(take_all(&sink).len(), 4);
}
