"""Kills (SIGKILL) a server repeatedly while senders send; every second kill waits for a merge of runs."""

import time
from dataclasses import dataclass

from harness.live_server import Server
from harness.sending import Senders

# A server must begin a merge within this time; otherwise it is killed without one.
MERGE_LIMIT_S = 30


@dataclass(frozen=True)
class KillDelays:
    """Bounds of the random delay of a kill, counted from the start of the senders or of a merge."""

    min_s: float = 0.2
    max_s: float = 6.0
    merge_max_s: float = 0.05


def kill_repeatedly(count, report, rng, config, watch_merges, tables=("spans",) * 4, delays=KillDelays()):
    """Starts and kills a server `count` times. `watch_merges` takes a server that is ready, and returns a function that
    says whether this server is merging. Returns the number of kills during a merge."""
    merge_kill_count = 0
    for nth in range(count):
        server = Server(config).wait_until_ready()
        is_merging = watch_merges(server)
        senders = Senders(report, server.otlp, rng, tables)
        limit = time.monotonic() + MERGE_LIMIT_S
        while nth % 2 and not is_merging() and time.monotonic() < limit:
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, delays.merge_max_s) if nth % 2 else rng.uniform(delays.min_s, delays.max_s))
        server.kill()
        merge_kill_count += is_merging()
        senders.stop()
    return merge_kill_count
