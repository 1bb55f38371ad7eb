"""Senders of batches, and the responses to them."""

import collections
import http.client
import random
import threading
import time

from harness import otlp


class Sender(threading.Thread):
    """Sends batches of one table, one after the other, until it is stopped; each batch once, whatever the response."""

    # The timeout of a response.
    LIMIT_S = 120

    def __init__(self, address, seed, table="spans"):
        super().__init__(daemon=True)
        self.address = address
        self.table = table
        self.rng = random.Random(seed)
        self.stopping = threading.Event()
        self.acknowledged = []
        self.sent = []
        # How often it was refused, by status and message.
        self.refused = collections.Counter()
        # When each acknowledged batch was sent, and how long it waited.
        self.took_ms = []

    def run(self):
        connection = None
        while not self.stopping.is_set():
            batch, body = otlp.MAKERS[self.table](self.rng)
            self.sent.append(batch)
            begun = time.monotonic()
            try:
                connection = connection or http.client.HTTPConnection(self.address, timeout=self.LIMIT_S)
                connection.request("POST", otlp.PATHS[self.table], body, {"content-type": "application/x-protobuf"})
                response = connection.getresponse()
                said = response.read()
            except (OSError, http.client.HTTPException):
                connection = None
                self.stopping.wait(0.02)
                continue
            if response.status == 200:
                self.acknowledged.append(batch.id)
                self.took_ms.append((begun, (time.monotonic() - begun) * 1e3))
            else:
                self.refused[response.status, otlp.message(said)] += 1
                self.stopping.wait(0.05)

    def stop(self):
        self.stopping.set()


class Senders:
    """Concurrent senders; the responses go to `found` when they stop."""

    def __init__(self, found, address, rng, tables=("spans",) * 4):
        self.found = found
        self.all = [Sender(address, rng.randrange(1 << 32), table) for table in tables]
        for sender in self.all:
            sender.start()

    def stop(self):
        for sender in self.all:
            sender.stop()
        for sender in self.all:
            sender.join(Sender.LIMIT_S)
        for sender in self.all:
            self.found.acknowledged.update(sender.acknowledged)
            self.found.sent.update((batch.id, batch) for batch in sender.sent)

    def took_ms(self, since=0.0, until=float("inf")):
        return [ms for sender in self.all for begun, ms in list(sender.took_ms) if since <= begun < until]

    def refused(self):
        return sum((collections.Counter(sender.refused) for sender in self.all), collections.Counter())


def quantile(values, q):
    """By rank, as everywhere here."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")
