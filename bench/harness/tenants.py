"""Measures the cost of noisy neighbors for a tenant: the wait for an acknowledgement, without and with a neighbor.

The tenant sends batches of 512 spans at a fixed rate. A wait counts from the planned time of its batch. The tenant
sends without a neighbor, and then once next to each kind of noisy neighbor; each measurement has a new server. All
processes share the cores, so a neighbor takes processor time from the server and from the tenant's sender.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import processes, store_server
from harness.noisy_neighbors import KINDS
from harness.peers import BENCH
from harness.report import machine_table, markdown_table, text_table
from harness.store import run_sender, summarize_waits

NO_NEIGHBOR = "none"


@dataclass(frozen=True)
class Plan:
    """The size of a run: `rate` is spans a second; the server stores `stored` spans first, for the queries."""

    stored: int = 2_000_000
    rate: int = 50_000
    spans: int = 500_000
    times: int = 2
    senders: int = 32
    memory_mib: int = 64


QUICK = Plan(stored=100_000, spans=100_000, times=1)
SEND_LIMIT_S = 120
# Differs from the seed of the measured batches; gives the spans times in the range of the queries.
STORED_SEED = 5


def measure(plan, programs, kinds, print_line):
    """Measures without a neighbor, and with each kind of neighbor; returns plain values by kind."""
    scratch = Path(tempfile.mkdtemp(prefix="curtail-bench-"))
    try:
        results = {}
        for name in [NO_NEIGHBOR, *kinds]:
            results[name] = measure_neighbor(plan, programs, name, scratch)
            print_line(f"tenants: neighbor {name}: {results[name]}")
        return results
    finally:
        shutil.rmtree(scratch)


def measure_neighbor(plan, programs, name, scratch):
    """Measures the waits of the tenant with one kind of neighbor."""
    program, sender = programs
    folder = scratch / name.replace(" ", "-")
    with store_server.Server(program, folder, folder.with_suffix(".log"), plan.memory_mib) as server:
        preload_spans(plan, sender, server, folder.with_suffix(".tsv"))
        neighbor = None if name == NO_NEIGHBOR else start_neighbor(name, server)
        try:
            rows = send_spans(plan, sender, server, folder.with_suffix(".tsv"))
        finally:
            responses = stop_neighbor(neighbor) if neighbor else {}
        waits = summarize_waits(wait for _planned, wait in rows)
        return waits | {"responses": responses, "peak_memory_bytes": server.peak_memory_bytes()}


def start_neighbor(name, server):
    command = [sys.executable, "-m", "harness.noisy_neighbors", name, server.otlp, server.api]
    neighbor = subprocess.Popen(command, cwd=BENCH, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if neighbor.stdout.readline() != "started\n":
        neighbor.kill()
        neighbor.wait()
        raise processes.StartError(f"the neighbor {name!r} failed to start")
    return neighbor


def stop_neighbor(neighbor):
    """Stops a neighbor; returns the number of its responses, by status."""
    neighbor.terminate()
    try:
        return json.loads(neighbor.communicate(timeout=10)[0])
    except subprocess.TimeoutExpired:
        neighbor.kill()
        neighbor.wait()
        raise processes.StartError("the neighbor failed to stop") from None


def preload_spans(plan, sender, server, log):
    """Stores spans before the measurement, as fast as the server acknowledges them."""
    options = {"to": server.otlp, "protocol": "http", "spans": plan.stored, "senders": plan.senders}
    command = [sender, *(f"{name}={value}" for name, value in (options | {"seed": STORED_SEED}).items())]
    run_sender(command, log, SEND_LIMIT_S)


def send_spans(plan, sender, server, log):
    """Sends the measured batches; returns the planned time and the wait of each. All must be acknowledged."""
    options = {"to": server.otlp, "protocol": "http", "spans": plan.spans, "times": plan.times, "rate": plan.rate}
    command = [sender, *(f"{name}={value}" for name, value in (options | {"senders": plan.senders}).items())]
    return run_sender(processes.at_real_time(command), log, SEND_LIMIT_S)


def rows(results):
    """The rows of the table, heading first."""
    table = [("neighbor", "p50 ms", "p99 ms", "p99.9 ms", "peak MiB", "neighbor's responses (status: count)")]
    for name, result in results.items():
        responses = ", ".join(f"{status}: {count}" for status, count in sorted(result["responses"].items()))
        label = f"{name}: {KINDS[name].description}" if name in KINDS else name
        waits = [f"{result[quantile]:.1f}" for quantile in ("p50", "p99", "p999")]
        table.append((label, *waits, f"{result['peak_memory_bytes'] / (1 << 20):.0f}", responses or "-"))
    return table


def terminal(results):
    return text_table(rows(results))


def page(results, plan, date, machine_description):
    method = " ".join(__doc__.split("\n\n", 1)[1].split())
    return (
        f"# Tenants, {date}\n\n`bench/run --only tenants`\n\n{method} The tenant sends {plan.rate:,} spans a"
        f" second. Responses are counted by HTTP status; 0 is a closed connection.\n\n"
        f"{machine_table(machine_description)}\n\n{markdown_table(rows(results))}\n"
    )
