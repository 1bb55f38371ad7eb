mod collector;

use super::super::decoded::{self, Any};
use super::super::sample::usual;
use super::super::{CHUNK_BYTES, SpanCounts, SpanSink};
use super::{Exporter, PACE, Pace};
use crate::config::SpansProtocol;
use collector::{Arrived, Collector, ScriptedResponse};
use curtail_http::clock::Clock;
use curtail_units::Duration;
use http::Version;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

const BOTH: [SpansProtocol; 2] = [SpansProtocol::Http, SpansProtocol::Grpc];

/// So long that a test in which something waits for it fails.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// Nothing happens by itself but what a test asks for.
const STILL: Pace = Pace { every: NEVER, ..PACE };

/// Everything happens at once.
const EAGER: Pace =
    Pace { every: Duration::from_ms(1), backoff: Duration::from_ms(1), tries_max: 10_000, ..PACE };

fn export(collector: &Collector, pace: Pace) -> (Arc<SpanSink>, Exporter) {
    let sink = Arc::new(SpanSink::default());
    let started = Exporter::start_at_pace(&collector.config, Arc::clone(&sink), pace);
    (sink, started.expect("no TLS, no trouble"))
}

fn record(sink: &SpanSink, requests: usize) {
    let (trail, clock) = (usual(), Clock::start());
    (0..requests).for_each(|_| sink.record(&trail, &clock));
}

fn soon() -> Instant {
    Instant::now() + std::time::Duration::from_secs(60)
}

fn message(arrived: &Arrived, protocol: SpansProtocol) -> &[u8] {
    match protocol {
        SpansProtocol::Http => &arrived.body,
        SpansProtocol::Grpc => {
            let (prefix, message) = arrived.body.split_at(5);
            let len = u32::try_from(message.len()).expect("a length").to_be_bytes();
            assert_eq!(prefix, [&[0][..], &len].concat());
            message
        }
    }
}

/// Waits until the counts are as `wanted`; the exporter counts after it has read a response.
async fn counted(sink: &SpanSink, wanted: impl Fn(SpanCounts) -> bool) -> SpanCounts {
    let counted = async {
        while !wanted(sink.counts()) {
            tokio::task::yield_now().await;
        }
        sink.counts()
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(60), counted).await;
    waited.unwrap_or_else(|_| panic!("after a minute: {:?}", sink.counts()))
}

#[tokio::test]
async fn a_receiver_gets_what_was_recorded_and_who_sent_it() {
    for protocol in BOTH {
        let mut collector = Collector::new(protocol, []);
        let (sink, exporter) = export(&collector, STILL);
        record(&sink, 3);
        exporter.flush(soon()).await;
        let arrived = collector.next().await;
        let request = decoded::request(message(&arrived, protocol));
        let resource: Vec<_> = request.resource.iter().map(|(key, _)| &**key).collect();
        assert_eq!(
            resource,
            ["service.name", "service.version", "service.instance.id", "process.pid"]
        );
        assert_eq!(request.resource[0].1, Any::Text("tested".to_owned()));
        assert_eq!(request.scope.0, "curtail-proxy");
        assert_eq!(request.spans.len(), 6);
        assert!(collector.rest().is_empty());
        let counts = sink.counts();
        assert_eq!((counts.recorded, counts.sent, counts.exports_failed), (6, 6, 0));
    }
}

#[tokio::test]
async fn each_transport_is_spoken_as_its_receivers_expect() {
    let mut collector = Collector::new(SpansProtocol::Http, []);
    let (sink, exporter) = export(&collector, STILL);
    record(&sink, 1);
    exporter.flush(soon()).await;
    let arrived = collector.next().await;
    assert_eq!((&*arrived.uri, arrived.version), ("/v1/traces", Version::HTTP_11));
    assert_eq!(arrived.headers["content-type"], "application/x-protobuf");
    assert_eq!(arrived.headers["host"], collector.config.endpoint.authority());
    assert_eq!(arrived.headers["content-length"], arrived.body.len().to_string());

    let mut collector = Collector::new(SpansProtocol::Grpc, []);
    let (sink, exporter) = export(&collector, STILL);
    record(&sink, 1);
    exporter.flush(soon()).await;
    let arrived = collector.next().await;
    let method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    assert_eq!(arrived.uri, format!("{}{method}", collector.config.endpoint));
    assert_eq!(arrived.version, Version::HTTP_2);
    assert_eq!(arrived.headers["content-type"], "application/grpc");
    assert_eq!(arrived.headers["te"], "trailers");
}

