"""Converts sent messages and rows of tables to the same plain values, for a comparison.

docs/concepts/store.md defines the columns of the tables. An attribute has a column of its own, or is in the map for the
type of its value. Lists, maps and bytes are JSON. Unset values are absent on both sides.
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
# Columns that are neither attributes nor keys of the rows of `logs` and `points` below.
OTHER_COLUMNS = {"tenant", "service", "day", "series_id", *ATTRIBUTE_MAPS}


def spans(message):
    """Every span of a `TracesData`, with its resource and scope, as JSON with sorted attributes.

    In OTLP, an empty status equals no status."""
    for envelope in message.resource_spans:
        for scoped in envelope.scope_spans:
            for span in scoped.spans:
                parts = (envelope.resource, scoped.scope, span)
                row = [sort_attributes(MessageToDict(part, use_integers_for_enums=True)) for part in parts]
                if not row[-1].get("status", True):
                    del row[-1]["status"]
                yield json.dumps([*row, envelope.schema_url, scoped.schema_url], sort_keys=True)


def sort_attributes(value):
    """Sorts attributes by key, because their order has no meaning."""
    if isinstance(value, list):
        return [sort_attributes(item) for item in value]
    if not isinstance(value, dict):
        return value
    value = {key: sort_attributes(item) for key, item in value.items()}
    if "attributes" in value:
        value["attributes"].sort(key=lambda attribute: attribute["key"])
    return value


def to_plain(value):
    """Converts an `AnyValue` to a plain JSON value."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [to_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return to_dict(value.kvlist_value.values)
    if kind == "bytes_value":
        return {"@bytes": base64.b64encode(value.bytes_value).decode()}
    return None if kind is None else encode_double(getattr(value, kind))


def encode_double(number):
    """Encodes NaN and infinities, for which JSON has no number."""
    if isinstance(number, float) and not math.isfinite(number):
        return {"@double": "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"}
    return number


def to_dict(attributes):
    return {attribute.key: to_plain(attribute.value) for attribute in attributes}


def resource_and_scope(envelope, scoped):
    """The columns that the rows of one scope share."""
    return {
        "resource": to_dict(envelope.resource.attributes), "resource_schema_url": envelope.schema_url,
        "resource_dropped_attributes": envelope.resource.dropped_attributes_count,
        "scope_name": scoped.scope.name, "scope_version": scoped.scope.version, "scope_schema_url": scoped.schema_url,
        "scope": to_dict(scoped.scope.attributes), "scope_dropped_attributes": scoped.scope.dropped_attributes_count,
    }  # fmt: skip


def logs(message):
    """Every record of a `LogsData`."""
    for envelope in message.resource_logs:
        for scoped in envelope.scope_logs:
            for record in scoped.log_records:
                body = to_plain(record.body)
                is_text = record.body.WhichOneof("value") == "string_value"
                yield resource_and_scope(envelope, scoped) | {
                    "attributes": to_dict(record.attributes), "dropped_attributes": record.dropped_attributes_count,
                    "trace_id": record.trace_id.hex(), "span_id": record.span_id.hex(),
                    "time_ns": record.time_unix_nano, "observed_ns": record.observed_time_unix_nano,
                    "severity": record.severity_number, "severity_text": record.severity_text,
                    "body": body if is_text else None, "body_json": None if is_text else body,
                    "event_name": record.event_name, "flags": record.flags,
                }  # fmt: skip


def points(message):
    """Every point of a `MetricsData`."""
    for envelope in message.resource_metrics:
        for scoped in envelope.scope_metrics:
            for metric in scoped.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                shared = resource_and_scope(envelope, scoped) | {
                    "metric": metric.name, "description": metric.description, "unit": metric.unit, "kind": kind,
                    "metadata": to_dict(metric.metadata), "is_monotonic": getattr(data, "is_monotonic", None),
                }  # fmt: skip
                if hasattr(data, "aggregation_temporality"):
                    shared["temporality"] = TEMPORALITIES[data.aggregation_temporality]
                for point in data.data_points:
                    yield shared | point_columns(point)


