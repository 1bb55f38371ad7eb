"""What one tenant costs the others: how long acknowledgements take while a neighbor does its worst.

One tenant sends 512 spans a batch at a fixed rate, and each wait is counted from when the batch was due. It does so
alone, and then once beside each kind of neighbor, on a fresh server each. All of them share the cores: noisy neighbors that
take processor time of the server's take it of the sender's as well.
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
from harness.report import markdown_table, text_table
from harness.store import run_sender, waits

ALONE = "nobody"


@dataclass(frozen=True)
class Plan:
    """Rates in spans a second; `stored` spans are there before the first batch that counts, for the queries."""

    stored: int = 2_000_000
    rate: int = 50_000
    spans: int = 500_000
    times: int = 2
    senders: int = 32
    memory_mib: int = 64


QUICK = Plan(stored=100_000, spans=100_000, times=1)
SEND_LIMIT_S = 120
# Not the seed of the batches that count; the time of spans follows from it, and stays within that of the queries.
STORED_SEED = 5


def measure(plan, programs, kinds, say):
    """Plain values of each kind of neighbor, and of none."""
    scratch = Path(tempfile.mkdtemp(prefix="curtail-bench-"))
    try:
        found = {}
        for name in [ALONE, *kinds]:
            found[name] = beside(plan, programs, name, scratch)
            say(f"tenants: beside {name}: {found[name]}")
        return found
    finally:
        shutil.rmtree(scratch)


def beside(plan, programs, name, scratch):
    """The waits of the tenant beside one kind of neighbor."""
    program, sender = programs
    folder = scratch / name.replace(" ", "-")
    with store_server.Server(program, folder, folder.with_suffix(".log"), plan.memory_mib) as server:
        store_before(plan, sender, server, folder.with_suffix(".tsv"))
        neighbor = None if name == ALONE else begin(name, server)
        try:
            waited = waits(took for _due, took in send(plan, sender, server, folder.with_suffix(".tsv")))
        finally:
            responses = end(neighbor) if neighbor else {}
        return waited | {"responses": responses, "peak_memory_bytes": server.peak_memory_bytes()}


def begin(name, server):
    command = [sys.executable, "-m", "harness.noisy_neighbors", name, server.otlp, server.api]
    neighbor = subprocess.Popen(command, cwd=BENCH, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if neighbor.stdout.readline() != "begun\n":
        neighbor.kill()
        neighbor.wait()
        raise processes.StartError(f"the neighbor {name!r} does not begin")
    return neighbor


def end(neighbor):
    """The number of its responses, by status."""
    neighbor.terminate()
    try:
        return json.loads(neighbor.communicate(timeout=10)[0])
    except subprocess.TimeoutExpired:
        neighbor.kill()
        neighbor.wait()
        raise processes.StartError("the neighbor does not end") from None


def store_before(plan, sender, server, log):
    """As fast as the server acknowledges them; other spans than those that count."""
    words = {"to": server.otlp, "protocol": "http", "spans": plan.stored, "senders": plan.senders, "seed": STORED_SEED}
    run_sender([sender, *(f"{name}={value}" for name, value in words.items())], log, SEND_LIMIT_S)


def send(plan, sender, server, log):
    """When each batch was due, and how long it waited; all must be taken."""
    words = {"to": server.otlp, "protocol": "http", "spans": plan.spans, "times": plan.times, "rate": plan.rate}
    command = [sender, *(f"{name}={value}" for name, value in (words | {"senders": plan.senders}).items())]
    return run_sender(command, log, SEND_LIMIT_S)


def rows(found):
    """A table, its head first."""
    table = [("beside", "p50 ms", "p99 ms", "p99.9 ms", "peak MiB", "its responses")]
    for name, of in found.items():
        responses = ", ".join(f"{count} of {status}" for status, count in sorted(of["responses"].items()))
        what = f"{name}: {KINDS[name].what}" if name in KINDS else name
        times = [f"{of[quantile]:.1f}" for quantile in ("p50", "p99", "p999")]
        table.append((what, *times, f"{of['peak_memory_bytes'] / (1 << 20):.0f}", responses or "-"))
    return table


def terminal(found):
    return text_table(rows(found))


def page(found, plan, date, described):
    machine = markdown_table([("machine", "")] + [(name, str(value)) for name, value in described.items()])
    said = " ".join(__doc__.split("\n\n", 1)[1].split())
    return (
        f"# Tenants, {date}\n\n`bench/run --only tenants`\n\n{said} It sends {plan.rate:,} spans a second; responses are"
        f" counted by HTTP's status, 0 is a connection that was closed.\n\n{machine}\n\n{markdown_table(rows(found))}\n"
    )
