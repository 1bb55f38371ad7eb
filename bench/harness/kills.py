"""Kills (SIGKILL) a server again and again while senders send, every second time while it merges runs."""

import time
from dataclasses import dataclass

from harness.live_server import Server
from harness.sending import Senders

# A process that is to be killed during a merge must begin one within this time.
MERGE_LIMIT_S = 30


@dataclass(frozen=True)
class Moments:
    """When kills come, at random: in seconds after senders have begun, or after a merge has."""

    earliest_s: float = 0.2
    latest_s: float = 6.0
    of_merge_s: float = 0.05


def kills(count, found, rng, place, merging, tables=("spans",) * 4, moments=Moments()):
    """Does so `count` times. `merging` gets the server when it listens, and returns a function that says whether it
    merges now. Returns how often it merged when it was killed."""
    of_merging = 0
    for nth in range(count):
        server = Server(place).ready()
        is_merging = merging(server)
        senders = Senders(found, server.otlp, rng, tables)
        limit = time.monotonic() + MERGE_LIMIT_S
        while nth % 2 and not is_merging() and time.monotonic() < limit:
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, moments.of_merge_s) if nth % 2 else rng.uniform(moments.earliest_s, moments.latest_s))
        server.kill()
        of_merging += is_merging()
        senders.stop()
    return of_merging
