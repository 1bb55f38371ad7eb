use super::SpanReader;
use crate::recording::AttemptEnd;
use curtail_otlp::Signal;
use curtail_otlp::json::{Mapping, from_protobuf};
use curtail_sim::{Recording, RequestRecord, Scenario, SpanWriter, run_recorded};
use curtail_units::{Duration, Quantile};

/// The spans of requests of a scenario, as a server stores them.
fn written(yaml: &str, requests_max: u64) -> (SpanReader, Vec<RequestRecord>) {
    let scenario = Scenario::read("service", yaml, &[]).expect("no errors");
    let mut writer = SpanWriter::new(&scenario.variants[0], &scenario.arms[0], 1);
    let (mut reader, mut records) = (SpanReader::new(), Vec::new());
    let record = &mut |_: &_, _: &_, record: RequestRecord| {
        writer.write(&record);
        records.push(record);
        reader.add(&writer.take_batch()).expect("a batch");
    };
    run_recorded(&scenario, 1, |_| {}, Recording { requests_max, record });
    records.sort_unstable_by_key(|record| record.arrived);
    (reader, records)
}

/// Queues are long at this load: a time in service that includes the queue would be twice as long.
#[test]
fn the_time_in_service_is_without_the_queue() {
    let yaml = "model:
  service: {shape: exponential, mean: 10ms}
  arrivals: {load_ratio: 0.8}
  replicas: 2
arms: {plain: {balance: random, hedge: false, retry: false}}
requests_max: 4000
";
    let scenario = Scenario::read("service", yaml, &[]).expect("no errors");
    let mut writer = SpanWriter::new(&scenario.variants[0], &scenario.arms[0], 1);
    let (mut waited, mut served) = (Duration::ZERO, Duration::ZERO);
    let recording = Recording {
        requests_max: 2_000,
        record: &mut |_, _, record| {
            for attempt in record.calls.iter().flat_map(|call| &call.attempts) {
                let (started, left) = attempt.started.zip(attempt.left).expect("it was executed");
                served = served + left.since(started);
                waited = waited + started.since(attempt.arrived.expect("it arrived"));
            }
            writer.write(&record);
        },
    };
    run_recorded(&scenario, 1, |_| {}, recording);
    assert!(waited > served, "{waited} {served}");
    let json = from_protobuf(&writer.take_batch(), Signal::Traces, Mapping::Otlp).expect("OTLP");
    let mut reader = SpanReader::new();
    reader.read_line(&json.to_string()).expect("a batch");
    let read = reader.finish(None).expect("one upstream");
    assert!(read.attempts.iter().all(|attempt| attempt.end == AttemptEnd::Responded));
    let services = read.attempts.iter().map(|attempt| attempt.service.expect("a server's span"));
    assert_eq!(services.fold(Duration::ZERO, |sum, service| sum + service), served);
}

#[test]
fn requests_that_call_several_shards_are_a_fan_out() {
    let yaml = "model:
  service: {shape: exponential, mean: 10ms}
  overhead: {shape: exponential, mean: 3ms}
  arrivals: {requests_per_second: 30}
  fan_out: 4
  shards: 4
  replicas: 2
arms: {plain: {balance: random, hedge: false, retry: false}}
requests_max: 1000
";
    for wanted in [None, Some("shard-*")] {
        let (reader, records) = written(yaml, 300);
        let read = reader.finish(wanted).expect("spans of the proxy");
        let fan_out = read.fan_out.as_ref().expect("several upstreams");
        assert_eq!((fan_out.shards, fan_out.calls, fan_out.requests.len()), (4, 4, records.len()));
        assert_eq!((read.requests.len(), read.replicas.len()), (4 * records.len(), 8));
        for (request, record) in fan_out.requests.iter().zip(&records) {
            let lasted = record.ended.since(record.arrived);
            assert_eq!(request.latency, Some(lasted));
            let slowest = record.calls.iter().map(|call| call.ended.since(call.began)).max();
            assert_eq!(request.overhead + slowest.expect("four calls"), lasted);
        }
        let quantile = read.latency_at(Quantile::P50).expect("requests");
        let mut latencies: Vec<Duration> =
            records.iter().map(|record| record.ended.since(record.arrived)).collect();
        latencies.sort_unstable();
        assert_eq!(quantile, latencies[latencies.len() / 2 - 1]);
    }
    // One shard alone is an upstream as any other.
    let (reader, records) = written(yaml, 300);
    let read = reader.finish(Some("shard-2")).expect("spans of the proxy");
    assert_eq!((read.fan_out, read.requests.len()), (None, records.len()));
}
