"""Compares Curtail's load generator with wrk and h2load: accuracy across a pause of the server, cost, and lag.

Pause. The harness stops an nginx that responds from memory for a second (SIGSTOP), in the middle of a run at a fixed
rate. A request planned t seconds into the pause waits for the rest of the pause. Percentiles therefore follow from
arithmetic: at r requests a second, the k-th longest wait is the pause minus k / r. wrk 4.1 sends the next request of a
connection only after a response, so each connection meets the pause once. At the end of a run, wrk adds corrected
samples at the mean interval between two requests of a connection, and its p99 counts both.

Cost. Each generator in turn runs alone on its core, against the same server on another core. All have the same number
of connections, and send as fast as the server responds. The figure is the processor time of the generator's process,
with its start and end. Curtail has no such mode: its rate is above the capacity of the server, so requests always wait
for a connection.

Lag. Curtail sends at fixed rates below saturation. The lag is the time from the planned to the actual start of a
request. The figure is the median of the rounds, because a hypervisor sometimes suspends a virtual machine for
milliseconds.
"""

import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from harness import load, peers, processes
from harness.report import machine_table, markdown_table, text_table

SERVER_CORE, GENERATOR_CORE = 0, 1
PORT = 21001
CURTAIL, WRK, H2LOAD = "curtail", "wrk", "h2load"
# Maximum of Curtail's CPU time per request, as a multiple of that of the other generator.
CPU_RATIO_MAX = {H2LOAD: 1.0, WRK: 2.0}
LAG_US_MAX = 100
ERROR_MAX = 0.02


@dataclass(frozen=True)
class Plan:
    rounds: int = 5
    flat_out_s: int = 5
    connections: int = 32
    rates: tuple = (1_000, 10_000, 40_000)
    pause_rate: int = 1_000
    pause_run_s: int = 20
    pause_s: float = 1.0


QUICK = Plan(rounds=1, flat_out_s=2, rates=(1_000,), pause_run_s=20)


def measure(plan, program, print_line):
    """Runs the plan; returns plain values and the commands."""
    scratch = Path(tempfile.mkdtemp(prefix="curtail-bench-"))
    try:
        command = peers.nginx_command("servers.conf", scratch)
        server = processes.ServerProcess("servers", command, SERVER_CORE, [PORT], scratch / "servers.log")
        try:
            commands, rounds = [], range(plan.rounds)
            results = {"commands": commands, "pause": measure_pause(plan, program, server, commands, print_line)}
            results["cost"] = [measure_cost(plan, program, [] if nth else commands, print_line) for nth in rounds]
            results["lag"] = {r: [measure_lag(plan, program, r, print_line) for _ in rounds] for r in plan.rates}
            return results
        finally:
            server.stop()
    finally:
        shutil.rmtree(scratch)


def generator_command(name, program, seconds, connections, rate):
    url = load.url(load.HTTP1, PORT)
    if name == WRK:
        return ["wrk", "-t1", "-c", connections, "-d", f"{seconds}s", "--latency", url]
    if name == H2LOAD:
        return ["h2load", "--h1", "-t1", "-c", connections, "-D", seconds, url]
    return [
        program, "bench", "load", url, "--rate", rate, "--for", f"{seconds}s", "--spacing", "even", "--threads", 1,
        "--connections", connections, "--format", "json",
    ]  # fmt: skip


