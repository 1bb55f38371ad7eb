"""`curtail server` with its tables in an object store that is really asked over HTTP, and what becomes of it there.

In this order, all on one table:

- **figures**: senders for a while; how long acknowledgements take, which requests that costs, then traces by ID;
- **starts**: a server whose store does not answer, whose bucket is not there, whose key is wrong;
- **kills**: the server is killed (SIGKILL) at random moments, every second time while it merges runs;
- **outages**: the store is frozen for a while, then it is gone for a while where it can be; senders go on;
- **check**, after both: every acknowledged batch is there exactly once, what was not acknowledged once or not at all, by
  our API and by another reader of Delta tables.
"""

import collections
import http.client
import json
import os
import random
import re
import select
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness.object_servers import BUCKET, PYTHON, url
from harness.peers import BENCH
from harness.processes import StartError
from harness.spans import SPANS_OF_A_BATCH, Sender, quantile

SENDERS = 4
START_LIMIT_S = 60
END_LIMIT_S = 120
# Whoever is to be killed while it merges must begin to within this.
MERGE_LIMIT_S = 30
# What a server says when it cannot start goes on with what the store has said.
SHOWN_MAX = 320
# Of HTTP, below which nothing of the store is told.
TARGET = "curtail_objects::http"


class Wrong(Exception):
    """Something is lost, doubled, or not said."""


@dataclass(frozen=True)
class Plan:
    figures_s: float = 30.0
    kills: int = 12
    frozen_s: float = 20.0
    gone_s: float = 20.0
    asked: int = 300


QUICK = Plan(figures_s=5.0, kills=3, frozen_s=5.0, gone_s=5.0, asked=50)


@dataclass
class Found:
    """What came of one store."""

    name: str
    seed: int
    lines: list = field(default_factory=list)
    acknowledged: set = field(default_factory=set)
    sent: set = field(default_factory=set)

    def say(self, text):
        self.lines.append(text)
        print(f"{self.name}: {text}", flush=True)


