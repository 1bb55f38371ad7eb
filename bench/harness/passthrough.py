"""Measures the cost of a proxy that only forwards requests: processor time and peak memory (latency: added_latency.py).

A run has several rounds. A round visits every target once: the replicas without a proxy ("direct"), then each proxy,
newly started. Every second round has the reverse order, so that a slowdown of the machine affects first and last
equally. A ratio divides figures of the same round. A visit has two blocks for each protocol:

- paced: a fixed number of requests at a fixed rate, below the capacity of every target. Proxy, replicas and generator
  share one core. With a core of its own, a proxy would wake up across cores four times per request. On a virtual
  machine, each such wake-up is an exit to the hypervisor, and distorts the figure (on 2 virtual cores, every proxy had
  20 to 30 us more system time, and the difference varied).
- flat out: the proxy alone on one core, replicas and generator on the other, as many requests as possible.

The receiver of spans stands for another machine: it runs on the core that the proxy does not have, only while nothing else wants it.

A fixed number of unmeasured requests before each paced block fills the connection pools.
"""

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import load, peers, processes
from harness.processes import ServerProcess

DIRECT = "direct"
LOAD_CORE = 1
PROXY_CORE = 0


@dataclass(frozen=True)
class Plan:
    """The size of a run. Rates are in requests a second, over all connections."""

    rounds: int = 5
    rate: int = 5000
    paced_requests: int = 20_000
    warm_up_requests: int = 3_000
    flat_out_s: int = 2
    # For the measurement of added latency. Latencies of a virtual machine drift from second to second, so blocks are short:
    # both proxies of a pair see the same drift. In shorter ones, more than 1 % of the requests would open a connection.
    compared_rate: int = 2500
    compared_blocks: int = 100
    compared_s: int = 1


QUICK = Plan(rounds=2, paced_requests=8_000, warm_up_requests=1_000, flat_out_s=1, compared_blocks=4)


@dataclass
class Bench:
    """The inputs of a round: the plan, the replicas, the peers, and a folder for the files of processes."""

    plan: Plan
    servers: ServerProcess
    sink: ServerProcess
    peers: list
    scratch: Path

    def spans_received_bytes(self):
        """The bytes of spans that the sink has received."""
        return sum(int(line) for line in (self.scratch / "sink" / "spans.log").read_text().split())


def measure(plan, peer_names, print_line, measure_latency):
    """Runs the plan. Returns blocks and visits as plain values for JSON, the peers, and the result of
    `measure_latency`, which gets the scratch folder, the replicas and the sink, and runs last, while the replicas still run."""
    scratch = Path(tempfile.mkdtemp(prefix="curtail-bench-"))
    # If root starts nginx, its worker writes as another user.
    scratch.chmod(0o755)
    try:
        for name in ("servers", "sink", "nginx"):
            (scratch / name).mkdir()
        with (
            processes.no_autogroup(),
            start_nginx("servers", LOAD_CORE, peers.SERVER_PORTS, scratch) as servers,
            start_nginx("sink", PROXY_CORE, peers.SINK_PORTS, scratch, processes.ELSEWHERE) as sink,
        ):
            bench = Bench(plan, servers, sink, [peers.PEERS[name](scratch / "nginx") for name in peer_names], scratch)
            return run_rounds(bench, print_line), bench.peers, measure_latency(scratch, servers, sink)
    finally:
        shutil.rmtree(scratch)


def start_nginx(name, core, ports, scratch, nice=None):
    """Starts the nginx of bench/peers/`name`.conf."""
    command = peers.nginx_command(f"{name}.conf", scratch / name)
    return ServerProcess(name, command, core, ports, scratch / f"{name}.log", nice)


def place(proxies, receivers, core):
    """Moves proxies to a core, and the receivers of their spans and logs to the other one."""
    for proxy in proxies:
        proxy.pin(core)
    for receiver in receivers:
        receiver.pin(PROXY_CORE if core == LOAD_CORE else LOAD_CORE)


