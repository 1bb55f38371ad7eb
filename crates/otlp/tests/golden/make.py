#!/usr/bin/env python3
"""Writes the golden batches beside this file with OpenTelemetry's own classes: every field of OTLP, set.

    pip install opentelemetry-proto==1.45.2 && crates/otlp/tests/golden/make.py

Each batch is written twice: as protobuf (.pb), and as JSON by protobuf's own mapping (.json), with IDs turned from
base64 into hexadecimal digits, which is where OTLP departs from it.
"""

import base64
import json
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

START = 1_750_000_000_123_456_789
IDS = {"traceId", "spanId", "parentSpanId"}


def attribute(key, **value):
    return KeyValue(key=key, value=AnyValue(**value))


def attributes(of):
    """One of each kind of value."""
    inner = AnyValue(kvlist_value={"values": [attribute("in", int_value=-1), attribute("deep", array_value={})]})
    return [
        attribute("of", string_value=of),
        attribute("text", string_value="größer “quoted” \\ \n \u0001"),
        attribute("true", bool_value=True),
        attribute("false", bool_value=False),
        attribute("least", int_value=-(2**63)),
        attribute("most", int_value=2**63 - 1),
        attribute("double", double_value=0.1),
        attribute("nan", double_value=float("nan")),
        attribute("infinite", double_value=float("-inf")),
        attribute("list", array_value={"values": [AnyValue(string_value="a"), AnyValue(), inner]}),
        attribute("bytes", bytes_value=bytes(range(256))),
        attribute("empty"),
        attribute("long", string_value="x" * 300),
    ]


def fill(envelope):
    """What stands around rows."""
    envelope.resource.CopyFrom(Resource(attributes=attributes("resource"), dropped_attributes_count=1))
    entity = envelope.resource.entity_refs.add()
    entity.type, entity.schema_url = "service", "https://example.com/entity"
    entity.id_keys.extend(["service.name", "of"])
    entity.description_keys.append("text")
    envelope.schema_url = "https://example.com/resource"


def fill_scope(scoped):
    scoped.scope.name, scoped.scope.version = "golden", "1.2.3"
    scoped.scope.attributes.extend(attributes("scope"))
    scoped.scope.dropped_attributes_count = 2
    scoped.schema_url = "https://example.com/scope"


def traces():
    data = TracesData()
    envelope = data.resource_spans.add()
    fill(envelope)
    scoped = envelope.scope_spans.add()
    fill_scope(scoped)
    span = scoped.spans.add()
    span.trace_id, span.span_id, span.parent_span_id = bytes(range(1, 17)), bytes(range(17, 25)), bytes(range(25, 33))
    span.trace_state, span.name, span.kind, span.flags = "a=1,b=2", "GET /", 2, 0x301
    span.start_time_unix_nano, span.end_time_unix_nano = START, START + 1_000_001
    span.attributes.extend(attributes("span"))
    span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count = 3, 4, 300
    for nth in range(2):
        event = span.events.add()
        event.time_unix_nano, event.name, event.dropped_attributes_count = START + nth, f"event {nth}", nth
        event.attributes.extend(attributes(f"event {nth}"))
        link = span.links.add()
        link.trace_id, link.span_id, link.trace_state = bytes(range(33, 49)), bytes(range(49, 57)), "c=3"
        link.dropped_attributes_count, link.flags = nth, 0x100
        link.attributes.extend(attributes(f"link {nth}"))
    span.status.code, span.status.message = 2, "it broke"
    root = scoped.spans.add()
    root.trace_id, root.span_id, root.name = span.trace_id, bytes(range(25, 33)), ""
    data.resource_spans.add().scope_spans.add()
    return data


def logs():
    data = LogsData()
    envelope = data.resource_logs.add()
    fill(envelope)
    scoped = envelope.scope_logs.add()
    fill_scope(scoped)
    record = scoped.log_records.add()
    record.time_unix_nano, record.observed_time_unix_nano = START, START + 5
    record.severity_number, record.severity_text, record.event_name = 17, "ERROR", "device.app"
    record.body.string_value = "it broke: größer"
    record.attributes.extend(attributes("record"))
    record.dropped_attributes_count, record.flags = 1, 1
    record.trace_id, record.span_id = bytes(range(1, 17)), bytes(range(17, 25))
    for value in attributes("body"):
        scoped.log_records.add().body.CopyFrom(value.value)
    return data


def metrics():
    data = MetricsData()
    envelope = data.resource_metrics.add()
    fill(envelope)
    scoped = envelope.scope_metrics.add()
    fill_scope(scoped)

    def metric(name):
        made = scoped.metrics.add()
        made.name, made.description, made.unit = name, f"what {name} is", "ms"
        made.metadata.extend(attributes("metric"))
        return made

    def point(points):
        made = points.data_points.add()
        made.start_time_unix_nano, made.time_unix_nano, made.flags = START, START + 60_000_000_000, 1
        made.attributes.extend(attributes("point"))
        return made

    def exemplars(made):
        for nth in range(2):
            exemplar = made.exemplars.add()
            exemplar.time_unix_nano = START + nth
            exemplar.trace_id, exemplar.span_id = bytes(range(1, 17)), bytes(range(17, 25))
            exemplar.filtered_attributes.extend(attributes("exemplar"))
        made.exemplars[0].as_double, made.exemplars[1].as_int = 2.5, -7

    gauge = point(metric("gauge").gauge)
    gauge.as_double = -0.5
    exemplars(gauge)
    total = metric("sum").sum
    total.aggregation_temporality, total.is_monotonic = 2, True
    point(total).as_int = -(2**63)
    point(total).as_int = 0
    histogram = metric("histogram").histogram
    histogram.aggregation_temporality = 1
    made = point(histogram)
    made.count, made.sum, made.min, made.max = 6, 12.5, 0.0, 9.0
    made.bucket_counts.extend([1, 2, 3])
    made.explicit_bounds.extend([0.5, 5.0])
    exemplars(made)
    exponential = metric("exponential").exponential_histogram
    exponential.aggregation_temporality = 2
    made = point(exponential)
    made.count, made.sum, made.scale, made.zero_count, made.zero_threshold = 300, 1e6, -3, 2, 1e-9
    made.positive.offset, made.negative.offset = -4, 300
    made.positive.bucket_counts.extend([1, 0, 300])
    made.negative.bucket_counts.extend([2**63])
    made.min, made.max = -1.0, 1e5
    exemplars(made)
    made = point(metric("summary").summary)
    made.count, made.sum = 4, 40.0
    for quantile in (0.0, 0.999):
        made.quantile_values.add(quantile=quantile, value=10.0 * quantile)
    metric("none")
    return data


def with_hex_ids(value):
    if isinstance(value, list):
        return [with_hex_ids(each) for each in value]
    if isinstance(value, dict):
        return {
            key: base64.b64decode(each).hex() if key in IDS else with_hex_ids(each) for key, each in value.items()
        }
    return value


def main():
    for name, data in {"traces": traces(), "logs": logs(), "metrics": metrics()}.items():
        here = Path(__file__).parent
        (here / f"{name}.pb").write_bytes(data.SerializeToString(deterministic=True))
        as_json = with_hex_ids(MessageToDict(data, use_integers_for_enums=True))
        (here / f"{name}.json").write_text(json.dumps(as_json, separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
