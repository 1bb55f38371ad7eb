"""Batches of spans in OTLP's protobuf, and what senders are told of them.

A batch is one trace: so how often a trace's spans are there says how often the batch was taken.
"""

import http.client
import random
import threading
import time

SPANS_OF_A_BATCH = 64


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, payload):
    """A field that has a length."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def fixed64(number, value):
    return varint(number << 3 | 1) + value.to_bytes(8, "little")


def attribute(key, value):
    return field(1, key.encode()) + field(2, field(1, value.encode()))


def batch(rng, trace_id, start_ns, spans=SPANS_OF_A_BATCH):
    """An ExportTraceServiceRequest of one trace."""
    encoded = []
    for _ in range(spans):
        lasts_ns = rng.randrange(1, 50_000_000)
        encoded.append(
            field(1, trace_id)
            + field(2, rng.randbytes(8))
            + field(5, rng.choice(("GET /cart", "POST /order", "SELECT items")).encode())
            + varint(6 << 3)
            + varint(2)
            + fixed64(7, start_ns)
            + fixed64(8, start_ns + lasts_ns)
            + field(9, attribute("url.path", f"/cart/{rng.randrange(10_000)}"))
            + field(9, attribute("enduser.id", f"{rng.randrange(1_000_000)}"))
        )
    resource = field(1, attribute("service.name", rng.choice(("cart", "order", "stock"))))
    scope = b"".join(field(2, span) for span in encoded)
    return field(1, field(1, resource) + field(2, scope))


class Sender(threading.Thread):
    """Sends batches, one after the other, until it is told to stop; each of them once, whatever is said."""

    # An answer that takes longer is none.
    LIMIT_S = 120

    def __init__(self, address, seed):
        super().__init__(daemon=True)
        self.address = address
        self.rng = random.Random(seed)
        self.stopping = threading.Event()
        self.acknowledged = []
        self.sent = []
        self.refused = {}
        self.took_ms = []

    def run(self):
        connection = None
        while not self.stopping.is_set():
            trace_id = self.rng.randbytes(16)
            body = batch(self.rng, trace_id, time.time_ns())
            self.sent.append(trace_id.hex())
            begun = time.monotonic()
            try:
                connection = connection or http.client.HTTPConnection(self.address, timeout=self.LIMIT_S)
                connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                connection = None
                self.stopping.wait(0.02)
                continue
            if answer.status == 200:
                self.acknowledged.append(trace_id.hex())
                self.took_ms.append((begun, (time.monotonic() - begun) * 1e3))
            else:
                self.refused[answer.status] = self.refused.get(answer.status, 0) + 1
                self.stopping.wait(0.05)

    def stop(self):
        self.stopping.set()


def quantile(values, q):
    """By rank, as everywhere here."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")
