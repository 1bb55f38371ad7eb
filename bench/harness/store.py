"""What the trace store costs: spans in, durable and merged; and the cost of queries.

Two servers on fresh folders take the same spans, one over HTTP and one over gRPC, as fast as they acknowledge them.
When all is acknowledged the server is stopped, which writes what is in memory; it is started again, and says when
nothing is left to compact. The processor time of both lives, start and end included, is what the spans have cost:
nothing of it can be put off beyond the measurement.

A third takes spans at a fixed rate. How long a batch waited for its acknowledgement is counted from when it was due,
and apart for batches that waited while runs were being merged, which the server's log tells. Its memtables are small,
so that runs are merged often.

Then questions are asked: to the server over HTTP, to the library (`cargo bench`), and to ClickHouse in process, which
reads the same Delta table.
"""

import http.client
import random
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import cargo_benches, delta_log, load, processes, questions, store_server
from harness.peers import BENCH, target
from harness.store_server import Server

SEED = 1
SPANS_A_TRACE = 8
# A sender that hangs is ended.
SEND_LIMIT_S = 900
PROTOCOLS = ("http", "grpc")


@dataclass(frozen=True)
class Plan:
    """How much is measured; rates in spans a second."""

    spans: int = 10_000_000
    senders: int = 16
    memory_mib: int = 128
    paced_rate: int = 100_000
    paced_different: int = 2_000_000
    paced_times: int = 5
    paced_memory_mib: int = 32
    lookups: int = 1_000
    rounds: int = 21
    clickhouse_lookups: int = 50
    library_millions: int = 10


QUICK = Plan(
    spans=1_000_000, memory_mib=16, paced_different=500_000, paced_times=2, paced_memory_mib=8, lookups=200, rounds=5,
    clickhouse_lookups=5, library_millions=1,
)  # fmt: skip


@dataclass
class Bench:
    """What the steps need."""

    plan: Plan
    program: Path
    sender: Path
    scratch: Path
    say: object
    commands: list


def build_server():
    """Build the server as it is shipped; return its path."""
    cargo = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "curtail"]
    if subprocess.run(cargo, cwd=BENCH.parent, check=False).returncode != 0:
        raise cargo_benches.CargoError("curtail does not build")
    return target() / "release" / "curtail"


def build(say):
    """Build the server and the sender as they are shipped; return their paths."""
    say("store: building curtail and the sender")
    return build_server(), cargo_benches.program("curtail-ingest", "load")


def measure(plan, programs, say):
    """Run the whole plan; return plain values ready for JSON."""
    scratch = Path(tempfile.mkdtemp(prefix="curtail-bench-"))
    bench = Bench(plan, *programs, scratch, say, [])
    try:
        measured = {"ingest": {}}
        for protocol in PROTOCOLS:
            with merged(bench, protocol, measured["ingest"]) as server:
                if protocol == PROTOCOLS[-1]:
                    measured["questions"] = ask(bench, protocol, server)
            shutil.rmtree(scratch / protocol)
        measured["paced"] = paced(bench)
        return measured | {"commands": bench.commands}
    finally:
        shutil.rmtree(scratch)


def send(bench, server, log, **words):
    """Run the sender to its end; its lines go to `log`. Returns the seconds that sending took."""
    words = {"to": server.otlp, "senders": bench.plan.senders, "seed": SEED, **words}
    command = [bench.sender, *(f"{name}={value}" for name, value in words.items())]
    bench.commands.append(" ".join(map(str, command)))
    rows = run_sender(command, log, SEND_LIMIT_S)
    return (max(due + took for due, took in rows) - min(due for due, _took in rows)) / 1e6


def run_sender(command, log, limit_s):
    """Run the sender to its end, with the priority of the server; returns its rows, which `log` keeps.

    At a lower priority a busy server would take its processor time, and the wait for a core would count as a wait for
    the acknowledgement.
    """
    with log.open("wb") as out:
        sender = processes.spawn(command, store_server.ALL_CORES, stdout=out, stderr=subprocess.PIPE, text=True)
    try:
        _, said = sender.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise load.LoadError(f"the sender still ran after {limit_s} s") from None
    finally:
        if sender.poll() is None:
            sender.kill()
            sender.wait()
    if sender.returncode != 0:
        raise load.LoadError(f"the sender ended with {sender.returncode}: {said}")
    return parse(log.read_text())


def parse(text):
    """When each batch was due, in microseconds since 1970, and the microseconds until it was acknowledged."""
    rows = [tuple(map(int, line.split("\t"))) for line in text.splitlines()]
    return [(due, took) for due, _status, took in rows]


