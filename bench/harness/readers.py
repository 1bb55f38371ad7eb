"""Two servers write and merge the same tables; one of them is killed meanwhile; then other engines read the tables.

Both have their own log, and both merge runs, so there are two writers and two compactors. Each has senders of spans, log
records and points. At a random moment one is killed (SIGKILL) and started again; then the other, and so on. When both
have ended:

- every acknowledged batch must be there exactly once, what was not acknowledged once or not at all, and nothing else;
- ClickHouse, deltalake with pyarrow, polars and curtail-sql must say the same counts, sums and extremes, which for spans,
  log records and points are also those of the batches that are there, as they were sent.
"""

import json
import random
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from harness import otlp
from harness.engines import TABLES
from harness.exactly_once import Found, Wrong
from harness.live_server import Place, Server
from harness.peers import BENCH
from harness.report import text_table
from harness.sending import Senders
from harness.table_counts import PYTHON, check

# Of each server.
SENT = ("spans", "spans", "logs", "points")
ENGINES_LIMIT_S = 600


@dataclass(frozen=True)
class Plan:
    seconds: float = 60.0
    kills: int = 6


QUICK = Plan(seconds=15.0, kills=2)


class Writer:
    """A server, and those who send to it."""

    def __init__(self, found, place, rng):
        self.found, self.place, self.rng = found, place, rng
        self.merged = self.killed = self.refused = 0
        self.complaints = Counter()
        self.start()

    def start(self):
        self.server = Server(self.place).ready()
        self.senders = Senders(self.found, self.server.otlp, self.rng, SENT)

    def kill(self):
        self.server.kill()
        self.senders.stop()
        self.killed += 1
        self.count()

    def stop(self):
        self.senders.stop()
        code = self.server.stop()
        self.count()
        if code != 0:
            raise Wrong(f"a server ended with {code}. Its log:\n{self.server.said()[-2000:]}")

    def count(self):
        """How often runs were merged, how often somebody else had merged them before, and what else was logged."""
        self.merged += sum(event["fields"].get("message") == "compacted" for event in self.server.events())
        for said in self.server.complaints():
            if "the change is refused" in said.get("error", ""):
                self.refused += 1
            else:
                self.complaints[said["message"]] += 1


def measure(plan, programs, scratch, seed):
    """All of it. `programs`: curtail, curtail-sql."""
    program, sql_program = programs
    found, rng = Found("readers", seed), random.Random(seed)
    shared = Path(scratch) / "shared"
    tables = shared / "tables"
    places = [Place(program, Path(scratch) / name, f"file://{tables}") for name in ("one", "other")]
    for place in places:
        place.folder.mkdir()
    write(plan, found, rng, places)
    there = check(found, tables)
    by_engine = ask(shared, sql_program)
    found.say("what each engine says:\n" + table_of(by_engine))
    agree(found, by_engine, there)
    found.say("all engines say the same, and the same as was sent")
    return found


def write(plan, found, rng, places):
    """Two servers, killed in turns."""
    writers = []
    try:
        for place in places:
            writers.append(Writer(found, place, rng))
        pauses = sorted(rng.uniform(0.0, plan.seconds) for _ in range(plan.kills))
        begun = time.monotonic()
        for nth, at in enumerate(pauses):
            time.sleep(max(0.0, begun + at - time.monotonic()))
            writers[nth % 2].kill()
            writers[nth % 2].start()
        time.sleep(max(0.0, begun + plan.seconds - time.monotonic()))
        for writer in writers:
            writer.stop()
    finally:
        for writer in writers:
            writer.server.end()
    for name, writer in zip(("one", "other"), writers):
        found.say(
            f"server {name}: killed {writer.killed} times, merged runs {writer.merged} times, "
            f"{writer.refused} times others had merged them first; logged besides: {dict(writer.complaints) or 'nothing'}"
        )


def ask(shared, program):
    """What every engine says of every table, and its version."""
    done = subprocess.run(
        # ClickHouse reads nothing that is not below the folder in which it is started.
        [PYTHON, "-m", "harness.engines", shared, program], cwd=shared, env={"PYTHONPATH": str(BENCH)},
        stdout=subprocess.PIPE, text=True, timeout=ENGINES_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise Wrong(f"harness.engines ended with {done.returncode}")
    return json.loads(done.stdout)


def table_of(by_engine):
    """A row for each table and engine."""
    rows = [("table", "engine", "rows", "batches", "sum", "first", "last", "by service")]
    for table in TABLES:
        for name, (said, version) in by_engine.items():
            of_table = said[table]
            services = ", ".join(f"{service or 'none'} {rows}" for service, rows in of_table["by service"].items())
            numbers = (str(of_table[name]) for name in ("rows", "batches", "sum", "first", "last"))
            rows.append((table, f"{name} {version}", *numbers, services))
    return text_table(rows)


def agree(found, by_engine, there):
    """All say the same; of what was sent, what was sent."""
    for table in TABLES:
        responses = {json.dumps(said[table]) for said, _ in by_engine.values()}
        if table in there:
            responses.add(json.dumps(expected([found.sent[id] for id in there[table]])))
        if len(responses) != 1:
            raise Wrong(f"{table}: not all say the same, or not what was sent: {sorted(responses)}; seed {found.seed}")


def expected(batches):
    """What an engine should say of a table with these batches."""
    services = Counter()
    for batch in batches:
        services[batch.service] += otlp.ROWS_OF_A_BATCH
    return {
        "rows": len(batches) * otlp.ROWS_OF_A_BATCH, "batches": len(batches), "sum": sum(batch.summed for batch in batches),
        "first": min(batch.at_ns for batch in batches), "last": max(batch.at_ns for batch in batches),
        "by service": dict(sorted(services.items())),
    }  # fmt: skip
