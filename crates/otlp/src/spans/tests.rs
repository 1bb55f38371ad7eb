use super::*;
use crate::attributes::Value;
use crate::error::{Fault, RefusedRow};
use crate::{Limits, Refused};
use curtail_protobuf::{bytes_field as bytes, long_message_field as message, tag, varint};

type Write<'a> = &'a dyn Fn(&mut Vec<u8>);

/// A batch with what these write in a scope of a resource.
fn batch(scope: Write<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, 1, |out| message(out, 2, scope));
    out
}

/// A span with a name and what else is written.
fn span(out: &mut Vec<u8>, name: &str, more: Write<'_>) {
    message(out, 2, |out| {
        bytes(out, 1, &[1; 16]);
        bytes(out, 2, &[2; 8]);
        bytes(out, 5, name.as_bytes());
        more(out);
    });
}

fn attribute(out: &mut Vec<u8>, field: u32, key: &[u8], value: &[u8]) {
    message(out, field, |out| {
        bytes(out, 1, key);
        message(out, 2, |out| bytes(out, 1, value));
    });
}

fn fixed64(out: &mut Vec<u8>, field: u32, number: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&number.to_le_bytes());
}

fn names<'a>(read: &Spans, batch: &'a [u8]) -> Vec<&'a str> {
    read.spans.iter().map(|span| std::str::from_utf8(span.name.of(batch)).expect("text")).collect()
}

fn decode(batch: &[u8]) -> (Spans, Refused) {
    Spans::decode(batch, &Limits::default()).expect("it is a batch")
}

#[test]
fn a_span_that_cannot_be_kept_is_left_out_with_the_reason_and_all_that_it_had() {
    let few = Limits { attributes: 2, events: 2, ..Limits::default() };
    let max = few.depth;
    let faults: [(RowFault, Write<'_>); 18] = [
        (RowFault::TraceId, &|out| bytes(out, 1, &[0; 16])),
        (RowFault::TraceId, &|out| bytes(out, 1, &[1; 15])),
        (RowFault::TraceId, &|out| bytes(out, 1, &[])),
        (RowFault::SpanId, &|out| bytes(out, 2, &[0; 8])),
        (RowFault::SpanId, &|out| bytes(out, 2, &[1; 9])),
        (RowFault::ParentId, &|out| bytes(out, 4, &[1; 7])),
        (RowFault::NotUtf8, &|out| bytes(out, 5, b"\xFF")),
        (RowFault::NotUtf8, &|out| attribute(out, 9, b"\xC0\x80", b"overlong")),
        (RowFault::NotUtf8, &|out| attribute(out, 9, b"half", b"\xE2\x82")),
        (RowFault::Time, &|out| fixed64(out, 7, 1 << 63)),
        (RowFault::Time, &|out| fixed64(out, 8, u64::MAX)),
        (RowFault::LinkId, &|out| message(out, 13, |out| bytes(out, 1, &[1; 16]))),
        (RowFault::Depth { max }, &|out| nested(out, 9, max + 1)),
        (RowFault::Depth { max }, &|out| nested(out, 9, 1_000)),
        (RowFault::Depth { max }, &|out| message(out, 11, |out| nested(out, 3, max + 1))),
        (RowFault::Depth { max }, &|out| {
            message(out, 13, |out| {
                bytes(out, 1, &[1; 16]);
                bytes(out, 2, &[2; 8]);
                nested(out, 4, max + 1);
            });
        }),
        (RowFault::Attributes { max: 2 }, &|out| {
            for _ in 0..3 {
                attribute(out, 9, b"key", b"value");
            }
        }),
        (RowFault::Events { max: 2 }, &|out| {
            for _ in 0..3 {
                message(out, 11, |out| attribute(out, 3, b"key", b"value"));
            }
        }),
    ];
    let good: Write<'_> = &|out| {
        attribute(out, 9, b"of", "größer".as_bytes());
        message(out, 11, |out| attribute(out, 3, b"key", b"value"));
    };
    for (fault, bad) in faults {
        let batch = batch(&|out| {
            span(out, "before", good);
            span(out, "bad", &|out| {
                good(out);
                bad(out);
            });
            span(out, "after", good);
        });
        let (read, rejected) = Spans::decode(&batch, &few).expect("it is a batch");
        assert_eq!(
            (rejected.count, rejected.first.map(|row| (row.number, row.fault))),
            (1, Some((2, fault)))
        );
        assert_eq!(names(&read, &batch), ["before", "after"], "{fault}");
        let left = (read.attributes.len(), read.events.len(), read.inner_attributes.len());
        assert_eq!((left, read.links.len()), ((2, 2, 2), 0), "{fault}");
        assert_eq!(read.spans[1].attributes, Slice { at: 1, len: 1 });
    }
}

