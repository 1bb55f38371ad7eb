"""Checks that four engines read the same rows from tables that two servers write and merge while they are killed.

Each server has its own log and its own senders of spans, log records and points; both flush to the same tables and both
merge runs. At random times, one server is killed (SIGKILL) and started again; the servers alternate. At the end:

- every acknowledged batch must be stored exactly once, every other batch once or not at all, and no further rows;
- ClickHouse, deltalake with pyarrow, polars and curtail-sql must return the same counts, sums, minima and maxima. For
  spans, log records and points, these must match the stored batches as they were sent.
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
from harness.exactly_once import CheckError, DeliveryReport
from harness.live_server import Server, ServerConfig
from harness.peers import BENCH
from harness.report import text_table
from harness.sending import Senders
from harness.table_counts import PYTHON, check_tables

# For each server.
SENDER_TABLES = ("spans", "spans", "logs", "points")
ENGINES_LIMIT_S = 600


@dataclass(frozen=True)
class Plan:
    seconds: float = 60.0
    kills: int = 6


QUICK = Plan(seconds=15.0, kills=2)


class Writer:
    """A server and its senders."""

    def __init__(self, report, config, rng):
        self.report, self.config, self.rng = report, config, rng
        self.merge_count = self.kill_count = self.conflict_count = 0
        self.warnings = Counter()
        self.start()

    def start(self):
        self.server = Server(self.config).wait_until_ready()
        self.senders = Senders(self.report, self.server.otlp, self.rng, SENDER_TABLES)

    def kill(self):
        self.server.kill()
        self.senders.stop()
        self.kill_count += 1
        self.count_log_events()

    def stop(self):
        self.senders.stop()
        code = self.server.stop()
        self.count_log_events()
        if code != 0:
            raise CheckError(f"a server exited with {code}. Its log:\n{self.server.read_log()[-2000:]}")

    def count_log_events(self):
        """Counts merges, conflicts with merges of the other server, and other warnings."""
        self.merge_count += sum(event["fields"].get("message") == "compacted" for event in self.server.log_events())
        for fields in self.server.warnings():
            if "the change is refused" in fields.get("error", ""):
                self.conflict_count += 1
            else:
                self.warnings[fields["message"]] += 1


def measure(plan, programs, scratch, seed):
    """Runs writers and engines. `programs`: the paths of curtail and curtail-sql."""
    program, sql_program = programs
    report, rng = DeliveryReport("readers", seed), random.Random(seed)
    shared = Path(scratch) / "shared"
    tables = shared / "tables"
    configs = [ServerConfig(program, Path(scratch) / name, f"file://{tables}") for name in ("one", "other")]
    for config in configs:
        config.folder.mkdir()
    run_writers(plan, report, rng, configs)
    stored_ids = check_tables(report, tables)
    results = run_engines(shared, sql_program)
    report.add_line("results of each engine:\n" + format_results(results))
    check_results(report, results, stored_ids)
    report.add_line("the results of all engines are equal, and match the stored batches")
    return report


def run_writers(plan, report, rng, configs):
    """Runs the servers, and kills one after the other."""
    writers = []
    try:
        for config in configs:
            writers.append(Writer(report, config, rng))
        kill_times = sorted(rng.uniform(0.0, plan.seconds) for _ in range(plan.kills))
        begin = time.monotonic()
        for nth, kill_time in enumerate(kill_times):
            time.sleep(max(0.0, begin + kill_time - time.monotonic()))
            writers[nth % 2].kill()
            writers[nth % 2].start()
        time.sleep(max(0.0, begin + plan.seconds - time.monotonic()))
        for writer in writers:
            writer.stop()
    finally:
        for writer in writers:
            writer.server.kill_if_alive()
    for name, writer in zip(("one", "other"), writers):
        report.add_line(
            f"server {name}: {writer.kill_count} kills, {writer.merge_count} merges, {writer.conflict_count} conflicts "
            f"with merges of the other server; other warnings: {dict(writer.warnings) or 'none'}"
        )


def run_engines(shared, program):
    """Returns, by engine, the result of each table and the version of the engine."""
    done = subprocess.run(
        # ClickHouse reads only files below its working directory.
        [PYTHON, "-m", "harness.engines", shared, program], cwd=shared, env={"PYTHONPATH": str(BENCH)},
        stdout=subprocess.PIPE, text=True, timeout=ENGINES_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise CheckError(f"harness.engines exited with {done.returncode}")
    return json.loads(done.stdout)


def format_results(results):
    """A text table with a row for each table and engine."""
    rows = [("table", "engine", "rows", "batches", "sum", "first", "last", "by service")]
    for table in TABLES:
        for engine, (tables, version) in results.items():
            result = tables[table]
            services = ", ".join(f"{service or 'none'} {rows}" for service, rows in result["by service"].items())
            totals = (str(result[name]) for name in ("rows", "batches", "sum", "first", "last"))
            rows.append((table, f"{engine} {version}", *totals, services))
    return text_table(rows)


def check_results(report, results, stored_ids):
    """Checks that all engines return the same result, which must match the stored batches of a table that was sent."""
    for table in TABLES:
        distinct = {json.dumps(tables[table]) for tables, _ in results.values()}
        if table in stored_ids:
            distinct.add(json.dumps(expected_result([report.sent_batches[id] for id in stored_ids[table]])))
        if len(distinct) != 1:
            raise CheckError(f"{table}: results differ, or are not as sent: {sorted(distinct)}; seed {report.seed}")


def expected_result(batches):
    """The result that an engine must return for a table with these batches."""
    services = Counter()
    for batch in batches:
        services[batch.service] += otlp.BATCH_ROWS
    return {
        "rows": len(batches) * otlp.BATCH_ROWS, "batches": len(batches),
        "sum": sum(batch.value_sum for batch in batches),
        "first": min(batch.time_ns for batch in batches), "last": max(batch.time_ns for batch in batches),
        "by service": dict(sorted(services.items())),
    }  # fmt: skip