#[tokio::test]
async fn a_receiver_gets_the_tenant_and_the_present_token() {
    let file = std::env::temp_dir().join(format!("curtail-{}-token", std::process::id()));
    for protocol in BOTH {
        std::fs::write(&file, "first\n").expect("written");
        let rejection = match protocol {
            SpansProtocol::Http => ScriptedResponse::Status(401, None),
            SpansProtocol::Grpc => ScriptedResponse::GrpcStatus("16"),
        };
        let mut collector = Collector::new(protocol, [rejection]);
        collector.config.token_file = Some(file.clone());
        collector.config.tenant = Some("shop".to_owned());
        let (lines, _guard) = log();
        let (sink, exporter) = export(&collector, EAGER);
        record(&sink, 1);
        let arrived = collector.next().await;
        assert_eq!(arrived.headers["authorization"], "Bearer first");
        assert_eq!(arrived.headers["x-scope-orgid"], "shop");
        counted(&sink, |counts| counts.rejected == 2).await;
        let log = String::from_utf8(lines.lock().expect("unpoisoned").clone()).expect("text");
        assert!(log.contains("it does not accept the token of"), "{log}");

        std::fs::write(&file, "second").expect("written");
        record(&sink, 1);
        assert_eq!(collector.next().await.headers["authorization"], "Bearer second");
        exporter.flush(soon()).await;
        assert_eq!(sink.counts().sent, 2);
    }
    std::fs::remove_file(&file).expect("it was there");
}