def run_rounds(bench, print_line):
    """Visits every target in every round; every second round has the reverse order."""
    blocks, visits = [], []
    targets = [None, *bench.peers]
    for number in range(1, bench.plan.rounds + 1):
        for peer in targets if number % 2 else reversed(targets):
            started = time.monotonic()
            name = peer.name if peer else DIRECT
            visit_blocks, visit = visit_proxy(bench, peer) if peer else (visit_direct(bench), None)
            blocks += [{"round": number, "target": name, **block} for block in visit_blocks]
            if visit:
                visits.append({"round": number, "target": name, **visit})
            print_line(f"round {number} of {bench.plan.rounds}: {name}, {time.monotonic() - started:.1f} s")
    return {"blocks": blocks, "visits": visits}


def visit_direct(bench):
    """Runs the blocks of the replicas without a proxy: the cost of a request at the server."""
    return [run_paced_block(bench, protocol, bench.servers, peers.REPLICA_PORTS) for protocol in load.PROTOCOLS]


def visit_proxy(bench, peer):
    """Starts a proxy, runs its blocks, and reads its peak memory before it stops."""
    blocks = []
    log = bench.scratch / f"{peer.name}.log"
    with ServerProcess(peer.name, peer.command, LOAD_CORE, peers.PROXY_PORTS.values(), log) as proxy:
        before = bench.spans_received_bytes()
        for protocol in load.PROTOCOLS:
            place([proxy], [bench.sink], LOAD_CORE)
            blocks.append(run_paced_block(bench, protocol, proxy, peers.PROXY_PORTS))
            place([proxy], [bench.sink], PROXY_CORE)
            blocks.append(run_flat_out_block(bench, protocol, proxy))
        peak = proxy.peak_memory_bytes()
    # Read after the stop, because a proxy sends its remaining spans while it stops.
    span_bytes = bench.spans_received_bytes() - before
    completed = sum(block["requests"] for block in blocks) + len(load.PROTOCOLS) * bench.plan.warm_up_requests
    return blocks, {"peak_memory_bytes": peak, "span_bytes_per_request": span_bytes / completed}


def run_paced_block(bench, protocol, process, ports):
    """Sends a fixed number of requests at a fixed rate; returns their cost for `process`."""
    plan, log = bench.plan, bench.scratch / "requests.log"
    load.send_paced(protocol, ports[protocol], plan.rate, plan.warm_up_requests, LOAD_CORE, log)
    before = process.cost()
    result = load.send_paced(protocol, ports[protocol], plan.rate, plan.paced_requests, LOAD_CORE, log)
    cost = process.cost() - before
    return {
        "kind": "paced",
        "protocol": protocol,
        "requests": result.requests,
        "requests_per_second": result.rate,
        **divide_cost(cost, result.requests),
    }


def run_flat_out_block(bench, protocol, proxy):
    """Sends as many requests as possible through the proxy, which has a core of its own."""
    before, started = proxy.cost(), time.monotonic()
    completed = load.send_flat_out(protocol, peers.PROXY_PORTS[protocol], bench.plan.flat_out_s, LOAD_CORE)
    cost, duration_s = proxy.cost() - before, time.monotonic() - started
    return {
        "kind": "flat_out",
        "protocol": protocol,
        "requests": completed,
        "requests_per_second": completed / bench.plan.flat_out_s,
        "busy_ratio": (cost.cpu_ns + cost.waited_ns) / 1e9 / duration_s,
        **divide_cost(cost, completed),
    }


def divide_cost(cost, requests):
    """The cost of one request, in nanoseconds."""
    return {
        "cpu_ns_per_request": cost.cpu_ns / requests,
        "user_ns_per_request": cost.user_s * 1e9 / requests,
        "system_ns_per_request": cost.system_s * 1e9 / requests,
        "waited_ns_per_request": cost.waited_ns / requests,
    }
