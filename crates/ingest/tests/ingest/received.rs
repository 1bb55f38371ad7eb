//! Every signal is received in every format, compression and version of HTTP.

use crate::client::{GRPC_TRACES, TRACES, compressed, framed, post, send};
use crate::receiver::Receiver;
use crate::run;
use curtail_metrics::Instrument as _;
use curtail_otlp::{Decoded, Limits, Signal, json};
use http::{StatusCode, Version};

const GOLDEN: [(Signal, &str, &str, &[u8], &str); 3] = [
    (
        Signal::Traces,
        TRACES,
        GRPC_TRACES,
        include_bytes!("../../../otlp/tests/golden/traces.pb"),
        include_str!("../../../otlp/tests/golden/traces.json"),
    ),
    (
        Signal::Logs,
        "/v1/logs",
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        include_bytes!("../../../otlp/tests/golden/logs.pb"),
        include_str!("../../../otlp/tests/golden/logs.json"),
    ),
    (
        Signal::Metrics,
        "/v1/metrics",
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        include_bytes!("../../../otlp/tests/golden/metrics.pb"),
        include_str!("../../../otlp/tests/golden/metrics.json"),
    ),
];

/// The compressions of the Collector's exporters, over HTTP and gRPC.
const COMPRESSIONS: [&str; 7] = ["identity", "gzip", "zstd", "deflate", "zlib", "snappy", "lz4"];

/// Whether the rows are those of the batch.
fn are_of(rows: &Decoded, signal: Signal, batch: &[u8]) -> bool {
    let (read, _) = Decoded::of(signal, batch, &Limits::default()).expect("a good batch");
    // One of the values is no number, which is not equal to itself.
    format!("{rows:?}") == format!("{read:?}")
}

#[test]
fn every_signal_arrives_in_every_form_and_packing() {
    run(async {
        let receiver = Receiver::start(|_| {});
        let mut sent = 0;
        for (signal, path, grpc, batch, json) in GOLDEN {
            for encoding in COMPRESSIONS {
                for (content_type, body, versions) in [
                    ("application/x-protobuf", batch, &[Version::HTTP_11, Version::HTTP_2][..]),
                    ("application/json", json.as_bytes(), &[Version::HTTP_11, Version::HTTP_2]),
                    ("application/grpc", batch, &[Version::HTTP_2]),
                ] {
                    for &version in versions {
                        let is_grpc = content_type == "application/grpc";
                        let mut body = compressed(encoding, body);
                        let head = if is_grpc {
                            body = framed(&body, encoding != "identity");
                            post(grpc, content_type).header("grpc-encoding", encoding)
                        } else {
                            post(path, content_type).header("content-encoding", encoding)
                        };
                        let tenant = format!("tenant-{sent}");
                        let head = head.header("x-scope-orgid", &tenant);
                        let response = send(receiver.address(), version, head, body).await;
                        let context =
                            format!("{signal:?}, {content_type}, {encoding}: {response:?}");
                        assert_eq!(response.status, StatusCode::OK, "{context}");
                        assert_eq!(response.get("content-type"), Some(content_type));
                        let whole: &[u8] = match content_type {
                            "application/json" => b"{}",
                            "application/grpc" => &[0; 5],
                            _ => b"",
                        };
                        assert_eq!(response.body, whole, "{context}");
                        assert_eq!(
                            response.get("grpc-status"),
                            is_grpc.then_some("0"),
                            "{context}"
                        );
                        let taken = receiver.taken();
                        let [taken] = &*taken else { panic!("{context}") };
                        assert_eq!(
                            (taken.record.signal, &*taken.record.tenant),
                            (signal, &*tenant)
                        );
                        assert!(are_of(&taken.rows, signal, &taken.record.batch), "{context}");
                        if content_type != "application/json" {
                            assert_eq!(taken.record.batch, batch, "{context}");
                        }
                        sent += 1;
                        let logged = receiver.logged();
                        assert_eq!((logged.len(), logged.last()), (sent, Some(&taken.record)));
                    }
                }
            }
        }
        assert_eq!(sent, 3 * COMPRESSIONS.len() * 5);
        let metrics = &receiver.metrics;
        assert_eq!(receiver.metrics.batch_counts(), (sent as u64, 0));
        assert_eq!(metrics.acknowledged.snapshot().count(), sent as u64);
        assert!(metrics.rows.sum() > 45 && metrics.bytes.sum() > 100_000);
    });
}

