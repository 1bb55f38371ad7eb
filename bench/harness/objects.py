"""`curtail server` with its tables in an object store that is really asked over HTTP, and what becomes of it there.

In this order, all on one table:

- **figures**: senders for a while; how long acknowledgements take, which requests that costs, then traces by ID, searches,
  percentiles and values;
- **starts**: a server whose store does not respond, whose bucket is not there, whose key is wrong;
- **kills**: the server is killed (SIGKILL) at random moments, every second time while it merges runs;
- **outages**: the store is frozen for a while, then it is gone for a while where it can be; senders go on;
- **check**, after both: every acknowledged batch is there exactly once, what was not acknowledged once or not at all, by
  our API and by another reader of Delta tables.
"""

import collections
import dataclasses
import http.client
import random
import subprocess
import time
from dataclasses import dataclass
from functools import partial

from harness import object_questions
from harness.exactly_once import Found, Wrong, compare, compare_table
from harness.kills import kills
from harness.live_server import START_LIMIT_S, Place, Server, spans_of
from harness.object_requests import TARGET, kind, tally
from harness.object_servers import BUCKET, PYTHON, url
from harness.otlp import ROWS_OF_A_BATCH
from harness.sending import Senders, quantile
from harness.table_counts import reader

# What a server says when it cannot start goes on with what the store has said.
SHOWN_MAX = 320


@dataclass(frozen=True)
class Plan:
    figures_s: float = 30.0
    kills: int = 12
    frozen_s: float = 20.0
    gone_s: float = 20.0
    asked: int = 300


QUICK = Plan(figures_s=5.0, kills=3, frozen_s=5.0, gone_s=5.0, asked=50)


def measure(plan, program, store, scratch, seed):
    """All of it, on one store."""
    found, rng = Found(store.name, seed), random.Random(seed)
    logs_requests = {"CURTAIL_LOG": "info,curtail_objects=debug"}
    place = Place(program, scratch, url(store, f"seed-{seed}"), store.settings | logs_requests)
    store.start()
    try:
        reader(PYTHON, store.settings, "make", BUCKET)
        starts(found, store, place)
        figures(plan, found, rng, place)
        killed(plan, found, rng, place)
        check(plan, found, rng, place)
        outages(plan, found, rng, (place, store))
        check(plan, found, rng, place)
    finally:
        store.stop()
    return found


def figures(plan, found, rng, place):
    server = Server(place).ready()
    senders = Senders(found, server.otlp, rng)
    time.sleep(plan.figures_s)
    senders.stop()
    took = senders.took_ms()
    spans = len(took) * ROWS_OF_A_BATCH
    found.say(
        f"acknowledged {len(took)} batches of {ROWS_OF_A_BATCH} spans in {plan.figures_s:.0f} s by {len(senders.all)} senders "
        f"({spans / plan.figures_s:.0f} spans/s): p50 {quantile(took, 0.5):.1f} ms, p99 {quantile(took, 0.99):.1f} ms"
    )
    server.stop()
    runs, merged, requests = tally(server.events())
    found.say(f"written {runs} runs, merged {merged} times, with these requests:")
    for what, count in sorted(requests.items()):
        found.say(f"  {what}: {count}")
    object_questions.ask(plan, found, rng, place)


def killed(plan, found, rng, place):
    """Kills the server again and again, each time while senders send."""
    merging = kills(plan.kills, found, rng, place, lambda server: partial(is_merging, server))
    found.say(f"killed {plan.kills} times, {merging} of them while it merged; {len(found.acknowledged)} batches so far")


def is_merging(server):
    """Whether a server that nobody asks for traces has read runs, or sent parts of one, and not said that they are
    merged. Before it listens it reads the ends of all."""
    merging = False
    for event in server.events(server.listens):
        said = event.get("fields", {})
        if said.get("message") == "compacted":
            merging = False
        elif event.get("target") == TARGET:
            merging |= kind(said["method"], said["path"]) in ("GET run", "PUT parts of a merged run")
    return merging