def merged(bench, protocol, into):
    """Send all spans as fast as they are taken, and have all of them merged; return the server that has them."""
    plan, scratch = bench.plan, bench.scratch
    data, log = scratch / protocol, scratch / f"{protocol}.log"
    with Server(bench.program, data, log, plan.memory_mib) as server:
        bench.commands.append(" ".join(map(str, server.command)))
        ids = scratch / f"{protocol}.ids"
        sent_s = send(bench, server, scratch / f"{protocol}.tsv", protocol=protocol, spans=plan.spans, ids=ids)
        peak_bytes = server.peak_memory_bytes()
        merges = server.merges()
        stopping = time.monotonic()
        cpu_s = server.stop()
        complaints = server.complaints()
    server = Server(bench.program, data, scratch / f"{protocol}-again.log", plan.memory_mib)
    try:
        server.wait_until_merged()
        rest_s = time.monotonic() - stopping
        cpu_s += server.cost().cpu_ns / 1e9
        at_rest = delta_log.live(data / "tables" / "spans")
        if at_rest.rows != plan.spans:
            raise load.LoadError(f"{plan.spans} spans were acknowledged over {protocol}, the table has {at_rest.rows}")
    except BaseException:
        server.stop()
        raise
    merges += server.merges()
    into[protocol] = {
        "spans": plan.spans, "cpu_us_per_span": cpu_s * 1e6 / plan.spans, "spans_per_second_per_core": plan.spans / cpu_s,
        "sent_s": sent_s, "spans_per_second": plan.spans / sent_s, "rest_s": rest_s, "merges": len(merges),
        "merging_s": sum(merge.end_s - merge.begin_s for merge in merges), "peak_memory_bytes": peak_bytes,
        "bytes_per_span": at_rest.size_bytes / at_rest.rows, "files": at_rest.files, "rows": at_rest.rows,
        "complaints": [event["fields"] for event in complaints],
    }  # fmt: skip
    bench.say(f"store: {protocol}, {plan.spans:,} spans in {sent_s:.1f} s, {cpu_s * 1e6 / plan.spans:.2f} us each")
    return server


def paced(bench):
    """Send at a rate; return how long acknowledgements took, while runs were being merged and while none were."""
    plan, scratch = bench.plan, bench.scratch
    words = {"protocol": "http", "spans": plan.paced_different, "times": plan.paced_times, "rate": plan.paced_rate}
    with Server(bench.program, scratch / "paced", scratch / "paced.log", plan.paced_memory_mib) as server:
        bench.commands.append(" ".join(map(str, server.command)))
        log = scratch / "paced.tsv"
        took_s = send(bench, server, log, senders=64, **words)
        merges = server.merges()
    rows = parse(log.read_text())
    spans = plan.paced_different * plan.paced_times
    bench.say(f"store: paced, {spans:,} spans in {took_s:.1f} s, {len(merges)} merges")
    during, apart = split(rows, merges)
    return {
        "rate": spans / took_s, "merges": len(merges), "merging_s": sum(m.end_s - m.begin_s for m in merges),
        "all": waits(took for _due, took in rows), "during": waits(during), "apart": waits(apart),
    }  # fmt: skip


def split(rows, merges):
    """The waits of batches that waited while runs were being merged, and of the others."""
    during, apart = [], []
    for due, took in rows:
        begin_s, end_s = due / 1e6, (due + took) / 1e6
        is_during = any(begin_s < merge.end_s and merge.begin_s < end_s for merge in merges)
        (during if is_during else apart).append(took)
    return during, apart


def waits(took):
    """Quantiles of waits, in milliseconds, and how many there were."""
    ordered = sorted(took)
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {"count": len(ordered)} | {name: quantile(ordered, share) / 1e3 for name, share in shares.items()}


def quantile(ordered, share):
    """The value of rank ceil(share * n), as the rest of Curtail has it; nan of nothing."""
    if not ordered:
        return float("nan")
    rank = max(1, -int(-share * len(ordered) // 1))
    return ordered[rank - 1]


def ask(bench, protocol, server):
    """Ask every question of everybody; return the milliseconds of each."""
    plan = bench.plan
    ids = (bench.scratch / f"{protocol}.ids").read_text().split()
    drawn = random.Random(SEED).sample(ids, min(len(ids), plan.lookups))
    responses = {"curtail, HTTP": over_http(server.api, drawn, plan.rounds)}
    bench.say("store: asking the library")
    printed = cargo_benches.measure("curtail-store", "query", [str(plan.library_millions)])
    responses["curtail, library"] = questions.parse_library(printed)
    bench.say("store: asking ClickHouse")
    table = bench.scratch / protocol / "tables" / "spans"
    responses["clickhouse"], counted = questions.clickhouse(table, drawn[: plan.clickhouse_lookups], plan.rounds)
    if counted != plan.spans:
        raise load.LoadError(f"ClickHouse counts {counted} spans, {plan.spans} were acknowledged")
    return {"by": responses}


def over_http(address, ids, rounds):
    """Questions as clients ask them, over one connection."""
    connection = http.client.HTTPConnection(address, timeout=60)
    took = {questions.TRACE: []}
    for trace_id in [*ids[:20], *ids]:
        began = time.perf_counter()
        connection.request("GET", f"/api/v2/traces/{trace_id}", headers={"accept": "application/json"})
        response = connection.getresponse()
        body = response.read()
        took[questions.TRACE].append((time.perf_counter() - began) * 1e3)
        spans = body.count(b'"spanId"') if response.status == 200 else 0
        if spans != SPANS_A_TRACE:
            raise load.LoadError(f"trace {trace_id}: {response.status}, {spans} spans, expected {SPANS_A_TRACE}")
    # The first ones were to warm up.
    del took[questions.TRACE][:20]
    for question in questions.QUESTIONS:
        if question.path:
            took[question.name] = [questions.ask(connection, question.target()) for _ in range(rounds + 1)][1:]
    connection.close()
    return {name: summary(all_of_them) for name, all_of_them in took.items()}


def summary(took):
    """Median and p99 of milliseconds."""
    ordered = sorted(took)
    return {"p50": quantile(ordered, 0.5), "p99": quantile(ordered, 0.99), "count": len(ordered)}
