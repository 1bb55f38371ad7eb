"""Changes single bytes of Parquet files of spans, and checks the query results.

Each query first runs on the undamaged files. With a changed byte, each result must be the same, or it must report a run
that the server cannot read (`curtail-incomplete`), and the log must name the file. The test fails if a result is wrong
without such a report.

- **pages**: one byte before the footer and indexes of a file, while the server runs;
- **footer**: one byte of the footer or indexes of another file. The server is stopped, because it reads them at start;
- **merge input**: one byte of a file that should be merged. The server must log its name, and merge other files.

Each byte is restored before the next is changed.
"""

import http.client
import json
import time
from contextlib import contextmanager
from dataclasses import replace

from harness.exactly_once import CheckError
from harness.live_server import Server
from harness.otlp import NS_PER_S
from harness.sending import Senders
from harness.table_counts import check_tables

SERVER_RUNS = 3
LOAD_S = 0.3
# For each server run; a query of a trace reads all columns.
TRACE_QUERIES = 10
QUERIES = (
    "/api/metrics/query?q=%7B+%7D+%7C+count_over_time%28%29+by+%28resource.service.name%29&start=0&end=9000000000",
    "/api/metrics/query?q=%7B+%7D+%7C+quantile_over_time%28duration%2C+0.5%2C+0.99%29+by+%28name%29"
    "&start=0&end=9000000000",
    "/api/search?limit=20&q=%7B+resource.service.name+%3D+%22cart%22+%7D+with+%28slowest%3Dtrue%29",
)
MERGE_LIMIT_S = 60
# A Parquet file ends with the length of the footer and the magic bytes.
LENGTH_BYTES, MAGIC_BYTES = 4, 4


def measure(plan, report, rng, config):
    # The server flushes only when it stops, and has too few runs to merge.
    no_merge_config = replace(config, arguments=("--set", "memtable=256MiB", "--set", "flush_every=1h"))
    writes = [write_runs(report, rng, no_merge_config) for _ in range(SERVER_RUNS)]
    page_file, footer_file = (max(files, key=lambda file: file.stat().st_size) for files, _ in writes[:2])
    times_s = [batch.time_ns // NS_PER_S for batch in report.sent_batches.values()]
    time_range = f"&start={min(times_s)}&end={max(times_s) + 1}"
    paths = [f"{query}{time_range}" for query in QUERIES]
    paths += [f"/api/v2/traces/{trace}" for _, traces in writes for trace in traces[:TRACE_QUERIES]]
    server = Server(no_merge_config).wait_until_ready()
    try:
        expected = {path: result for path, (result, _) in run_queries(server, paths).items()}
        damage_pages(plan, report, rng, (server, page_file, expected))
    finally:
        server.kill_if_alive()
    damage_footer(plan, report, rng, (no_merge_config, footer_file, expected))
    damage_merge_input(report, rng, config, page_file)


def write_runs(report, rng, config):
    """Runs a server with senders until it has flushed; returns the new files of spans, and the IDs of their traces."""
    spans = config.data / "tables" / "spans"
    earlier_files, earlier_ids = set(spans.glob("day=*/*.parquet")), set(report.acknowledged_ids)
    server = Server(config).wait_until_ready()
    senders = Senders(report, server.otlp, rng)
    time.sleep(LOAD_S)
    senders.stop()
    server.stop()
    return set(spans.glob("day=*/*.parquet")) - earlier_files, sorted(report.acknowledged_ids - earlier_ids)


def run_queries(server, paths):
    """Returns, by path, the result (or the status of an error) and the number of runs that it reports as missing."""
    connection = http.client.HTTPConnection(server.api, timeout=60)
    results = {}
    for path in paths:
        connection.request("GET", path, headers={"accept": "application/json"})
        response = connection.getresponse()
        body = response.read()
        result = json.loads(body) if response.status == 200 else response.status
        results[path] = result, int(response.getheader("curtail-incomplete") or 0)
    return results


@contextmanager
def change_byte(file, at, mask):
    """Changes one byte of a file, and restores it on exit."""
    with file.open("r+b") as opened:
        opened.seek(at)
        original = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([original ^ mask]))
    try:
        yield
    finally:
        with file.open("r+b") as opened:
            opened.seek(at)
            opened.write(bytes([original]))


