"""The load generator beside wrk and h2load: what a pause looks like to each, what a request costs it, how late it is.

A pause. An nginx that responds from memory is stopped for a second (SIGSTOP) in the middle of a run at a fixed rate. Of a
request that was to be sent t seconds into the pause, a user waits what is left of it; so percentiles follow from
arithmetic: with n requests and r a second, the k-th longest waits the pause less k / r. wrk 4.1 sends again only when it
has a response, so each of its connections meets the pause once. At the end of a run it adds the requests that the mean
interval between two requests of a connection leaves room for, and its p99 is of both.

The cost. One generator after the other, alone on its core, against the same server on another core, as fast as the
server responds, with the same number of connections; processor time of the generator's process, start and end included.
Ours has no such mode: its plan is set above the capacity of the server, so that requests always wait for a connection.

Lateness. Ours at fixed rates below saturation: the time from when a request was to be sent to when it was; the median of
the rounds, for a virtual machine is taken off its processor for milliseconds now and then.
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
from harness.report import markdown_table, text_table

SERVER_CORE, GENERATOR_CORE = 0, 1
PORT = 21001
CURTAIL, WRK, H2LOAD = "curtail", "wrk", "h2load"
# No generator may cost more than these, as multiples of ours beside theirs.
LIMITS = {H2LOAD: 1.0, WRK: 2.0}
LATE_US_MAX = 100
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


def measure(plan, program, say):
    """Plain values, and the commands that they came from."""
    scratch = Path(tempfile.mkdtemp(prefix="curtail-bench-"))
    try:
        command = peers.nginx_command("servers.conf", scratch)
        server = processes.Running("servers", command, SERVER_CORE, [PORT], scratch / "servers.log")
        try:
            found = {"commands": []}
            found["pause"] = pause(plan, program, server, found["commands"], say)
            found["cost"] = [cost(plan, program, found["commands"] if nth == 0 else [], say) for nth in range(plan.rounds)]
            found["late"] = {rate: [lateness(plan, program, rate, say) for _ in range(plan.rounds)] for rate in plan.rates}
            return found
        finally:
            server.stop()
    finally:
        shutil.rmtree(scratch)


def command_of(name, program, seconds, connections, rate):
    url = load.url(load.HTTP1, PORT)
    if name == WRK:
        return ["wrk", "-t1", "-c", connections, "-d", f"{seconds}s", "--latency", url]
    if name == H2LOAD:
        return ["h2load", "--h1", "-t1", "-c", connections, "-D", seconds, url]
    return [
        program, "bench", "load", url, "--rate", rate, "--for", f"{seconds}s", "--spacing", "even", "--threads", 1,
        "--connections", connections, "--format", "json",
    ]  # fmt: skip


def run(command, seconds):
    """What it printed, and the processor time that it took, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    generator = processes.spawn(command, GENERATOR_CORE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        printed, said = generator.communicate(timeout=2 * seconds + load.GRACE_S + 40)
    except subprocess.TimeoutExpired:
        raise load.LoadError(f"{command[0]} does not end") from None
    finally:
        if generator.poll() is None:
            generator.kill()
            generator.wait()
    # 1 is ours for a run that is void; what it printed says so.
    if generator.returncode not in (0, 1):
        raise load.LoadError(f"{command[0]} ended with {generator.returncode}: {said[-1000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return printed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pause(plan, program, server, commands, say):
    """Percentiles of ours and of wrk, in ms, with what arithmetic says, for a server that is stopped for a while."""
    found = {}
    for name in (CURTAIL, WRK):
        command = command_of(name, program, plan.pause_run_s, 10 if name == WRK else 1_024, plan.pause_rate)
        commands.append(" ".join(map(str, command)))
        stopped = []
        halfway = threading.Timer(plan.pause_run_s / 2, lambda: stopped.append(stop_for(server, plan.pause_s)))
        halfway.start()
        try:
            printed, _cpu = run(command, plan.pause_run_s)
        finally:
            halfway.join()
        if name == CURTAIL:
            figures = json.loads(printed)["figures"][0]
            found[name] = {"p99": figures["response"]["p99_ns"] / 1e6, "p99.9": figures["response"]["p99_9_ns"] / 1e6}
            found["requests"], found["pause_ms"] = figures["requests"], stopped[0] * 1e3
        else:
            found[name] = {"p99": to_ms(load.find(r"\n +99% +(\S+)", printed))}
    for quantile, share in (("p99", 0.01), ("p99.9", 0.001)):
        found.setdefault("expected", {})[quantile] = found["pause_ms"] - share * found["requests"] / plan.pause_rate * 1e3
    say(f"generator: pause: {found}")
    return found


def stop_for(server, seconds):
    """Stops the server's whole tree for a while; how long it was, in seconds."""
    pids = processes.tree(server.process.pid)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    time.sleep(seconds)
    ended = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    return ended - began


def to_ms(text):
    """A time as wrk prints it."""
    for unit, factor in (("us", 1e-3), ("ms", 1.0), ("s", 1e3)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise load.LoadError(f"expected a time from wrk, not {text!r}")


def cost(plan, program, commands, say):
    """Processor time a request in µs, and requests a second, of each generator as fast as the server responds."""
    found = {}
    for name in (WRK, H2LOAD, CURTAIL):
        rate = 1.5 * max((each["rate"] for each in found.values()), default=0)
        command = command_of(name, program, plan.flat_out_s, plan.connections, round(rate))
        if name == CURTAIL:
            # Those that still wait at the end are ended soon.
            command += ["--timeout", "2s"]
        printed, cpu = run(command, plan.flat_out_s)
        commands.append(" ".join(map(str, command)))
        if name == CURTAIL:
            document = json.loads(printed)
            figures = document["figures"][0]
            requests = figures["requests"] - figures["failed"]
            seconds = document["blocks"][0]["lasted_ns"] / 1e9
        else:
            requests, seconds = load.parse_wrk(printed) if name == WRK else load.parse_h2load(printed), plan.flat_out_s
        found[name] = {"cpu_us": 1e6 * cpu / requests, "rate": requests / seconds}
    say(f"generator: flat out: {found}")
    return found


def lateness(plan, program, rate, say):
    """How late ours sends at this rate, in µs, and the processor time a request."""
    printed, cpu = run(command_of(CURTAIL, program, plan.flat_out_s, 128, rate), plan.flat_out_s)
    document = json.loads(printed)
    figures = document["figures"][0]
    found = {"p99_us": figures["lag_p99_ns"] / 1e3, "p99_9_us": (figures["lag_p99_9_ns"] or 0) / 1e3}
    found |= {"cpu_us": 1e6 * cpu / figures["requests"], "failed": figures["failed"]}
    say(f"generator: {rate} a second: {found}")
    return found


def pause_rows(found):
    rows = [("ms", "p99", "p99.9")]
    rows.append(("arithmetic", *(f"{found['expected'][q]:.1f}" for q in ("p99", "p99.9"))))
    rows.append((CURTAIL, *(f"{found[CURTAIL][q]:.1f}" for q in ("p99", "p99.9"))))
    rows.append((WRK, f"{found[WRK]['p99']:.1f}", "-"))
    return rows


def cost_rows(rounds):
    rows = [("flat out", "CPU µs", "range", "requests/s", "ours, ratio of medians")]
    ours = statistics.median(each[CURTAIL]["cpu_us"] for each in rounds)
    for name in (CURTAIL, H2LOAD, WRK):
        costs = sorted(each[name]["cpu_us"] for each in rounds)
        rate = statistics.median(each[name]["rate"] for each in rounds)
        middle = statistics.median(costs)
        rows.append((name, f"{middle:.2f}", f"{costs[0]:.2f}-{costs[-1]:.2f}", f"{rate:,.0f}", f"{ours / middle:.2f}"))
    return rows


def late_rows(found):
    rows = [("requests/s", "late p99 µs", "range", "late p99.9 µs", "range", "CPU µs", "failed")]
    for rate, rounds in found.items():
        row = [f"{rate:,}"]
        for what in ("p99_us", "p99_9_us"):
            values = sorted(each[what] for each in rounds)
            row += [f"{statistics.median(values):.0f}", f"{values[0]:.0f}-{values[-1]:.0f}"]
        row.append(f"{statistics.median(each['cpu_us'] for each in rounds):.1f}")
        rows.append((*row, str(sum(each["failed"] for each in rounds))))
    return rows


def targets(found):
    """Each target, and whether it is met."""
    said = []
    for quantile, expected in found["pause"]["expected"].items():
        error = found["pause"][CURTAIL][quantile] / expected - 1
        said.append((f"pause: {quantile} within {ERROR_MAX:.0%} of arithmetic", f"{error:+.2%}", abs(error) <= ERROR_MAX))
    ours = statistics.median(each[CURTAIL]["cpu_us"] for each in found["cost"])
    for name, limit in LIMITS.items():
        ratio = ours / statistics.median(each[name]["cpu_us"] for each in found["cost"])
        said.append((f"CPU a request: at most {limit:.1f} x {name}", f"{ratio:.2f}", ratio <= limit))
    for rate, rounds in found["late"].items():
        late = statistics.median(each["p99_us"] for each in rounds)
        said.append((f"{rate:,}/s sent within {LATE_US_MAX} µs at p99", f"{late:.0f}", late <= LATE_US_MAX))
    rate = statistics.median(each[CURTAIL]["rate"] for each in found["cost"])
    said.append(("60,000 requests/s from one core", f"{rate:,.0f}", rate >= 60_000))
    return [("target", "measured", "met")] + [(what, value, "yes" if met else "NO") for what, value, met in said]


def terminal(found):
    tables = (pause_rows(found["pause"]), cost_rows(found["cost"]), late_rows(found["late"]), targets(found))
    return "\n\n".join(map(text_table, tables))


def page(found, plan, date, described):
    machine = markdown_table([("machine", "")] + [(name, str(value)) for name, value in described.items()])
    said = "\n\n".join(" ".join(part.split()) for part in __doc__.split("\n\n")[1:])
    tables = (targets(found), pause_rows(found["pause"]), cost_rows(found["cost"]), late_rows(found["late"]))
    commands = "\n".join(found["commands"])
    return (
        f"# Load generators, {date}\n\n`bench/run --only generator`, {plan.rounds} rounds\n\n{said}\n\n{machine}\n\n"
        + "\n\n".join(map(markdown_table, tables))
        + f"\n\n```\n{commands}\n```\n"
    )
