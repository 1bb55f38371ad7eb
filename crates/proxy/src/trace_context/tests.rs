use super::{TraceContext, entropy_rng, new_span_id};
use curtail_http::head::{Fields, Known};
use curtail_units::Rng;

const SEED: u64 = 20;

const TRACE: &str = "12345678901234567890123456789012";
const PARENT: &str = "1234567890123456";

fn context_of(traceparents: &[&str]) -> TraceContext {
    let mut fields = Fields::default();
    for value in traceparents {
        fields.push(Known::Traceparent, value.as_bytes());
    }
    TraceContext::from_fields(&fields, &mut Rng::new(SEED))
}

fn is_continued(context: &TraceContext) -> bool {
    let trace_id = 0x1234_5678_9012_3456_7890_1234_5678_9012_u128.to_be_bytes();
    let parent = 0x1234_5678_9012_3456_u64.to_be_bytes();
    (context.trace_id, context.parent) == (trace_id, Some(parent))
}

/// The cases of the validation suite that the W3C publishes with the recommendation.
#[test]
fn traceparents_that_are_valid_are_continued() {
    for (value, sampled, random) in [
        (format!("00-{TRACE}-{PARENT}-00"), false, false),
        (format!("00-{TRACE}-{PARENT}-01"), true, false),
        (format!("00-{TRACE}-{PARENT}-02"), false, true),
        (format!("00-{TRACE}-{PARENT}-03"), true, true),
        (format!("00-{TRACE}-{PARENT}-fc"), false, false),
        (format!("cc-{TRACE}-{PARENT}-01"), true, false),
        (format!("cc-{TRACE}-{PARENT}-01-"), true, false),
        (format!("cc-{TRACE}-{PARENT}-01-what-the-future-will-be-like"), true, false),
        (format!("01-{TRACE}-{PARENT}-ff"), true, true),
        (format!("fe-{TRACE}-{PARENT}-01"), true, false),
    ] {
        let context = context_of(&[&value]);
        assert!(is_continued(&context), "{value}: {context:?}");
        assert_eq!((context.sampled, context.random), (sampled, random), "{value}");
    }
}

#[test]
fn traceparents_that_are_not_valid_begin_a_new_sampled_trace() {
    for value in [
        String::new(),
        format!("ff-{TRACE}-{PARENT}-01"),
        format!("FF-{TRACE}-{PARENT}-01"),
        format!("CC-{TRACE}-{PARENT}-01"),
        format!(".0-{TRACE}-{PARENT}-01"),
        format!("0.-{TRACE}-{PARENT}-01"),
        format!("000-{TRACE}-{PARENT}-01"),
        format!("0000-{TRACE}-{PARENT}-01"),
        format!("0-{TRACE}-{PARENT}-01"),
        format!("00-{}-{PARENT}-01", "0".repeat(32)),
        format!("00-.{}-{PARENT}-01", &TRACE[1..]),
        format!("00-{}.-{PARENT}-01", &TRACE[1..]),
        format!("00-{TRACE}1-{PARENT}-01"),
        format!("00-{}-{PARENT}-01", &TRACE[1..]),
        format!("00-{}-{PARENT}-01", "ABCDEF78901234567890123456789012"),
        format!("00-{TRACE}-{}-01", "0".repeat(16)),
        format!("00-{TRACE}-.{}-01", &PARENT[1..]),
        format!("00-{TRACE}-{}.-01", &PARENT[1..]),
        format!("00-{TRACE}-{PARENT}1-01"),
        format!("00-{TRACE}-{}-01", &PARENT[1..]),
        format!("00-{TRACE}-{PARENT}-.0"),
        format!("00-{TRACE}-{PARENT}-0."),
        format!("00-{TRACE}-{PARENT}-0A"),
        format!("00-{TRACE}-{PARENT}-001"),
        format!("00-{TRACE}-{PARENT}-1"),
        format!("00-{TRACE}-{PARENT}-01-"),
        format!("00-{TRACE}-{PARENT}-01-what-the-future-will-be-like"),
        format!("cc-{TRACE}-{PARENT}-01.what-the-future-will-be-like"),
        format!("00_{TRACE}-{PARENT}-01"),
        format!("00-{TRACE}_{PARENT}-01"),
        format!("00-{TRACE}-{PARENT}_01"),
    ] {
        let context = context_of(&[&value]);
        assert_eq!(context.parent, None, "{value:?}");
        assert!(!is_continued(&context), "{value:?}");
        assert!(context.sampled && context.random, "{value:?}");
        assert_ne!(context.trace_id, [0; 16]);
    }
}

#[test]
fn of_two_traceparents_neither_is_believed() {
    let (first, second) = (format!("00-{TRACE}-{PARENT}-01"), format!("00-{TRACE}-{PARENT}-00"));
    assert_eq!(context_of(&[&first, &second]).parent, None);
    assert_eq!(context_of(&[&first, &first]).parent, None);
}

#[test]
fn every_truncation_is_refused() {
    let whole = format!("00-{TRACE}-{PARENT}-01");
    for len in 0..whole.len() {
        assert_eq!(context_of(&[&whole[..len]]).parent, None, "{len} bytes");
    }
}

#[test]
fn what_is_sent_on_names_the_same_trace_and_the_span_of_the_attempt() {
    let context = context_of(&[&format!("cc-{TRACE}-{PARENT}-ff-more")]);
    let attempt = 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes();
    let want = format!("00-{TRACE}-00f067aa0ba902b7-03");
    assert_eq!(context.child_header(attempt), want.as_bytes());
    let unsampled = context_of(&[&format!("00-{TRACE}-{PARENT}-00")]);
    let want = format!("00-{TRACE}-00f067aa0ba902b7-00");
    assert_eq!(unsampled.child_header(attempt), want.as_bytes());
}

#[test]
fn the_state_of_a_trace_is_kept_and_that_of_another_is_not() {
    let states = ["rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE,vendor@x=  odd;;"];
    for (traceparent, kept) in [(format!("00-{TRACE}-{PARENT}-01"), true), (String::new(), false)] {
        let context = context_of(&[&traceparent]);
        let mut fields = Fields::default();
        for state in states {
            fields.push(Known::Tracestate, state.as_bytes());
        }
        context.clean(&mut fields);
        let sent: Vec<_> = fields.all(Known::Tracestate).collect();
        let want = states.map(str::as_bytes);
        assert_eq!(sent, if kept { &want[..] } else { &[] }, "{traceparent:?}");
    }
}

#[test]
fn a_new_trace_is_continued_by_the_receiver_of_our_header() {
    let mut rng = Rng::new(SEED);
    let ours = TraceContext::from_fields(&Fields::default(), &mut rng);
    let attempt = new_span_id(&mut rng);
    let mut fields = Fields::default();
    fields.push(Known::Traceparent, &ours.child_header(attempt));
    let theirs = TraceContext::from_fields(&fields, &mut rng);
    assert_eq!((theirs.trace_id, theirs.parent), (ours.trace_id, Some(attempt)));
    assert_eq!((theirs.sampled, theirs.random), (true, true));
    assert_ne!(theirs.span_id, ours.span_id);
}

#[test]
fn generators_seeded_by_entropy_differ() {
    assert_ne!(entropy_rng(), entropy_rng());
}
