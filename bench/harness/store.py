"""Measures the trace store: the cost of a durable, compacted span, the wait for an acknowledgement, and queries.

Two servers with new folders receive the same spans, one over HTTP and one over gRPC, as fast as they acknowledge them.
The harness then stops the server, which flushes its memtables, starts it again, and waits until it logs that nothing is
left to compact. The cost of the spans is the processor time before and after the restart, so it includes deferred work.

A third server receives spans at a fixed rate. The wait of a batch counts from its planned time to its acknowledgement.
Batches that waited during a compaction have a separate figure; the server's log has the times of compactions. Small
memtables make compactions frequent.

The queries run in the server (over HTTP), in the library (`cargo bench`), and in ClickHouse, in process, on the same
Delta table.
"""

import http.client
import random
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import cargo_benches, delta_log, load, processes, queries, store_server
from harness.peers import BENCH, target_folder
from harness.store_server import Server

SEED = 1
SPANS_PER_TRACE = 8
# Unmeasured queries before those that count.
WARM_UP_LOOKUPS = 20
SEND_LIMIT_S = 900
PROTOCOLS = ("http", "grpc")


@dataclass(frozen=True)
class Plan:
    """The size of a run; rates are in spans a second."""

    spans: int = 10_000_000
    senders: int = 16
    memory_mib: int = 128
    paced_rate: int = 100_000
    paced_distinct: int = 2_000_000
    paced_repeats: int = 5
    paced_memory_mib: int = 32
    lookups: int = 1_000
    rounds: int = 21
    clickhouse_lookups: int = 50
    library_millions: int = 10


QUICK = Plan(
    spans=1_000_000, memory_mib=16, paced_distinct=500_000, paced_repeats=2, paced_memory_mib=8, lookups=200, rounds=5,
    clickhouse_lookups=5, library_millions=1,
)  # fmt: skip


@dataclass
class Bench:
    """The inputs of each step, and the commands that the steps ran."""

    plan: Plan
    program: Path
    sender: Path
    scratch: Path
    print_line: object
    commands: list


def build_server():
    """Builds the server in the release profile; returns its path."""
    cargo = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "curtail"]
    if subprocess.run(cargo, cwd=BENCH.parent, check=False).returncode != 0:
        raise cargo_benches.CargoError("curtail failed to build")
    return target_folder() / "release" / "curtail"


def build(print_line):
    """Builds the server and the sender in the release profile; returns their paths."""
    print_line("store: building curtail and the sender")
    return build_server(), cargo_benches.build_bench("curtail-ingest", "load")


def measure(plan, programs, print_line):
    """Runs the whole plan; returns plain values."""
    scratch = Path(tempfile.mkdtemp(prefix="curtail-bench-"))
    bench = Bench(plan, *programs, scratch, print_line, [])
    try:
        measured = {"ingest": {}}
        for protocol in PROTOCOLS:
            with ingest(bench, protocol, measured["ingest"]) as server:
                if protocol == PROTOCOLS[-1]:
                    measured["queries"] = measure_queries(bench, protocol, server)
            shutil.rmtree(scratch / protocol)
        measured["paced"] = measure_paced(bench)
        return measured | {"commands": bench.commands}
    finally:
        shutil.rmtree(scratch)


def send_spans(bench, server, log, **options):
    """Runs the sender; its output goes to `log`. Returns the duration in seconds."""
    options = {"to": server.otlp, "senders": bench.plan.senders, "seed": SEED, **options}
    command = [bench.sender, *(f"{name}={value}" for name, value in options.items())]
    command = processes.at_real_time(command) if "rate" in options else command
    bench.commands.append(" ".join(map(str, command)))
    rows = run_sender(command, log, SEND_LIMIT_S)
    return (max(planned + wait for planned, wait in rows) - min(planned for planned, _wait in rows)) / 1e6


def run_sender(command, log, limit_s):
    """Runs the sender, whose output goes to `log`; returns its rows.

    A sender at a fixed rate should run at real-time priority: its own wait for a core counts as a wait for the
    acknowledgement.
    """
    with log.open("wb") as out:
        sender = processes.spawn(command, store_server.ALL_CORES, stdout=out, stderr=subprocess.PIPE, text=True)
    try:
        _, errors = sender.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise load.LoadError(f"the sender exceeds its time limit of {limit_s} s") from None
    finally:
        if sender.poll() is None:
            sender.kill()
            sender.wait()
    if sender.returncode != 0:
        raise load.LoadError(f"the sender failed with exit code {sender.returncode}: {errors}")
    return parse_rows(log.read_text())


def parse_rows(text):
    """The planned time of each batch, in us since 1970, and its wait for the acknowledgement, in us."""
    rows = [tuple(map(int, line.split("\t"))) for line in text.splitlines()]
    return [(planned, wait) for planned, _status, wait in rows]