class Server:
    """`curtail server` on ports that the system chose."""

    def __init__(self, program, store, scratch, tables, settings=None):
        self.log = Path(scratch) / "curtail.log"
        self.begins = self.log.stat().st_size if self.log.exists() else 0
        command = [program, "server", "--data", Path(scratch) / "data", "--tables", tables]
        command += ["--otlp", "127.0.0.1:0", "--api", "127.0.0.1:0", "--memory", "1", "--flush-every", "1"]
        environment = os.environ | store.settings | {"CURTAIL_LOG": "info,curtail_objects=debug"} | (settings or {})
        with self.log.open("ab") as err:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                env=environment,
                bufsize=0,
                start_new_session=True,
            )

    def ready(self):
        """Waits until it listens."""
        self.otlp = self._address("otlp http://")
        self.api = self._address("api  http://")
        self.listens = self.log.stat().st_size
        return self

    def _address(self, prefix):
        line = self._line()
        if not line.startswith(prefix):
            self.kill()
            raise StartError(f"curtail server: expected a line {prefix!r}, found {line!r}. Its log:\n{self.said()[-2000:]}")
        return line.removeprefix(prefix).split()[0]

    def _line(self):
        """Byte by byte, so that nothing lies in a buffer where select would not see it."""
        line = b""
        while not line.endswith(b"\n") and select.select([self.process.stdout], [], [], START_LIMIT_S)[0]:
            byte = self.process.stdout.read(1)
            if not byte:
                break
            line += byte
        return line.decode()

    def said(self, since=None):
        """What it has logged since it was started, or since its log was so long."""
        with self.log.open("rb") as log:
            log.seek(self.begins if since is None else since)
            return log.read().decode(errors="replace")

    def events(self, since=None):
        """Its log line by line; the last one may be in the writing."""
        for line in self.said(since).splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Has it write what it has."""
        self.process.terminate()
        return self.process.wait(END_LIMIT_S)

    def spans_of(self, trace_id, connection):
        """How many spans of a trace there are, and how long that took in ms."""
        begun = time.monotonic()
        connection.request("GET", f"/api/traces/{trace_id}")
        answer = connection.getresponse()
        body = answer.read()
        took_ms = (time.monotonic() - begun) * 1e3
        if answer.status == 404:
            return 0, took_ms
        if answer.status != 200 or answer.getheader("curtail-unread"):
            raise Wrong(f"trace {trace_id}: {answer.status}, unread runs {answer.getheader('curtail-unread')}")
        return len(re.findall(rb'"spanId"', body)), took_ms


class Senders:
    """Some that send at once."""

    def __init__(self, found, address, rng):
        self.found = found
        self.all = [Sender(address, rng.randrange(1 << 32)) for _ in range(SENDERS)]
        for sender in self.all:
            sender.start()

    def stop(self):
        for sender in self.all:
            sender.stop()
        for sender in self.all:
            sender.join(Sender.LIMIT_S)
        for sender in self.all:
            self.found.acknowledged.update(sender.acknowledged)
            self.found.sent.update(sender.sent)

    def took_ms(self, since=0.0, until=float("inf")):
        return [ms for sender in self.all for begun, ms in sender.took_ms if since <= begun < until]

    def refused(self):
        return dict(sum((collections.Counter(sender.refused) for sender in self.all), collections.Counter()))


def measure(plan, program, store, scratch, seed):
    """All of it, on one store."""
    found, rng = Found(store.name, seed), random.Random(seed)
    tables = url(store, f"seed-{seed}")
    store.start()
    try:
        reader(store, "make", BUCKET)
        starts(found, program, store, scratch, tables)
        figures(plan, found, rng, (program, store, scratch, tables))
        kills(plan, found, rng, (program, store, scratch, tables))
        check(plan, found, rng, (program, store, scratch, tables))
        outages(plan, found, rng, (program, store, scratch, tables))
        check(plan, found, rng, (program, store, scratch, tables))
    finally:
        store.stop()
    return found


def figures(plan, found, rng, where):
    server = Server(*where).ready()
    senders = Senders(found, server.otlp, rng)
    time.sleep(plan.figures_s)
    senders.stop()
    took = senders.took_ms()
    spans = len(took) * SPANS_OF_A_BATCH
    found.say(
        f"acknowledged {len(took)} batches of {SPANS_OF_A_BATCH} spans in {plan.figures_s:.0f} s by {SENDERS} senders "
        f"({spans / plan.figures_s:.0f} spans/s): p50 {quantile(took, 0.5):.1f} ms, p99 {quantile(took, 0.99):.1f} ms"
    )
    server.stop()
    runs, merged, requests = tally(server.events())
    found.say(f"written {runs} runs, merged {merged} times, with these requests:")
    for what, count in sorted(requests.items()):
        found.say(f"  {what}: {count}")
    server = Server(*where).ready()
    before = sum(tally(server.events())[2].values())
    connection = http.client.HTTPConnection(server.api, timeout=60)
    ids = rng.choices(sorted(found.acknowledged), k=plan.asked)
    took = [server.spans_of(trace_id, connection)[1] for trace_id in ids]
    after = sum(tally(server.events())[2].values())
    found.say(
        f"a trace by ID, {plan.asked} asked: p50 {quantile(took, 0.5):.1f} ms, p99 {quantile(took, 0.99):.1f} ms, "
        f"{(after - before) / plan.asked:.1f} requests each"
    )
    server.stop()


def tally(events):
    """How many runs were written, how often runs were merged, and how often the store was asked what."""
    runs = merged = 0
    requests = collections.Counter()
    for event in events:
        said = event.get("fields", {})
        runs += said.get("message") == "written"
        merged += said.get("message") == "runs merged"
        if event.get("target") == TARGET:
            requests[kind(said["method"], said["path"])] += 1
    return runs, merged, requests


def kind(method, path):
    """What a request is for."""
    path, _, query = path.partition("?")
    if "restype=container" in query or "list-type=" in query:
        what = "list"
    elif "_delta_log" in path:
        what = "log of a table"
    elif "comp=block" in query or "upload" in query:
        what = "parts of a merged run"
    elif "day%3D" in path or "day=" in path:
        what = "run"
    else:
        what = "other"
    return f"{method} {what}"


def kills(plan, found, rng, where):
    """Kills the server again and again, each time while senders send."""
    merging = 0
    for nth in range(plan.kills):
        server = Server(*where).ready()
        senders = Senders(found, server.otlp, rng)
        limit = time.monotonic() + MERGE_LIMIT_S
        while nth % 2 and not is_merging(server) and time.monotonic() < limit:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.05) if nth % 2 else rng.uniform(0.2, 6.0))
        server.kill()
        senders.stop()
        merging += is_merging(server)
    found.say(f"killed {plan.kills} times, {merging} of them while it merged; {len(found.acknowledged)} batches so far")


def is_merging(server):
    """Whether a server that nobody asks for traces has read runs, or sent parts of one, and not said that they are
    merged. Before it listens it reads the ends of all."""
    merging = False
    for event in server.events(server.listens):
        said = event.get("fields", {})
        if said.get("message") == "runs merged":
            merging = False
        elif event.get("target") == TARGET:
            merging |= kind(said["method"], said["path"]) in ("GET run", "PUT parts of a merged run")
    return merging


def outages(plan, found, rng, where):
    """The store does not answer for a while; then, if what it has is on disk, it is gone for a while."""
    store = where[1]
    server = Server(*where).ready()
    senders = Senders(found, server.otlp, rng)
    time.sleep(2.0)
    outage(found, senders, plan.frozen_s, "frozen", (store.freeze, store.thaw))
    # moto keeps all in memory, Azurite what it was told last.
    if store.name != "moto":
        time.sleep(5.0)
        begins = store.end if store.name == "azurite" else store.kill
        outage(found, senders, plan.gone_s, "gone", (begins, store.start))
    time.sleep(5.0)
    store.freeze()
    time.sleep(3.0)
    senders.stop()
    errors = collections.Counter(
        event["fields"]["message"] for event in server.events() if event.get("level") in ("ERROR", "WARN")
    )
    found.say(f"  what it logged meanwhile: {dict(errors)}; refused by status: {senders.refused()}")
    begun = time.monotonic()
    code = server.stop()
    found.say(f"told to end while the store is frozen: ends with {code} after {time.monotonic() - begun:.0f} s")
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


def starts(found, program, store, scratch, tables):
    """A server that cannot use its tables says why, and ends."""
    wrong = {"AWS_SECRET_ACCESS_KEY": "wrong", "AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="}
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AZURITE_BLOB_STORAGE_URL": "http://127.0.0.1:9"}
    tried = [("no bucket", tables.replace(BUCKET, "nowhere"), {}), ("nobody listens", tables, nowhere)]
    if store.name != "moto":
        tried.append(("a wrong key", tables, wrong))
    for what, at, settings in tried:
        refused(found, what, Server(program, store, scratch, at, settings), at)
    store.freeze()
    try:
        refused(found, "a store that does not answer", Server(program, store, scratch, tables), tables)
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


def check(plan, found, rng, where):
    """Counts what is there: by the API some of what was acknowledged and all that was not, by another reader all."""
    _, store, _, tables = where
    server = Server(*where).ready()
    connection = http.client.HTTPConnection(server.api, timeout=60)
    some = set(rng.sample(sorted(found.acknowledged), min(plan.asked, len(found.acknowledged))))
    doubtful = found.sent - found.acknowledged
    by_api = {trace_id: server.spans_of(trace_id, connection)[0] for trace_id in sorted(some | doubtful)}
    server.stop()
    compare(found, some, by_api, "the API")
    counted = json.loads(reader(store, "count", f"{tables}/spans"))
    compare(found, found.acknowledged, counted["traces"], "deltalake")
    unknown = set(counted["traces"]) - found.sent
    if unknown:
        raise Wrong(f"{len(unknown)} traces that nobody has sent")
    operations, files = counted["operations"], counted["files"]
    found.say(
        f"{len(found.acknowledged)} acknowledged batches of {len(found.sent)} are there exactly once by deltalake, "
        f"{len(some)} of them and {len(doubtful)} that were not acknowledged asked by the API; commits {operations}, "
        f"files {files}"
    )


def compare(found, acknowledged, counted, by):
    """What was acknowledged is there once; the rest once or not at all."""
    lost = [trace for trace in acknowledged if not counted.get(trace)]
    torn = [trace for trace, spans in counted.items() if spans not in (0, SPANS_OF_A_BATCH)]
    if lost or torn:
        odd = [(trace, counted[trace]) for trace in torn[:3]]
        raise Wrong(f"by {by} {len(lost)} batches are lost ({lost[:3]}), {len(torn)} are not there once ({odd}); seed {found.seed}")


def reader(store, command, what):
    done = subprocess.run(
        [PYTHON, "-m", "harness.delta_reader", command, what],
        cwd=BENCH,
        env=os.environ | store.settings,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        raise Wrong(f"{command} {what}: the other reader ended with {done.returncode}")
    return done.stdout
