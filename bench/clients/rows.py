"""Rows as they were sent, and as they stand in the tables: both as plain values, to be held against each other.

The tables' way of writing is that of docs/concepts/store.md: attributes have columns of their own or are in maps by
the kind of their values, and lists, maps and bytes are JSON. A value that nobody said is not there on either side.
"""

import base64
import json
import math

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

TEMPORALITIES = ("unspecified", "delta", "cumulative")
ATTRIBUTE_MAPS = ("attributes_text", "attributes_int", "attributes_double", "attributes_bool", "attributes_json")
# Columns that are not attributes, beside those that the rows of `logs` and `points` below are made of.
OTHER_COLUMNS = {"tenant", "service", "day", "series_id", *ATTRIBUTE_MAPS}


def spans(message):
    """Every span of a `TracesData`, with what stands around it, as JSON with its attributes in order.

    A status that says nothing is as if there was none: OTLP has it so."""
    for envelope in message.resource_spans:
        for scoped in envelope.scope_spans:
            for span in scoped.spans:
                parts = (envelope.resource, scoped.scope, span)
                row = [ordered(MessageToDict(part, use_integers_for_enums=True)) for part in parts]
                if not row[-1].get("status", True):
                    del row[-1]["status"]
                yield json.dumps([*row, envelope.schema_url, scoped.schema_url], sort_keys=True)


def ordered(value):
    """Attributes have no order."""
    if isinstance(value, list):
        return [ordered(each) for each in value]
    if not isinstance(value, dict):
        return value
    value = {key: ordered(each) for key, each in value.items()}
    if "attributes" in value:
        value["attributes"].sort(key=lambda attribute: attribute["key"])
    return value


def plain(value):
    """An `AnyValue` as plain JSON has it."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return {"@bytes": base64.b64encode(value.bytes_value).decode()}
    return None if kind is None else double(getattr(value, kind))


def double(number):
    """What JSON has no number for."""
    if isinstance(number, float) and not math.isfinite(number):
        return {"@double": "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"}
    return number


def attributes(pairs):
    return {pair.key: plain(pair.value) for pair in pairs}


def around(envelope, scoped):
    """What stands around rows."""
    return {
        "resource": attributes(envelope.resource.attributes), "resource_schema_url": envelope.schema_url,
        "resource_dropped_attributes": envelope.resource.dropped_attributes_count,
        "scope_name": scoped.scope.name, "scope_version": scoped.scope.version, "scope_schema_url": scoped.schema_url,
        "scope": attributes(scoped.scope.attributes), "scope_dropped_attributes": scoped.scope.dropped_attributes_count,
    }  # fmt: skip


def logs(message):
    """Every record of a `LogsData`."""
    for envelope in message.resource_logs:
        for scoped in envelope.scope_logs:
            for record in scoped.log_records:
                body = plain(record.body)
                is_text = record.body.WhichOneof("value") == "string_value"
                yield around(envelope, scoped) | {
                    "attributes": attributes(record.attributes), "dropped_attributes": record.dropped_attributes_count,
                    "trace_id": record.trace_id.hex(), "span_id": record.span_id.hex(), "time_ns": record.time_unix_nano,
                    "observed_ns": record.observed_time_unix_nano, "severity": record.severity_number,
                    "severity_text": record.severity_text, "body": body if is_text else None,
                    "body_json": None if is_text else body, "event_name": record.event_name, "flags": record.flags,
                }  # fmt: skip


def points(message):
    """Every point of a `MetricsData`."""
    for envelope in message.resource_metrics:
        for scoped in envelope.scope_metrics:
            for metric in scoped.metrics:
                kind = metric.WhichOneof("data")
                measured = getattr(metric, kind)
                of_metric = around(envelope, scoped) | {
                    "metric": metric.name, "description": metric.description, "unit": metric.unit, "kind": kind,
                    "metadata": attributes(metric.metadata), "is_monotonic": getattr(measured, "is_monotonic", None),
                }  # fmt: skip
                if hasattr(measured, "aggregation_temporality"):
                    of_metric["temporality"] = TEMPORALITIES[measured.aggregation_temporality]
                for point in measured.data_points:
                    yield of_metric | point_of(point)


def point_of(point):
    """What one point says, whatever its form."""
    row = {
        "attributes": attributes(point.attributes), "time_ns": point.time_unix_nano, "flags": point.flags,
        "start_ns": point.start_time_unix_nano, "exemplars": [exemplar(each) for each in getattr(point, "exemplars", ())],
    }  # fmt: skip
    names = {field.name for field in point.DESCRIPTOR.fields}
    if "as_int" in names:
        value = point.WhichOneof("value")
        row |= {"value_int" if value == "as_int" else "value_double": double(getattr(point, value))}
    for name in names & {"count", "scale", "zero_count", "zero_threshold"}:
        row[name] = getattr(point, name)
    for name in names & {"sum", "min", "max"}:
        row[name] = double(getattr(point, name)) if point.HasField(name) else None
    if "explicit_bounds" in names:
        row |= {"bounds": list(point.explicit_bounds), "bucket_counts": list(point.bucket_counts)}
    for side in names & {"positive", "negative"}:
        buckets = getattr(point, side)
        row |= {f"{side}_offset": buckets.offset, f"{side}_counts": list(buckets.bucket_counts)}
    return row


def exemplar(of):
    kind = of.WhichOneof("value")
    value = getattr(of, kind)
    return {
        "time_ns": of.time_unix_nano, "value": float(value), "value_kind": kind.removeprefix("as_"),
        "value_int": value if kind == "as_int" else 0, "trace_id": of.trace_id.hex(), "span_id": of.span_id.hex(),
        "attributes": attributes(of.filtered_attributes),
    }  # fmt: skip


def stored(row, own):
    """A row of a table as it was sent. `own` says which attribute a column is of."""
    row = {name: value for name, value in row.items() if value is not None and name not in ("tenant", "day", "series_id")}
    for name in ("resource", "scope", "metadata", "body_json"):
        if name in row:
            row[name] = json.loads(row[name])
    for name in ("trace_id", "span_id"):
        if name in row:
            row[name] = row[name].hex()
    found = {}
    for name in ATTRIBUTE_MAPS:
        read = json.loads if name == "attributes_json" else double
        found |= {key: read(value) for key, value in row.pop(name)}
    resource = row.get("resource", {})
    for name in set(row) & set(own):
        value = row.pop(name)
        # Common attributes of resources have a column as well: a copy.
        if resource.get(own[name]) != value:
            found[own[name]] = value
    if row.pop("service", None) != resource.get("service.name"):
        raise ValueError(f"its service is not that of its resource: {row}")
    for each in row.get("exemplars", ()):
        # IDs that an exemplar does not have are all zero.
        each |= {name: each[name].hex() if any(each[name]) else "" for name in ("trace_id", "span_id")}
        each["attributes"] = json.loads(each["attributes"] or "{}")
    return row | {"attributes": found}


def said(row):
    """What is said, as text: what is empty or zero is as if it was not said."""
    return json.dumps({key: value for key, value in row.items() if not is_nothing(key, value)}, sort_keys=True)


def is_nothing(key, value):
    # A measurement of zero is one.
    return value in (None, "", [], {}) or (value == 0 and not key.startswith("value_") and key != "body_json")


def columns_of(rows, names):
    """Which attribute each column of a table is of, by the attributes that were sent."""
    keys = {key for row in rows for key in (*row["attributes"], *row["resource"])}
    return {key.replace(".", "_"): key for key in keys if key.replace(".", "_") in names and key != "service.name"}


MESSAGES = {"traces": TracesData, "logs": LogsData, "metrics": MetricsData}