def run_generator(command, seconds):
    """Runs a generator; returns its output and its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    generator = processes.spawn(command, GENERATOR_CORE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = generator.communicate(timeout=2 * seconds + load.GRACE_S + 40)
    except subprocess.TimeoutExpired:
        raise load.LoadError(f"{command[0]} exceeds its time limit") from None
    finally:
        if generator.poll() is None:
            generator.kill()
            generator.wait()
    # Curtail exits with 1 after a void run; its output says so.
    if generator.returncode not in (0, 1):
        raise load.LoadError(f"{command[0]} failed with exit code {generator.returncode}: {errors[-1000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return output, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_pause(plan, program, server, commands, print_line):
    """Stops the server during a run of Curtail and of wrk; returns their percentiles and the expected ones, in ms."""
    results = {}
    for name in (CURTAIL, WRK):
        command = generator_command(name, program, plan.pause_run_s, 10 if name == WRK else 1_024, plan.pause_rate)
        commands.append(" ".join(map(str, command)))
        pauses_s = []
        timer = threading.Timer(plan.pause_run_s / 2, lambda: pauses_s.append(pause_server(server, plan.pause_s)))
        timer.start()
        try:
            output, _cpu_s = run_generator(command, plan.pause_run_s)
        finally:
            timer.join()
        if name == CURTAIL:
            figures = json.loads(output)["figures"][0]
            results[name] = {"p99": figures["response"]["p99_ns"] / 1e6, "p99.9": figures["response"]["p99_9_ns"] / 1e6}
            results["requests"], results["pause_ms"] = figures["requests"], pauses_s[0] * 1e3
        else:
            results[name] = {"p99": parse_ms(load.search_output(r"\n +99% +(\S+)", output))}
    for quantile, share in (("p99", 0.01), ("p99.9", 0.001)):
        longer_ms = share * results["requests"] / plan.pause_rate * 1e3
        results.setdefault("expected", {})[quantile] = results["pause_ms"] - longer_ms
    print_line(f"generator: pause: {results}")
    return results


def pause_server(server, seconds):
    """Stops every process of the server for a while; returns the actual duration in seconds."""
    pids = processes.list_process_tree(server.process.pid)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    time.sleep(seconds)
    end = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    return end - start


def parse_ms(text):
    """Parses a duration in the format of wrk; returns milliseconds."""
    for unit, factor in (("us", 1e-3), ("ms", 1.0), ("s", 1e3)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise load.LoadError(f"expected a duration from wrk, found {text!r}")


def measure_cost(plan, program, commands, print_line):
    """Runs each generator flat out; returns its processor time per request in µs, and its requests a second."""
    results = {}
    for name in (WRK, H2LOAD, CURTAIL):
        rate = 1.5 * max((result["rate"] for result in results.values()), default=0)
        command = generator_command(name, program, plan.flat_out_s, plan.connections, round(rate))
        if name == CURTAIL:
            # Ends the requests that still wait at the end of the run.
            command += ["--timeout", "2s"]
        output, cpu_s = run_generator(command, plan.flat_out_s)
        commands.append(" ".join(map(str, command)))
        if name == CURTAIL:
            document = json.loads(output)
            figures = document["figures"][0]
            requests = figures["requests"] - figures["failed"]
            seconds = document["blocks"][0]["lasted_ns"] / 1e9
        else:
            requests, seconds = load.parse_wrk(output) if name == WRK else load.parse_h2load(output), plan.flat_out_s
        results[name] = {"cpu_us": 1e6 * cpu_s / requests, "rate": requests / seconds}
    print_line(f"generator: flat out: {results}")
    return results


def measure_lag(plan, program, rate, print_line):
    """Runs Curtail at this rate; returns its lag and its processor time per request, in µs."""
    command = generator_command(CURTAIL, program, plan.flat_out_s, 128, rate)
    output, cpu_s = run_generator(command, plan.flat_out_s)
    figures = json.loads(output)["figures"][0]
    result = {"p99_us": figures["lag_p99_ns"] / 1e3, "p99_9_us": (figures["lag_p99_9_ns"] or 0) / 1e3}
    result |= {"cpu_us": 1e6 * cpu_s / figures["requests"], "failed": figures["failed"]}
    print_line(f"generator: {rate} requests/s: {result}")
    return result


def pause_rows(results):
    rows = [("pause, ms", "p99", "p99.9")]
    rows.append(("arithmetic", *(f"{results['expected'][q]:.1f}" for q in ("p99", "p99.9"))))
    rows.append((CURTAIL, *(f"{results[CURTAIL][q]:.1f}" for q in ("p99", "p99.9"))))
    rows.append((WRK, f"{results[WRK]['p99']:.1f}", "-"))
    return rows


def cost_rows(rounds):
    rows = [("flat out", "CPU µs", "range", "requests/s", "curtail / generator (CPU)")]
    curtail_us = statistics.median(results[CURTAIL]["cpu_us"] for results in rounds)
    for name in (CURTAIL, H2LOAD, WRK):
        costs = sorted(results[name]["cpu_us"] for results in rounds)
        rate = statistics.median(results[name]["rate"] for results in rounds)
        median = statistics.median(costs)
        ratio = curtail_us / median
        rows.append((name, f"{median:.2f}", f"{costs[0]:.2f}-{costs[-1]:.2f}", f"{rate:,.0f}", f"{ratio:.2f}"))
    return rows


def lag_rows(results):
    rows = [("requests/s", "lag p99 µs", "range", "lag p99.9 µs", "range", "CPU µs", "failed")]
    for rate, rounds in results.items():
        row = [f"{rate:,}"]
        for key in ("p99_us", "p99_9_us"):
            values = sorted(result[key] for result in rounds)
            row += [f"{statistics.median(values):.0f}", f"{values[0]:.0f}-{values[-1]:.0f}"]
        row.append(f"{statistics.median(result['cpu_us'] for result in rounds):.1f}")
        rows.append((*row, str(sum(result["failed"] for result in rounds))))
    return rows


def target_rows(results):
    """One row per target: the measured value, and whether the target is met."""
    targets = []
    for quantile, expected in results["pause"]["expected"].items():
        error = results["pause"][CURTAIL][quantile] / expected - 1
        name = f"pause: {quantile} within {ERROR_MAX:.0%} of arithmetic"
        targets.append((name, f"{error:+.2%}", abs(error) <= ERROR_MAX))
    curtail_us = statistics.median(round[CURTAIL]["cpu_us"] for round in results["cost"])
    for name, limit in CPU_RATIO_MAX.items():
        ratio = curtail_us / statistics.median(round[name]["cpu_us"] for round in results["cost"])
        targets.append((f"CPU per request: at most {limit:.1f} x {name}", f"{ratio:.2f}", ratio <= limit))
    for rate, rounds in results["lag"].items():
        lag_us = statistics.median(result["p99_us"] for result in rounds)
        targets.append((f"{rate:,} requests/s: lag p99 at most {LAG_US_MAX} µs", f"{lag_us:.0f}", lag_us <= LAG_US_MAX))
    rate = statistics.median(round[CURTAIL]["rate"] for round in results["cost"])
    targets.append(("at least 60,000 requests/s from one core", f"{rate:,.0f}", rate >= 60_000))
    return [("target", "measured", "met")] + [(*target, "yes" if is_met else "NO") for *target, is_met in targets]


def terminal(results):
    tables = (pause_rows(results["pause"]), cost_rows(results["cost"]), lag_rows(results["lag"]), target_rows(results))
    return "\n\n".join(map(text_table, tables))


def page(results, plan, date, machine_description):
    method = "\n\n".join(" ".join(part.split()) for part in __doc__.split("\n\n")[1:])
    tables = (target_rows(results), pause_rows(results["pause"]), cost_rows(results["cost"]), lag_rows(results["lag"]))
    commands = "\n".join(results["commands"])
    return (
        f"# Load generators, {date}\n\n`bench/run --only generator`, {plan.rounds} rounds\n\n{method}\n\n"
        f"{machine_table(machine_description)}\n\n"
        + "\n\n".join(map(markdown_table, tables))
        + f"\n\n```\n{commands}\n```\n"
    )