def find_footer(file):
    """Returns begin and end of what a server reads at start: the footer, and as many bytes of indexes before it."""
    content = file.read_bytes()
    footer_bytes = int.from_bytes(content[-LENGTH_BYTES - MAGIC_BYTES : -MAGIC_BYTES], "little")
    return len(content) - 2 * footer_bytes, len(content)


def damage_pages(plan, report, rng, context):
    server, file, expected = context
    outcomes = Outcomes(report, "a page", file)
    pages_end, _ = find_footer(file)
    for _ in range(plan.flips):
        at, mask, offset = rng.randrange(MAGIC_BYTES, pages_end), rng.randrange(1, 256), server.log.stat().st_size
        with change_byte(file, at, mask):
            outcomes.add((at, mask), expected, run_queries(server, expected), server.warnings(offset))
    outcomes.print_counts()


def damage_footer(plan, report, rng, context):
    config, file, expected = context
    outcomes = Outcomes(report, "the footer", file)
    begin, end = find_footer(file)
    for _ in range(plan.footer_flips):
        at, mask = rng.randrange(begin, end), rng.randrange(1, 256)
        with change_byte(file, at, mask):
            server = Server(config).wait_until_ready()
            try:
                outcomes.add((at, mask), expected, run_queries(server, expected), server.warnings())
            finally:
                server.kill_if_alive()
    outcomes.print_counts()


class Outcomes:
    """Counts the outcomes of changed bytes in one part of a file."""

    def __init__(self, report, part, file):
        self.report, self.part, self.file = report, part, file
        self.same = self.reported = 0
        self.wrong = []
        self.example = None

    def add(self, change, expected, results, warnings):
        """Compares results with those of the undamaged file. `change`: position and XOR mask of the byte."""
        wrong = [path for path, (result, missing) in results.items() if result != expected[path] and not missing]
        if wrong:
            self.wrong.append((change, [(path, results[path][0]) for path in wrong]))
        elif not any(missing for _, missing in results.values()):
            self.same += 1
        else:
            naming = [fields for fields in warnings if self.file.name in str(fields)]
            if not naming:
                raise CheckError(
                    f"{self.file}, byte {change}: the log does not name it: {warnings[:3]}; seed {self.report.seed}"
                )
            self.reported += 1
            self.example = self.example or naming[0]

    def print_counts(self):
        total = self.reported + self.same + len(self.wrong)
        self.report.add_line(
            f"changed a byte of {self.part} {total} times: {self.reported} times results report a missing run and the "
            f"log names it; {self.same} times all results are the same; {len(self.wrong)} times results are wrong "
            f"without a report"
        )
        self.report.add_line(f"  example of the log: {self.example}")
        for (at, mask), results in self.wrong[:10]:
            path, result = results[0]
            self.report.add_line(
                f"  WRONG: byte {at} of {self.file.stat().st_size}, XOR {mask:#x}: {len(results)} results, for example "
                f"{path}: {str(result)[:300]}"
            )
        if self.wrong:
            changes = f"{len(self.wrong)} changed bytes of {self.part}"
            raise CheckError(f"{changes} cause wrong results without a report; seed {self.report.seed}")


def damage_merge_input(report, rng, config, file):
    with change_byte(file, find_footer(file)[0] // 2, 1):
        server = Server(config).wait_until_ready()
        try:
            senders = Senders(report, server.otlp, rng)
            limit = time.monotonic() + MERGE_LIMIT_S
            while not (naming := find_warnings(server, file)) or not has_merged(server):
                if time.monotonic() > limit or not server.is_alive():
                    raise CheckError(
                        f"{file.name} is not in the log, or no run is merged: {server.warnings()}; seed {report.seed}"
                    )
                time.sleep(0.1)
            senders.stop()
            server.stop()
        finally:
            server.kill_if_alive()
    report.add_line(f"changed a byte of a page before a merge: the server merges other runs, and logs {naming[0]}")
    check_tables(report, config.data / "tables")


def find_warnings(server, file):
    """The warnings that name a file."""
    return [fields for fields in server.warnings() if file.name in str(fields)]


def has_merged(server):
    return any(event["fields"].get("message") == "compacted" for event in server.log_events())
