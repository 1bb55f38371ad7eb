"""Encodes batches of spans, log records and points as OTLP protobuf, and keeps what a reader must find in the tables.

All rows of a batch have one ID, so the number of rows with this ID shows how often the server stored the batch. For
spans and log records, the ID is the trace ID; for points, it is their time, which is unique to the batch.
"""

import itertools
import time
from dataclasses import dataclass

BATCH_ROWS = 64
SERVICES = ("cart", "order", "stock")
# bench/harness/queries.py queries one of them.
USERS = 1_000
NS_PER_MS, NS_PER_S = 1_000_000, 1_000_000_000
_batch_numbers = itertools.count()


@dataclass(frozen=True)
class Batch:
    """A batch without its bytes."""

    table: str
    id: str
    service: str
    time_ns: int
    # Of durations, severities or values.
    value_sum: int


def make_span_batch(rng, rows=BATCH_ROWS):
    """Makes spans of one trace; returns the batch and its bytes, an ExportTraceServiceRequest."""
    trace_id, time_ns, value_sum, encoded = rng.randbytes(16), unique_time_ns(), 0, []
    for _ in range(rows):
        duration_ns = rng.randrange(1, 50_000_000)
        value_sum += duration_ns
        encoded.append(
            field(1, trace_id)
            + field(2, rng.randbytes(8))
            + field(5, rng.choice(("GET /cart", "POST /order", "SELECT items")).encode())
            + varint_field(6, 2)
            + fixed64(7, time_ns)
            + fixed64(8, time_ns + duration_ns)
            + field(9, attribute("url.path", f"/cart/{rng.randrange(10_000)}"))
            + field(9, attribute("enduser.id", f"user-{rng.randrange(USERS)}"))
        )
    service = rng.choice(SERVICES)
    return Batch("spans", trace_id.hex(), service, time_ns, value_sum), encode_request(service, encoded)


def make_log_batch(rng):
    """Makes log records of one trace; returns the batch and its bytes, an ExportLogsServiceRequest."""
    trace_id, time_ns, value_sum, encoded = rng.randbytes(16), unique_time_ns(), 0, []
    for _ in range(BATCH_ROWS):
        severity = rng.randrange(1, 25)
        value_sum += severity
        encoded.append(
            fixed64(1, time_ns)
            + varint_field(2, severity)
            + field(5, field(1, f"basket {rng.randrange(100_000)} was looked at".encode()))
            + field(6, attribute("url.path", f"/cart/{rng.randrange(10_000)}"))
            + field(9, trace_id)
            + fixed64(11, time_ns)
        )
    service = rng.choice(SERVICES)
    return Batch("logs", trace_id.hex(), service, time_ns, value_sum), encode_request(service, encoded)


def make_point_batch(rng):
    """Makes points of one gauge at one time; returns the batch and its bytes, an ExportMetricsServiceRequest."""
    time_ns, value_sum, encoded = unique_time_ns(), 0, []
    for shelf in range(BATCH_ROWS):
        value = rng.randrange(1_000_000)
        value_sum += value
        encoded.append(fixed64(3, time_ns) + fixed64(6, value) + field(7, attribute("shelf", f"{shelf}")))
    gauge = field(1, b"items") + field(3, b"1") + field(5, b"".join(field(1, point) for point in encoded))
    service = rng.choice(SERVICES)
    return Batch("points", str(time_ns), service, time_ns, value_sum), encode_request(service, [gauge])


BATCH_MAKERS = {"spans": make_span_batch, "logs": make_log_batch, "points": make_point_batch}
PATHS = {"spans": "/v1/traces", "logs": "/v1/logs", "points": "/v1/metrics"}
# The column of each table that has the batch ID.
ID_COLUMNS = {"spans": "trace_id", "logs": "trace_id", "points": "time_ns"}


def unique_time_ns():
    """The current time in milliseconds, plus nanoseconds that no other batch of this millisecond has."""
    return time.time_ns() // NS_PER_MS * NS_PER_MS + next(_batch_numbers) % NS_PER_MS


def encode_request(service, encoded):
    """Encodes resource and scope around the rows, in the same way for all three signals."""
    resource = field(1, attribute("service.name", service))
    scope = b"".join(field(2, row) for row in encoded)
    return field(1, field(1, resource) + field(2, scope))


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_field(number, value):
    return varint(number << 3) + varint(value)


def field(number, payload):
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def fixed64(number, value):
    return varint(number << 3 | 1) + value.to_bytes(8, "little")


def attribute(key, value):
    return field(1, key.encode()) + field(2, field(1, value.encode()))


def parse_status_message(status):
    """The message of a google.rpc.Status: field 2, after the code."""
    at = status.find(b"\x12")
    return status[at + 2 : at + 2 + status[at + 1]].decode(errors="replace") if 0 <= at < len(status) - 1 else ""
