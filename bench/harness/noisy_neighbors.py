"""A noisy neighbor: sends one kind of request as fast as the server responds, until SIGTERM.

    python3 -m harness.noisy_neighbors KIND OTLP API

On SIGTERM, it prints the number of responses of each status as JSON. 0 stands for a closed connection, "empty" for a
query result without a series.
"""

import collections
import gzip
import http.client
import json
import random
import signal
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass, field

from harness import otlp, queries

SEED = 7
CONNECTIONS = 4
LIMIT_S = 120
TENANT = "neighbor"
EMPTY = "empty"
MIB = 1 << 20
PROTOBUF = {"content-type": "application/x-protobuf", "x-scope-orgid": TENANT}
# The content-length of a stalled body, whose last byte is never sent.
STALLED_BYTES = 40 * MIB


@dataclass(frozen=True)
class Kind:
    """A kind of noisy neighbor: its description, and the function that makes the body of its requests."""

    description: str
    make_body: object
    headers: dict = field(default_factory=dict)
    is_stalled: bool = False


def make_spans(count):
    return otlp.make_span_batch(random.Random(SEED), count)[1]


def make_attributes():
    """A batch of twenty spans with 10,000 attributes each."""
    attributes = b"".join(otlp.field(9, otlp.attribute(f"key.{nth}", "value")) for nth in range(10_000))
    times = otlp.fixed64(7, time.time_ns()) + otlp.fixed64(8, time.time_ns())
    ids = [otlp.field(1, bytes([nth]) * 16) + otlp.field(2, bytes([nth]) * 8) for nth in range(1, 21)]
    return otlp.field(1, otlp.field(2, b"".join(otlp.field(2, span_ids + times + attributes) for span_ids in ids)))


KINDS = {
    "flood": Kind("512 spans per batch", lambda: make_spans(512)),
    "truncated": Kind("512 spans, truncated", lambda: make_spans(512)[:-7]),
    "100 MB": Kind("100 MB batches", lambda: bytes(100_000_000)),
    "60 MB": Kind("valid 60 MB batches", lambda: make_spans(4_096) * (60_000_000 // len(make_spans(4_096)))),
    "attributes": Kind("10,000 attributes per span", make_attributes),
    "one trace": Kind("a trace of 100,000 spans", lambda: make_spans(100_000)),
    "packed": Kind(
        "64 KiB that decompress to 64 MiB",
        lambda: gzip.compress(otlp.field(1, b"") * (32 * MIB)),
        headers={"content-encoding": "gzip"},
    ),
    "stalled": Kind("40 MiB bodies without their last byte", lambda: bytes(STALLED_BYTES - 1), is_stalled=True),
    "queries": Kind("p99 by service and minute over all spans", lambda: None),
}
QUERY = "/api/metrics/query_range?" + urllib.parse.urlencode(
    {"q": "{ } | quantile_over_time(duration, 0.99) by (resource.service.name)", "step": "60s", **queries.TIME}
)


class NeighborConnection(threading.Thread):
    """Sends requests on one connection."""

    def __init__(self, kind, body, otlp, api, responses):
        super().__init__(daemon=True)
        self.kind, self.body, self.otlp, self.api, self.responses = kind, body, otlp, api, responses

    def run(self):
        address, connection = self.otlp if self.body else self.api, None
        while True:
            try:
                connection = connection or http.client.HTTPConnection(address, timeout=LIMIT_S)
                status = self.send_request(connection)
            except (OSError, http.client.HTTPException):
                connection, status = None, 0
            self.responses[status] += 1
            if status not in (200, 400):
                # A rejected sender retries after a short wait.
                time.sleep(0.01)

    def send_request(self, connection):
        if self.body is None:
            connection.request("GET", QUERY)
        elif self.kind.is_stalled:
            connection.request("POST", "/v1/traces", self.body, PROTOBUF | {"content-length": str(STALLED_BYTES)})
        else:
            # The server stores identical batches once, so an unknown field makes each batch different.
            unknown = b"" if self.kind.headers else otlp.fixed64(15, time.monotonic_ns())
            connection.request("POST", "/v1/traces", self.body + unknown, PROTOBUF | self.kind.headers)
        response = connection.getresponse()
        body = response.read()
        # A query without a result costs nothing: its own count shows that the neighbor was not noisy.
        return EMPTY if body.endswith(b'"series":[]}') else response.status


def main():
    name, otlp, api = sys.argv[1:]
    kind = KINDS[name]
    body, responses = kind.make_body(), collections.Counter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for _ in range(CONNECTIONS):
        NeighborConnection(kind, body, otlp, api, responses).start()
    print("started", flush=True)
    try:
        signal.pause()
    finally:
        print(json.dumps(responses), flush=True)


if __name__ == "__main__":
    main()
