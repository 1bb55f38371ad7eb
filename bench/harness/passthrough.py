"""What a proxy costs when it only passes requests on: processor time, peak memory (latency: added_latency.py).

A run is some rounds. A round visits every target once: the replicas without a proxy ("direct"), then each proxy,
freshly started. The order turns round from one round to the next, so that a machine that slows down or warms up
treats first and last alike; ratios are taken inside a round. For each protocol a visit has two blocks:

- paced: a fixed number of requests at a fixed rate, below what any target can do. Proxy, replicas and generator
  share one core. On a core of its own a proxy would be woken across cores four times a request; on a virtual
  machine each such wake-up is an exit to the hypervisor, and the figure becomes that of the hypervisor (measured
  on 2 virtual cores: 20 to 30 us of system time more, whichever the proxy, and not steady);
- flat out: the proxy alone on one core, replicas and generator on the other, as many requests as get through.

The same number of requests goes before each paced block of every target to fill connection pools, unmeasured.
"""

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import load, peers
from harness.processes import Running

DIRECT = "direct"
LOAD_CORE = 1
PROXY_CORE = 0


@dataclass(frozen=True)
class Plan:
    """How much is measured. `rate` is in requests a second, over all connections."""

    rounds: int = 5
    rate: int = 5000
    paced_requests: int = 20_000
    warm_up_requests: int = 3_000
    flat_out_s: int = 2
    # For the comparison of latencies.
    compared_rate: int = 2000
    compared_blocks: int = 40
    compared_s: int = 5


QUICK = Plan(rounds=2, paced_requests=8_000, warm_up_requests=1_000, flat_out_s=1, compared_blocks=4, compared_s=2)


@dataclass
class Bench:
    """What a round needs: the plan, the replicas, the peers, and a folder for what processes write."""

    plan: Plan
    servers: Running
    peers: list
    scratch: Path

    def spans_received_bytes(self):
        """The bytes of spans that have reached the sink so far."""
        return sum(int(line) for line in (self.scratch / "servers" / "spans.log").read_text().split())


def measure(plan, compared, say, then):
    """Run the whole plan; return its blocks and visits, plain values ready for JSON, the peers compared, and what
    `then` measures last, while the replicas still run; its argument is the scratch folder."""
    scratch = Path(tempfile.mkdtemp(prefix="curtail-bench-"))
    # nginx writes as another user when root starts it.
    scratch.chmod(0o755)
    try:
        for name in ("servers", "nginx"):
            (scratch / name).mkdir()
        command = peers.nginx_command("servers.conf", scratch / "servers")
        log = scratch / "servers.log"
        with Running("replicas", command, LOAD_CORE, peers.SERVER_PORTS, log) as servers:
            bench = Bench(plan, servers, [peers.KNOWN[name](scratch / "nginx") for name in compared], scratch)
            return rounds(bench, say), bench.peers, then(scratch)
    finally:
        shutil.rmtree(scratch)


def rounds(bench, say):
    """Visit every target in every round, forwards and backwards in turn."""
    blocks, visits = [], []
    targets = [None, *bench.peers]
    for number in range(1, bench.plan.rounds + 1):
        for peer in targets if number % 2 else reversed(targets):
            started = time.monotonic()
            name = peer.name if peer else DIRECT
            visited, visit = visit_proxy(bench, peer) if peer else (visit_direct(bench), None)
            blocks += [{"round": number, "target": name, **block} for block in visited]
            if visit:
                visits.append({"round": number, "target": name, **visit})
            say(f"round {number} of {bench.plan.rounds}: {name}, {time.monotonic() - started:.1f} s")
    return {"blocks": blocks, "visits": visits}


def visit_direct(bench):
    """The blocks of the replicas without a proxy: the cost of a request at the server."""
    return [paced_block(bench, protocol, bench.servers, peers.REPLICA_PORTS) for protocol in load.PROTOCOLS]


def visit_proxy(bench, peer):
    """Start one proxy, run its blocks, and read its peak memory before it stops."""
    blocks = []
    log = bench.scratch / f"{peer.name}.log"
    with Running(peer.name, peer.command, LOAD_CORE, peers.PROXY_PORTS.values(), log) as proxy:
        before = bench.spans_received_bytes()
        for protocol in load.PROTOCOLS:
            proxy.pin(LOAD_CORE)
            blocks.append(paced_block(bench, protocol, proxy, peers.PROXY_PORTS))
            proxy.pin(PROXY_CORE)
            blocks.append(flat_out_block(bench, protocol, proxy))
        peak = proxy.peak_memory_bytes()
    # After the end: a proxy sends its remaining spans when it is stopped.
    received = bench.spans_received_bytes() - before
    completed = sum(block["requests"] for block in blocks) + len(load.PROTOCOLS) * bench.plan.warm_up_requests
    return blocks, {"peak_memory_bytes": peak, "span_bytes_per_request": received / completed}


def paced_block(bench, protocol, process, ports):
    """A fixed number of requests at a fixed rate, and what they cost `process`."""
    plan, log = bench.plan, bench.scratch / "requests.log"
    load.paced(protocol, ports[protocol], plan.rate, plan.warm_up_requests, LOAD_CORE, log)
    before = process.cost()
    seen = load.paced(protocol, ports[protocol], plan.rate, plan.paced_requests, LOAD_CORE, log)
    cost = process.cost() - before
    return {
        "kind": "paced",
        "protocol": protocol,
        "requests": seen.requests,
        "requests_per_second": seen.rate,
        **per_request(cost, seen.requests),
    }


def flat_out_block(bench, protocol, proxy):
    """As many requests as get through the proxy on a core of its own."""
    before, began = proxy.cost(), time.monotonic()
    completed = load.flat_out(protocol, peers.PROXY_PORTS[protocol], bench.plan.flat_out_s, LOAD_CORE)
    cost, took_s = proxy.cost() - before, time.monotonic() - began
    return {
        "kind": "flat_out",
        "protocol": protocol,
        "requests": completed,
        "requests_per_second": completed / bench.plan.flat_out_s,
        "busy_ratio": (cost.cpu_ns + cost.waited_ns) / 1e9 / took_s,
        **per_request(cost, completed),
    }


def per_request(cost, requests):
    """A cost as nanoseconds per request."""
    return {
        "cpu_ns_per_request": cost.cpu_ns / requests,
        "user_ns_per_request": cost.user_s * 1e9 / requests,
        "system_ns_per_request": cost.system_s * 1e9 / requests,
        "waited_ns_per_request": cost.waited_ns / requests,
    }