#[tokio::test]
async fn a_batch_that_may_be_sent_again_is_sent_again_as_it_was() {
    let cases = [
        (SpansProtocol::Http, ScriptedResponse::Status(429, None)),
        (SpansProtocol::Http, ScriptedResponse::Status(502, None)),
        (SpansProtocol::Http, ScriptedResponse::Status(503, None)),
        (SpansProtocol::Http, ScriptedResponse::Status(504, None)),
        (SpansProtocol::Grpc, ScriptedResponse::GrpcStatus("14")),
        (SpansProtocol::Grpc, ScriptedResponse::GrpcStatus("4")),
        (SpansProtocol::Grpc, ScriptedResponse::Status(503, None)),
    ];
    for (protocol, response) in cases {
        let mut collector = Collector::new(protocol, [response.clone(), response.clone()]);
        let (sink, exporter) = export(&collector, EAGER);
        record(&sink, 1);
        let bodies = [collector.next().await.body, collector.next().await.body];
        let taken = collector.next().await.body;
        assert!(bodies.iter().all(|body| *body == taken), "{response:?}");
        let counts = counted(&sink, |counts| counts.sent == 2).await;
        assert_eq!((counts.exports_failed, counts.undelivered), (2, 0), "{response:?}");
        exporter.flush(soon()).await;
        assert!(collector.rest().is_empty(), "{response:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_asks_for_a_time_is_given_that_time() {
    // The exporter's own backoff would never end: only the receiver's word makes it try again.
    let pace = Pace { backoff: NEVER, backoff_max: NEVER, ..EAGER };
    let mut collector =
        Collector::new(SpansProtocol::Http, [ScriptedResponse::Status(429, Some("0"))]);
    let (sink, exporter) = export(&collector, pace);
    record(&sink, 1);
    collector.next().await;
    collector.next().await;
    counted(&sink, |counts| counts.sent == 2).await;
    exporter.flush(soon()).await;

    // And one that asks for too much is not obeyed beyond the bound.
    let pace = Pace { backoff_max: Duration::from_ms(1), ..EAGER };
    let mut collector =
        Collector::new(SpansProtocol::Http, [ScriptedResponse::Status(503, Some("86400"))]);
    let (sink, exporter) = export(&collector, pace);
    record(&sink, 1);
    collector.next().await;
    collector.next().await;
    counted(&sink, |counts| counts.sent == 2).await;
    exporter.flush(soon()).await;
}

#[tokio::test]
async fn a_rejected_batch_is_dropped_and_the_next_one_sent() {
    let cases = [
        (SpansProtocol::Http, ScriptedResponse::Status(400, None)),
        (SpansProtocol::Http, ScriptedResponse::Status(401, None)),
        (SpansProtocol::Http, ScriptedResponse::Status(404, None)),
        (SpansProtocol::Http, ScriptedResponse::Status(301, None)),
        (SpansProtocol::Grpc, ScriptedResponse::GrpcStatus("3")),
        (SpansProtocol::Grpc, ScriptedResponse::GrpcStatus("12")),
        (SpansProtocol::Grpc, ScriptedResponse::Status(404, None)),
    ];
    for (protocol, response) in cases {
        let mut collector = Collector::new(protocol, [response.clone()]);
        let (sink, exporter) = export(&collector, EAGER);
        record(&sink, 1);
        collector.next().await;
        counted(&sink, |counts| counts.exports_failed == 1).await;
        record(&sink, 2);
        exporter.flush(soon()).await;
        let counts = sink.counts();
        assert_eq!((counts.sent, counts.rejected), (4, 2), "{response:?}");
        assert_eq!((counts.exports_failed, counts.undelivered), (1, 0), "{response:?}");
    }
}

#[tokio::test]
async fn spans_that_the_receiver_would_not_have_are_counted_apart() {
    for protocol in BOTH {
        let mut collector = Collector::new(protocol, [ScriptedResponse::TakenBut(3)]);
        let (sink, exporter) = export(&collector, STILL);
        record(&sink, 5);
        exporter.flush(soon()).await;
        collector.next().await;
        let counts = sink.counts();
        assert_eq!((counts.sent, counts.rejected, counts.exports_failed), (7, 3, 0));
    }
}

#[tokio::test]
async fn a_full_buffer_is_sent_at_once_and_much_in_several_batches() {
    for protocol in BOTH {
        let mut collector = Collector::new(protocol, []);
        let (sink, exporter) = export(&collector, STILL);
        record(&sink, 1);
        exporter.flush(soon()).await;
        let one = collector.next().await.body.len();
        let (sink, exporter) = export(&collector, STILL);
        // Nobody asks for it to be sent but the buffer that is full.
        record(&sink, 2 * CHUNK_BYTES / one);
        let first = collector.next().await;
        assert!(first.body.len() > CHUNK_BYTES);

        let pace = Pace { batch_bytes: 3 * CHUNK_BYTES, ..STILL };
        let (more, other) = export(&collector, pace);
        record(&more, 12 * CHUNK_BYTES / one);
        other.flush(soon()).await;
        let batches = collector.rest();
        assert!(batches.len() >= 5, "{} batches", batches.len());
        // Two full buffers at once, and not three.
        let longest = batches.iter().map(|batch| batch.body.len()).max().expect("some");
        assert!(longest > 2 * CHUNK_BYTES, "{longest} bytes");
        assert!(longest <= 3 * CHUNK_BYTES + one, "{longest} bytes");
        let spans =
            |arrived: &Arrived| decoded::request(message(arrived, protocol)).spans.len() as u64;
        exporter.flush(soon()).await;
        let all: u64 = batches.iter().chain(&[first]).chain(&collector.rest()).map(spans).sum();
        assert_eq!(all, sink.counts().recorded + more.counts().recorded);
        assert_eq!(all, sink.counts().sent + more.counts().sent);
    }
}

#[tokio::test]
async fn a_connection_that_the_receiver_closes_is_made_anew() {
    let mut collector =
        Collector::new(SpansProtocol::Http, vec![ScriptedResponse::TakenAndClosed; 3]);
    let (sink, exporter) = export(&collector, EAGER);
    for _ in 0..4 {
        record(&sink, 1);
        collector.next().await;
    }
    let counts = counted(&sink, |counts| counts.sent == 8).await;
    assert_eq!(counts.exports_failed, 0);
    exporter.flush(soon()).await;
}

#[tokio::test]
async fn a_silent_receiver_gets_a_retry_on_a_new_connection() {
    for protocol in BOTH {
        let mut collector = Collector::new(protocol, [ScriptedResponse::Silence]);
        let (sink, exporter) = export(&collector, Pace { timeout: Duration::from_ms(50), ..EAGER });
        record(&sink, 1);
        collector.next().await;
        collector.next().await;
        let counts = counted(&sink, |counts| counts.sent == 2).await;
        assert!(counts.exports_failed >= 1, "{counts:?}");
        exporter.flush(soon()).await;
    }
}

/// Keeps a log going.
struct LogGuard {
    _this_thread: tracing::subscriber::DefaultGuard,
    /// While there is only one subscriber, a line that another thread is the first to log, to none, is
    /// taken to be of no interest to anybody.
    _second: tracing::Dispatch,
}

/// What the log says while the guard lives, on this thread.
fn log() -> (Arc<Mutex<Vec<u8>>>, LogGuard) {
    #[derive(Clone)]
    struct Into(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Into {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("unpoisoned").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let into = Into(Arc::clone(&lines));
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || into.clone())
        .finish();
    let this_thread = tracing::subscriber::set_default(subscriber);
    (lines, LogGuard { _this_thread: this_thread, _second: second })
}

#[tokio::test]
async fn a_receiver_that_goes_and_comes_back_is_one_line_in_the_log_each() {
    for protocol in BOTH {
        let (lines, _guard) = log();
        let mut collector = Collector::away(protocol, []);
        let (sink, exporter) = export(&collector, EAGER);
        record(&sink, 1);
        counted(&sink, |counts| counts.exports_failed >= 3).await;
        assert_eq!(sink.counts().sent, 0);
        collector.come_back();
        record(&sink, 1);
        counted(&sink, |counts| counts.sent == 4).await;
        exporter.flush(soon()).await;
        let log = String::from_utf8(lines.lock().expect("unpoisoned").clone()).expect("text");
        let lines: Vec<_> = log.lines().map(str::trim).collect();
        let endpoint = &collector.config.endpoint;
        let [gone, back] = lines[..] else { panic!("{log}") };
        assert!(gone.starts_with("WARN the receiver is unavailable"), "{gone}");
        assert!(gone.contains(&endpoint.to_string()) && gone.contains("not connected"), "{gone}");
        assert!(back.starts_with("INFO the receiver accepts spans again"), "{back}");
        assert_eq!(sink.counts().undelivered, 0);
    }
}

#[tokio::test]
async fn a_receiver_that_rejects_spans_is_one_line_in_the_log_with_its_status() {
    for (protocol, status, why) in [
        (
            SpansProtocol::Http,
            ScriptedResponse::Status(401, None),
            "401 Unauthorized: name the file of a token with spans.token_file",
        ),
        (SpansProtocol::Grpc, ScriptedResponse::GrpcStatus("16"), "gRPC status 16"),
    ] {
        let (lines, _guard) = log();
        let mut collector = Collector::new(protocol, [status.clone(), status]);
        let (sink, exporter) = export(&collector, EAGER);
        for rejected in [2, 4] {
            record(&sink, 1);
            collector.next().await;
            counted(&sink, |counts| counts.rejected == rejected).await;
        }
        record(&sink, 1);
        exporter.flush(soon()).await;
        let log = String::from_utf8(lines.lock().expect("unpoisoned").clone()).expect("text");
        let lines: Vec<_> = log.lines().map(str::trim).collect();
        let [rejected, taken] = lines[..] else { panic!("{log}") };
        assert!(
            rejected.starts_with("WARN the receiver rejects spans; they are dropped"),
            "{rejected}"
        );
        assert!(rejected.contains(why), "{rejected}");
        assert!(taken.starts_with("INFO the receiver accepts spans again"), "{taken}");
    }
}

#[tokio::test]
async fn a_batch_is_given_up_after_its_tries_and_nothing_is_left_when_the_deadline_is_over() {
    let collector = Collector::away(SpansProtocol::Http, []);
    let (sink, exporter) = export(&collector, Pace { tries_max: 3, ..EAGER });
    record(&sink, 1);
    let counts = counted(&sink, |counts| counts.undelivered == 2).await;
    assert_eq!(counts.exports_failed, 3);
    drop(exporter);

    // Its tries would go on without end.
    let (sink, exporter) = export(&collector, EAGER);
    record(&sink, 5);
    exporter.flush(Instant::now()).await;
    let counts = sink.counts();
    assert_eq!((counts.recorded, counts.undelivered, counts.sent), (10, 10, 0));
}

#[tokio::test]
async fn nothing_waits_for_a_receiver_that_does_not_response() {
    let mut collector = Collector::new(SpansProtocol::Http, [ScriptedResponse::Silence]);
    let (sink, exporter) = export(&collector, EAGER);
    record(&sink, 1);
    collector.next().await;
    while sink.counts().dropped == 0 {
        record(&sink, 1_000);
    }
    exporter.flush(Instant::now()).await;
    let counts = sink.counts();
    assert_eq!(counts.undelivered, counts.recorded);
    assert_eq!(counts.sent, 0);
}