#[test]
fn as_much_as_is_allowed_is_kept() {
    let limits = Limits { attributes: 3, events: 3, ..Limits::default() };
    let batch = batch(&|out| {
        span(out, "full", &|out| {
            for _ in 0..3 {
                attribute(out, 9, b"key", b"value");
                message(out, 11, |_| {});
            }
        });
    });
    let (read, rejected) = Spans::decode(&batch, &limits).expect("it is a batch");
    let span = &read.spans[0];
    assert_eq!((rejected.count, span.attributes.len, span.events.len), (0, 3, 3));
}

#[test]
fn what_lies_apart_in_a_span_belongs_together() {
    let batch = batch(&|out| {
        span(out, "mixed", &|out| {
            for nth in [b"0", b"1"] {
                message(out, 11, |out| attribute(out, 3, b"of event", nth));
                attribute(out, 9, b"of span", nth);
            }
        });
    });
    let (read, _) = decode(&batch);
    let texts = |all: &[Attribute]| -> Vec<_> {
        all.iter().map(|each| (each.key.of(&batch).to_vec(), each.value)).collect()
    };
    let of_span = texts(read.spans[0].attributes.of(&read.attributes));
    assert_eq!(of_span.len(), 2);
    assert!(of_span.iter().all(|(key, _)| key == b"of span"), "{of_span:?}");
    for (nth, event) in read.spans[0].events.of(&read.events).iter().enumerate() {
        let of_event = texts(event.attributes.of(&read.inner_attributes));
        assert_eq!((of_event.len(), &*of_event[0].0), (1, &b"of event"[..]));
        let Value::Text(text) = of_event[0].1 else { panic!("{of_event:?}") };
        assert_eq!(text.of(&batch), nth.to_string().as_bytes());
    }
}

#[test]
fn a_resource_may_stand_after_its_spans() {
    let mut batch = Vec::new();
    message(&mut batch, 1, |out| {
        message(out, 2, |out| {
            span(out, "first", &|_| {});
            message(out, 1, |out| bytes(out, 1, b"library"));
        });
        message(out, 1, |out| attribute(out, 1, b"service.name", b"shop"));
    });
    let (read, _) = decode(&batch);
    let scope = read.envelope.scopes[read.spans[0].scope as usize];
    assert_eq!(scope.name.of(&batch), b"library");
    let resource = read.envelope.resources[scope.resource as usize];
    assert_eq!(
        resource.attributes.of(&read.envelope.attributes)[0].key.of(&batch),
        b"service.name"
    );
}

#[test]
fn spans_of_a_resource_that_cannot_be_kept_are_left_out_and_others_not() {
    let mut batch = Vec::new();
    for (service, name) in [(&b"good"[..], "kept"), (b"\xFF", "left out"), (b"good", "kept too")] {
        message(&mut batch, 1, |out| {
            message(out, 2, |out| {
                span(out, name, &|_| {});
                span(out, name, &|_| {});
            });
            message(out, 1, |out| attribute(out, 1, b"service.name", service));
        });
    }
    let (read, rejected) = decode(&batch);
    assert_eq!(names(&read, &batch), ["kept", "kept", "kept too", "kept too"]);
    let (trace_id, span_id) = (u128::from_be_bytes([1; 16]), u64::from_be_bytes([2; 8]));
    let first = RefusedRow { number: 3, trace_id, span_id, fault: RowFault::Envelope };
    assert_eq!(rejected, Refused { count: 2, first: Some(first) });
}