def point_columns(point):
    """The columns of one point, of any kind of metric."""
    row = {
        "attributes": to_dict(point.attributes), "start_ns": point.start_time_unix_nano,
        "time_ns": point.time_unix_nano, "flags": point.flags,
        "exemplars": list(map(exemplar_fields, getattr(point, "exemplars", ()))),
    }  # fmt: skip
    names = {field.name for field in point.DESCRIPTOR.fields}
    if "as_int" in names:
        value = point.WhichOneof("value")
        row |= {"value_int" if value == "as_int" else "value_double": encode_double(getattr(point, value))}
    for name in names & {"count", "scale", "zero_count", "zero_threshold"}:
        row[name] = getattr(point, name)
    for name in names & {"sum", "min", "max"}:
        row[name] = encode_double(getattr(point, name)) if point.HasField(name) else None
    if "explicit_bounds" in names:
        row |= {"bounds": list(point.explicit_bounds), "bucket_counts": list(point.bucket_counts)}
    for side in names & {"positive", "negative"}:
        buckets = getattr(point, side)
        row |= {f"{side}_offset": buckets.offset, f"{side}_counts": list(buckets.bucket_counts)}
    return row


def exemplar_fields(exemplar):
    kind = exemplar.WhichOneof("value")
    value = getattr(exemplar, kind)
    return {
        "time_ns": exemplar.time_unix_nano, "value": float(value), "value_kind": kind.removeprefix("as_"),
        "value_int": value if kind == "as_int" else 0, "trace_id": exemplar.trace_id.hex(),
        "span_id": exemplar.span_id.hex(), "attributes": to_dict(exemplar.filtered_attributes),
    }  # fmt: skip


def restore(row, columns):
    """Converts a row of a table to the form in which it was sent. `columns`: attribute keys by column name."""
    added = ("tenant", "day", "series_id")
    row = {name: value for name, value in row.items() if value is not None and name not in added}
    for name in ("resource", "scope", "metadata", "body_json"):
        if name in row:
            row[name] = json.loads(row[name])
    for name in ("trace_id", "span_id"):
        if name in row:
            row[name] = row[name].hex()
    attributes = {}
    for name in ATTRIBUTE_MAPS:
        decode = json.loads if name == "attributes_json" else encode_double
        attributes |= {key: decode(value) for key, value in row.pop(name)}
    resource = row.get("resource", {})
    for name in set(row) & set(columns):
        value = row.pop(name)
        # Common attributes of resources have a column too, with a copy.
        if resource.get(columns[name]) != value:
            attributes[columns[name]] = value
    if row.pop("service", None) != resource.get("service.name"):
        raise ValueError(f"expected the service of the resource in column `service`: {row}")
    for exemplar in row.get("exemplars", ()):
        # An unset ID of an exemplar is all zero.
        exemplar |= {name: exemplar[name].hex() if any(exemplar[name]) else "" for name in ("trace_id", "span_id")}
        exemplar["attributes"] = json.loads(exemplar["attributes"] or "{}")
    return row | {"attributes": attributes}


def to_json(row):
    """The row as JSON, without unset (empty or zero) values."""
    return json.dumps({key: value for key, value in row.items() if not is_unset(key, value)}, sort_keys=True)


def is_unset(key, value):
    # The zero of a measurement is a value.
    return value in (None, "", [], {}) or (value == 0 and not key.startswith("value_") and key != "body_json")


def attribute_columns(rows, names):
    """The key of the sent attribute that each column of a table has, by column name."""
    keys = {key for row in rows for key in (*row["attributes"], *row["resource"])}
    return {key.replace(".", "_"): key for key in keys if key.replace(".", "_") in names and key != "service.name"}


MESSAGES = {"traces": TracesData, "logs": LogsData, "metrics": MetricsData}
