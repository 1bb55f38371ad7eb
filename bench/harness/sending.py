"""Threads that send OTLP batches and record the responses."""

import collections
import http.client
import random
import threading
import time

from harness import otlp


class Sender(threading.Thread):
    """Sends batches of one table in sequence until it is stopped. It sends each batch once, whatever the response."""

    RESPONSE_LIMIT_S = 120

    def __init__(self, address, seed, table="spans"):
        super().__init__(daemon=True)
        self.address = address
        self.table = table
        self.rng = random.Random(seed)
        self.stopping = threading.Event()
        self.acknowledged_ids = []
        self.sent_batches = []
        # By status and message.
        self.rejections = collections.Counter()
        # Of acknowledged batches: the time of sending, and the milliseconds until the response.
        self.latencies = []

    def run(self):
        connection = None
        while not self.stopping.is_set():
            batch, request_body = otlp.BATCH_MAKERS[self.table](self.rng)
            self.sent_batches.append(batch)
            begin = time.monotonic()
            try:
                connection = connection or http.client.HTTPConnection(self.address, timeout=self.RESPONSE_LIMIT_S)
                headers = {"content-type": "application/x-protobuf"}
                connection.request("POST", otlp.PATHS[self.table], request_body, headers)
                response = connection.getresponse()
                response_body = response.read()
            except (OSError, http.client.HTTPException):
                connection = None
                self.stopping.wait(0.02)
                continue
            if response.status == 200:
                self.acknowledged_ids.append(batch.id)
                self.latencies.append((begin, (time.monotonic() - begin) * 1e3))
            else:
                self.rejections[response.status, otlp.parse_status_message(response_body)] += 1
                self.stopping.wait(0.05)

    def stop(self):
        self.stopping.set()


class Senders:
    """Concurrent senders; `stop` adds their batches to `report`."""

    def __init__(self, report, address, rng, tables=("spans",) * 4):
        self.report = report
        self.threads = [Sender(address, rng.randrange(1 << 32), table) for table in tables]
        for sender in self.threads:
            sender.start()

    def stop(self):
        for sender in self.threads:
            sender.stop()
        for sender in self.threads:
            sender.join(Sender.RESPONSE_LIMIT_S)
        for sender in self.threads:
            self.report.acknowledged_ids.update(sender.acknowledged_ids)
            self.report.sent_batches.update((batch.id, batch) for batch in sender.sent_batches)

    def latencies_ms(self, since=0.0, until=float("inf")):
        """Of the acknowledged batches that were sent in this period."""
        return [ms for sender in self.threads for begin, ms in list(sender.latencies) if since <= begin < until]

    def rejections(self):
        return sum((collections.Counter(sender.rejections) for sender in self.threads), collections.Counter())


def quantile(values, q):
    """The value at rank `q`, without interpolation."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")