def ingest(bench, protocol, measured):
    """Sends all spans, restarts the server, waits for compaction; adds figures to `measured`. Returns the server."""
    plan, scratch = bench.plan, bench.scratch
    data, log = scratch / protocol, scratch / f"{protocol}.log"
    with Server(bench.program, data, log, plan.memory_mib) as server:
        bench.commands.append(" ".join(map(str, server.command)))
        ids = scratch / f"{protocol}.ids"
        sent_s = send_spans(bench, server, scratch / f"{protocol}.tsv", protocol=protocol, spans=plan.spans, ids=ids)
        peak_bytes = server.peak_memory_bytes()
        compactions = server.compactions()
        stop_start = time.monotonic()
        cpu_s = server.stop()
        warnings = server.warnings()
    server = Server(bench.program, data, scratch / f"{protocol}-again.log", plan.memory_mib)
    try:
        server.wait_until_compacted()
        rest_s = time.monotonic() - stop_start
        cpu_s += server.cost().cpu_ns / 1e9
        at_rest = delta_log.sum_live_files(data / "tables" / "spans")
        if at_rest.rows != plan.spans:
            raise load.LoadError(f"{plan.spans} spans were acknowledged over {protocol}, the table has {at_rest.rows}")
    except BaseException:
        server.stop()
        raise
    compactions += server.compactions()
    cpu_us = cpu_s * 1e6 / plan.spans
    measured[protocol] = {
        "spans": plan.spans, "cpu_us_per_span": cpu_us, "spans_per_second_per_core": plan.spans / cpu_s,
        "sent_s": sent_s, "spans_per_second": plan.spans / sent_s, "rest_s": rest_s,
        "compactions": len(compactions), "compaction_s": total_s(compactions), "peak_memory_bytes": peak_bytes,
        "bytes_per_span": at_rest.size_bytes / at_rest.rows, "files": at_rest.files, "rows": at_rest.rows,
        "warnings": [event["fields"] for event in warnings],
    }  # fmt: skip
    bench.print_line(f"store: {protocol}, {plan.spans:,} spans in {sent_s:.1f} s, {cpu_us:.2f} us of CPU per span")
    return server


def measure_paced(bench):
    """Sends at a fixed rate; returns the waits for acknowledgements, with and without a concurrent compaction."""
    plan, scratch = bench.plan, bench.scratch
    options = {"protocol": "http", "spans": plan.paced_distinct, "times": plan.paced_repeats, "rate": plan.paced_rate}
    with Server(bench.program, scratch / "paced", scratch / "paced.log", plan.paced_memory_mib) as server:
        bench.commands.append(" ".join(map(str, server.command)))
        log = scratch / "paced.tsv"
        duration_s = send_spans(bench, server, log, senders=64, **options)
        compactions = server.compactions()
    rows = parse_rows(log.read_text())
    spans = plan.paced_distinct * plan.paced_repeats
    bench.print_line(f"store: paced, {spans:,} spans in {duration_s:.1f} s, {len(compactions)} compactions")
    during, outside = split_waits(rows, compactions)
    return {
        "rate": spans / duration_s, "compactions": len(compactions), "compaction_s": total_s(compactions),
        "all": summarize_waits(wait for _planned, wait in rows), "outside": summarize_waits(outside),
        "during": summarize_waits(during),
    }  # fmt: skip


def total_s(compactions):
    return sum(compaction.end_s - compaction.begin_s for compaction in compactions)


def split_waits(rows, compactions):
    """The waits that overlap a compaction, and the others."""
    during, outside = [], []
    for planned, wait in rows:
        begin_s, end_s = planned / 1e6, (planned + wait) / 1e6
        is_during = any(begin_s < compaction.end_s and compaction.begin_s < end_s for compaction in compactions)
        (during if is_during else outside).append(wait)
    return during, outside


def summarize_waits(waits_us):
    """The count of waits, and their quantiles in milliseconds."""
    ordered = sorted(waits_us)
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {"count": len(ordered)} | {name: quantile(ordered, share) / 1e3 for name, share in shares.items()}


def quantile(ordered, share):
    """The value of rank ceil(share * n), as in the rest of Curtail; NaN without values."""
    if not ordered:
        return float("nan")
    rank = max(1, -int(-share * len(ordered) // 1))
    return ordered[rank - 1]


def measure_queries(bench, protocol, server):
    """Runs every query in the server, the library and ClickHouse; returns the durations of each in milliseconds."""
    plan = bench.plan
    ids = (bench.scratch / f"{protocol}.ids").read_text().split()
    sample = random.Random(SEED).sample(ids, min(len(ids), plan.lookups))
    durations = {"curtail, HTTP": query_over_http(server.api, sample, plan.rounds)}
    bench.print_line("store: queries in the library")
    output = cargo_benches.run_benches("curtail-store", "query", [str(plan.library_millions)])
    durations["curtail, library"] = queries.parse_library_output(output)
    bench.print_line("store: queries in ClickHouse")
    table = bench.scratch / protocol / "tables" / "spans"
    sample = sample[: plan.clickhouse_lookups]
    durations["clickhouse"], row_count = queries.query_clickhouse(table, sample, plan.rounds)
    if row_count != plan.spans:
        raise load.LoadError(f"ClickHouse counts {row_count} spans, {plan.spans} were acknowledged")
    return durations


def query_over_http(address, ids, rounds):
    """Runs the queries over HTTP, on one connection."""
    connection = http.client.HTTPConnection(address, timeout=60)
    durations = {queries.TRACE: []}
    for trace_id in [*ids[:WARM_UP_LOOKUPS], *ids]:
        start = time.perf_counter()
        connection.request("GET", f"/api/v2/traces/{trace_id}", headers={"accept": "application/json"})
        response = connection.getresponse()
        body = response.read()
        durations[queries.TRACE].append((time.perf_counter() - start) * 1e3)
        spans = body.count(b'"spanId"') if response.status == 200 else 0
        if spans != SPANS_PER_TRACE:
            raise load.LoadError(f"trace {trace_id}: {response.status}, {spans} spans, expected {SPANS_PER_TRACE}")
    del durations[queries.TRACE][:WARM_UP_LOOKUPS]
    for query in queries.QUERIES:
        if query.path:
            durations[query.name] = [queries.time_query(connection, query.target()) for _ in range(rounds + 1)][1:]
    connection.close()
    return {name: summarize_durations(values) for name, values in durations.items()}


def summarize_durations(durations_ms):
    """The count, median and p99 of durations."""
    ordered = sorted(durations_ms)
    return {"p50": quantile(ordered, 0.5), "p99": quantile(ordered, 0.99), "count": len(ordered)}
