use super::SpanReader;
use crate::recording::AttemptEnd;
use curtail_otlp::Signal;
use curtail_otlp::json::{Mapping, from_protobuf};
use curtail_sim::{Recording, Scenario, SpanWriter, run_recorded};
use curtail_units::Duration;

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