def outages(plan, found, rng, where):
    """The store does not respond for a while; then, if what it has is on disk, it is gone for a while."""
    place, store = where
    server = Server(place).ready()
    senders = Senders(found, server.otlp, rng)
    time.sleep(2.0)
    outage(found, senders, plan.frozen_s, "frozen", (store.freeze, store.thaw))
    # moto keeps all in memory, Azurite the latest writes.
    if store.name != "moto":
        time.sleep(5.0)
        begins = store.end if store.name == "azurite" else store.kill
        outage(found, senders, plan.gone_s, "gone", (begins, store.start))
    time.sleep(5.0)
    store.freeze()
    time.sleep(3.0)
    senders.stop()
    errors = collections.Counter(said["message"] for said in server.complaints())
    found.say(f"  what it logged meanwhile: {dict(errors)}; refused: {dict(senders.refused())}")
    begun = time.monotonic()
    code = server.stop()
    found.say(f"stopped while the store is frozen: ends with {code} after {time.monotonic() - begun:.0f} s")
    store.thaw()


def outage(found, senders, seconds, what, ways):
    begins, ends = ways
    since = time.monotonic()
    begins()
    time.sleep(seconds)
    ends()
    until = time.monotonic()
    time.sleep(3.0)
    took = senders.took_ms(since, until)
    found.say(
        f"the store was {what} for {until - since:.0f} s: {len(took)} batches were acknowledged that came meanwhile, "
        f"after {quantile(took, 0.5):.1f} ms (p50), {max(took, default=0.0):.0f} ms (most)"
    )


def starts(found, store, place):
    """A server that cannot use its tables says why, and ends."""
    wrong = {"AWS_SECRET_ACCESS_KEY": "wrong", "AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="}
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AZURITE_BLOB_STORAGE_URL": "http://127.0.0.1:9"}
    no_bucket = dataclasses.replace(place, tables=place.tables.replace(BUCKET, "nowhere"))
    tried = [("no bucket", no_bucket, {}), ("nobody listens", place, nowhere)]
    if store.name != "moto":
        tried.append(("a wrong key", place, wrong))
    for what, at, settings in tried:
        refused(found, what, Server(at, settings), at.tables)
    store.freeze()
    try:
        refused(found, "a store that does not respond", Server(place), place.tables)
    finally:
        store.thaw()


def refused(found, what, server, tables):
    begun = time.monotonic()
    try:
        code = server.process.wait(START_LIMIT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        raise Wrong(f"{what}: curtail server does not end") from None
    said = [line for line in server.said().splitlines() if not line.startswith("{")]
    if code not in (2, 3) or not any(tables in line for line in said):
        raise Wrong(f"{what}: ended with {code} and said {said}")
    said = " ".join(said)
    shown = said if len(said) <= SHOWN_MAX else f"{said[:SHOWN_MAX]} …"
    found.say(f"started with {what}: ends with {code} after {time.monotonic() - begun:.1f} s: {shown}")


def check(plan, found, rng, place):
    """Counts what is there: by the API some of what was acknowledged and all that was not, by another reader all."""
    server = Server(place).ready()
    connection = http.client.HTTPConnection(server.api, timeout=60)
    some = set(rng.sample(sorted(found.acknowledged), min(plan.asked, len(found.acknowledged))))
    doubtful = set(found.sent) - found.acknowledged
    by_api = {trace_id: spans_of(trace_id, connection)[0] for trace_id in sorted(some | doubtful)}
    server.stop()
    compare(found, some, by_api, "the API")
    counted = reader(PYTHON, place.environment, "count", f"{place.tables}/spans", "trace_id")
    compare_table(found, "spans", counted["rows"], "deltalake")
    operations, files = counted["operations"], counted["files"]
    found.say(
        f"{len(found.acknowledged)} acknowledged batches of {len(found.sent)} are there exactly once by deltalake, "
        f"{len(some)} of them and {len(doubtful)} that were not acknowledged asked by the API; commits {operations}, "
        f"files {files}"
    )