#[test]
fn times_before_and_after_each_other_are_kept_as_they_came() {
    let batch = batch(&|out| {
        span(out, "backwards", &|out| {
            fixed64(out, 7, u64::MAX >> 1);
            fixed64(out, 8, 0);
        });
    });
    let (read, rejected) = decode(&batch);
    assert_eq!(rejected.count, 0);
    assert_eq!((read.spans[0].start_ns, read.spans[0].end_ns), (u64::MAX >> 1, 0));
}

/// A value of this number of nested lists.
fn deep(out: &mut Vec<u8>, lists: u32) {
    if lists > 0 {
        message(out, 5, |out| message(out, 1, |out| deep(out, lists - 1)));
    }
}

/// An attribute whose value is `lists` nested lists.
fn nested(out: &mut Vec<u8>, field: u32, lists: u32) {
    message(out, field, |out| message(out, 2, |out| deep(out, lists)));
}

#[test]
fn values_lie_in_each_other_as_deep_as_is_allowed() {
    let batch = batch(&|out| span(out, "deep", &|out| nested(out, 9, Limits::default().depth)));
    let (read, rejected) = decode(&batch);
    assert_eq!((read.spans.len(), rejected.count), (1, 0));
}

/// The encoder of the attributes of a resource recurses once for each nested list.
#[test]
fn of_a_resource_that_is_nested_too_deep_only_that_value_is_lost() {
    let mut batch = Vec::new();
    message(&mut batch, 1, |out| {
        message(out, 2, |out| span(out, "left out", &|_| {}));
        message(out, 1, |out| {
            nested(out, 1, 1_000);
            attribute(out, 1, b"service.name", b"shop");
        });
    });
    let (read, rejected) = decode(&batch);
    assert_eq!(rejected.first.map(|row| row.fault), Some(RowFault::Envelope));
    let values: Vec<_> = read.envelope.attributes.iter().map(|each| each.value).collect();
    assert!(matches!(values[..], [Value::Empty, Value::Text(_)]), "{values:?}");
}

#[test]
fn text_in_a_list_is_looked_at() {
    let batch = batch(&|out| {
        span(out, "list", &|out| {
            message(out, 9, |out| {
                message(out, 2, |out| {
                    message(out, 5, |out| message(out, 1, |out| bytes(out, 1, b"\xFF")))
                });
            });
        });
    });
    let rejected = decode(&batch).1;
    assert_eq!(rejected.first.map(|row| row.fault), Some(RowFault::NotUtf8));
}

#[test]
fn a_batch_is_as_long_as_it_may_be() {
    let batch = batch(&|out| span(out, "one", &|_| {}));
    let len = u32::try_from(batch.len()).expect("short");
    let limits = |batch_bytes| Limits { batch_bytes, ..Limits::default() };
    assert!(Spans::decode(&batch, &limits(len)).is_ok());
    let malformed = Spans::decode(&batch, &limits(len - 1)).expect_err("too long");
    assert_eq!(malformed.fault, Fault::Batch { len: batch.len(), max: len - 1 });
}

#[test]
fn errors_name_their_byte_and_their_message() {
    let batch = batch(&|out| {
        span(out, "one", &|out| {
            // An attribute whose value says that it is longer than it is.
            message(out, 9, |out| {
                bytes(out, 1, b"key");
                tag(out, 2, LEN);
                varint(out, 9);
                out.push(0x0A);
            });
        });
    });
    let malformed = Spans::decode(&batch, &Limits::default()).expect_err("malformed");
    let message = format!(
        "byte {}, in KeyValue: a length of 9 bytes where the message has 1 more",
        batch.len() - 1
    );
    assert_eq!(malformed.to_string(), message);
}
