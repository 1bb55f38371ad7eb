"""Batches of spans, log records and points in OTLP's protobuf, and what of them must be found again.

All rows of a batch have one ID: so how often rows with it are there says how often the batch was taken. Of spans and log
records that is the trace, of points their time, which no two batches share.
"""

import itertools
import time
from dataclasses import dataclass

ROWS_OF_A_BATCH = 64
SERVICES = ("cart", "order", "stock")
# As bench/harness/questions.py asks for one of them.
USERS = 1_000
NS_PER_MS, NS_PER_S = 1_000_000, 1_000_000_000
_turns = itertools.count()


@dataclass(frozen=True)
class Batch:
    """A batch without its bytes."""

    table: str
    id: str
    service: str
    at_ns: int
    # Of what the rows measure: durations, severities, values.
    summed: int


def spans(rng, rows=ROWS_OF_A_BATCH):
    """A batch of one trace, and its bytes: an ExportTraceServiceRequest."""
    trace_id, at_ns, summed, encoded = rng.randbytes(16), moment_ns(), 0, []
    for _ in range(rows):
        lasts_ns = rng.randrange(1, 50_000_000)
        summed += lasts_ns
        encoded.append(
            field(1, trace_id)
            + field(2, rng.randbytes(8))
            + field(5, rng.choice(("GET /cart", "POST /order", "SELECT items")).encode())
            + number(6, 2)
            + fixed64(7, at_ns)
            + fixed64(8, at_ns + lasts_ns)
            + field(9, attribute("url.path", f"/cart/{rng.randrange(10_000)}"))
            + field(9, attribute("enduser.id", f"user-{rng.randrange(USERS)}"))
        )
    service = rng.choice(SERVICES)
    return Batch("spans", trace_id.hex(), service, at_ns, summed), request(service, encoded)


def logs(rng):
    """Log records of one trace: an ExportLogsServiceRequest."""
    trace_id, at_ns, summed, encoded = rng.randbytes(16), moment_ns(), 0, []
    for _ in range(ROWS_OF_A_BATCH):
        severity = rng.randrange(1, 25)
        summed += severity
        encoded.append(
            fixed64(1, at_ns)
            + number(2, severity)
            + field(5, field(1, f"basket {rng.randrange(100_000)} was looked at".encode()))
            + field(6, attribute("url.path", f"/cart/{rng.randrange(10_000)}"))
            + field(9, trace_id)
            + fixed64(11, at_ns)
        )
    service = rng.choice(SERVICES)
    return Batch("logs", trace_id.hex(), service, at_ns, summed), request(service, encoded)


def points(rng):
    """Points of one gauge at one time: an ExportMetricsServiceRequest."""
    at_ns, summed, encoded = moment_ns(), 0, []
    for shelf in range(ROWS_OF_A_BATCH):
        value = rng.randrange(1_000_000)
        summed += value
        encoded.append(fixed64(3, at_ns) + fixed64(6, value) + field(7, attribute("shelf", f"{shelf}")))
    gauge = field(1, b"items") + field(3, b"1") + field(5, b"".join(field(1, point) for point in encoded))
    service = rng.choice(SERVICES)
    return Batch("points", str(at_ns), service, at_ns, summed), request(service, [gauge])


MAKERS = {"spans": spans, "logs": logs, "points": points}
PATHS = {"spans": "/v1/traces", "logs": "/v1/logs", "points": "/v1/metrics"}
# The column of each table that has the ID of the batch.
IDS = {"spans": "trace_id", "logs": "trace_id", "points": "time_ns"}


def moment_ns():
    """Now, to the millisecond; below that, a number that nobody else gets within it."""
    return time.time_ns() // NS_PER_MS * NS_PER_MS + next(_turns) % NS_PER_MS


def request(service, encoded):
    """What all three have around their rows."""
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


def number(of, value):
    return varint(of << 3) + varint(value)


def field(of, payload):
    """A field that has a length."""
    return varint(of << 3 | 2) + varint(len(payload)) + payload


def fixed64(of, value):
    return varint(of << 3 | 1) + value.to_bytes(8, "little")


def attribute(key, value):
    return field(1, key.encode()) + field(2, field(1, value.encode()))


def message(status):
    """The message of a google.rpc.Status: field 2, after the code."""
    at = status.find(b"\x12")
    return status[at + 2 : at + 2 + status[at + 1]].decode(errors="replace") if 0 <= at < len(status) - 1 else ""