#[test]
fn long_batches_arrive_as_short_ones_do() {
    run(async {
        let receiver = Receiver::start(|_| {});
        let (signal, path, grpc, one, _) = GOLDEN[0];
        // Several messages of this kind, one after the other, are one.
        let batch = one.repeat((2 << 20) / one.len());
        for encoding in COMPRESSIONS {
            for (version, is_grpc) in [(Version::HTTP_11, false), (Version::HTTP_2, true)] {
                let mut body = compressed(encoding, &batch);
                let head = if is_grpc {
                    body = framed(&body, encoding != "identity");
                    post(grpc, "application/grpc").header("grpc-encoding", encoding)
                } else {
                    post(path, "application/x-protobuf").header("content-encoding", encoding)
                };
                // For another tenant it is another batch.
                let head = head.header("x-scope-orgid", format!("{encoding}-{is_grpc}"));
                let response = send(receiver.address(), version, head, body).await;
                assert_eq!(response.status, StatusCode::OK, "{encoding}: {response:?}");
                let taken = receiver.taken();
                let [taken] = &*taken else { panic!("{encoding}: {response:?}") };
                assert!(taken.record.batch == batch, "{encoding}");
                assert!(are_of(&taken.rows, signal, &batch), "{encoding}");
            }
        }
    });
}

#[test]
fn rows_that_cannot_be_kept_are_counted_in_the_response_and_others_kept() {
    run(async {
        let receiver = Receiver::start(|_| {});
        let span = r#"{"traceId":"00000000000000000000000000000001","spanId":"0000000000000002"}"#;
        let bad = r#"{"traceId":"","spanId":"0000000000000002"}"#;
        let json = format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{span},{bad},{span}]}}]}}]}}"#
        );
        let head = post(TRACES, "application/json");
        let response = send(receiver.address(), Version::HTTP_11, head, json).await;
        assert_eq!(response.status, StatusCode::OK);
        let message = "1 rejected; the first is number 2 of the batch, span 0000000000000002: its trace ID is not 16 bytes, \
                    or zero";
        let want =
            format!(r#"{{"partialSuccess":{{"errorMessage":"{message}","rejectedSpans":"1"}}}}"#);
        assert_eq!(response.body, want);
        assert_eq!(receiver.taken()[0].rows.len(), 2);
        let metrics = &receiver.metrics;
        assert_eq!((metrics.rows.sum(), metrics.rows_rejected.read()), (2, 1));
    });
}

#[test]
fn a_span_with_a_value_nested_too_deep_costs_only_itself() {
    run(async {
        let receiver = Receiver::start(|_| {});
        let (ids, lists) = (r#""traceId":"00000000000000000000000000000001","spanId""#, 17);
        let deep = r#"{"arrayValue":{"values":["#.repeat(lists) + &"]}}".repeat(lists);
        let spans = format!(
            r#"{{{ids}:"0000000000000002"}},
               {{{ids}:"0000000000000003","attributes":[{{"key":"deep","value":{deep}}}]}}"#
        );
        let json = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#);
        let protobuf = json::to_protobuf(json.as_bytes(), Signal::Traces, &Limits::default());
        let protobuf = protobuf.expect("a batch");
        let why = "1 rejected; the first is number 2 of the batch, span 0000000000000003, trace \
                   00000000000000000000000000000001: a value with lists or maps nested more than 16 deep";
        for (version, head, body) in [
            (Version::HTTP_11, post(TRACES, "application/json"), json.into_bytes()),
            (Version::HTTP_11, post(TRACES, "application/x-protobuf"), protobuf.clone()),
            (Version::HTTP_2, post(GRPC_TRACES, "application/grpc"), framed(&protobuf, false)),
        ] {
            let response = send(receiver.address(), version, head, body).await;
            assert_eq!(response.status, StatusCode::OK, "{response:?}");
            assert!(response.get("grpc-status").is_none_or(|status| status == "0"), "{response:?}");
            assert!(String::from_utf8_lossy(&response.body).contains(why), "{response:?}");
        }
        // The same rows each time.
        let metrics = &receiver.metrics;
        assert_eq!((metrics.rows.sum(), metrics.rows_rejected.read()), (1, 3));
    });
}

#[test]
fn a_batch_of_nothing_is_taken_and_not_written() {
    run(async {
        let receiver = Receiver::start(|_| {});
        for (content_type, body) in
            [("application/json", &b"{}"[..]), ("application/x-protobuf", b"")]
        {
            let head = post(TRACES, content_type);
            let response = send(receiver.address(), Version::HTTP_11, head, body).await;
            assert_eq!(response.status, StatusCode::OK, "{response:?}");
        }
        assert_eq!(receiver.logged().len(), 0);
    });
}
