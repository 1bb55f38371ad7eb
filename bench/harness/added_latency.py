"""Measures the latency that Curtail adds relative to HAProxy: `curtail bench compare`, in interleaved blocks.

Both proxies run at once on the same core; only one has load at a time. Either they have core 0 alone, or they share core 1
with replicas and generator. On core 0, proxies, replicas and generator have real-time priority (if that is possible), so
that no other process delays them. The two blocks of a pair send the same requests at the same times after their start, so
a disturbance longer than a block affects both. Each printed percentile has a confidence interval.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

from harness import load, log_sink, peers, processes
from harness.passthrough import LOAD_CORE, PROXY_CORE, place
from harness.processes import ServerProcess
from harness.store import build_server

BASE = "haproxy"
# Ports of Curtail; HAProxy has its usual ports, because both run at the same time.
PORTS = {load.HTTP1: 21013, load.HTTP2: 21014}
# By title: whether HAProxy has an access log, the configuration of Curtail, and the keys that it gets in addition.
LOG = {"access_log.file": "/dev/null"}
FEATURES = {
    "features off": (False, "curtail-plain", {}),
    "features on": (False, "curtail", LOG),
    "features on, both with an access log": (True, "curtail", LOG),
}
PLACEMENTS = {"own core": PROXY_CORE, "shared core": LOAD_CORE}
GRACE_S = 120


def measure(plan, scratch, nginx, no_build, print_line):
    """Returns the output and the command of `curtail bench compare`, by features, placement and protocol. `nginx`: the
    running replicas and the sink of the spans."""
    servers, sink = nginx
    program = existing_curtail() if no_build else build_server()
    results = {}
    for features, (has_log, name, keys) in FEATURES.items():
        settings = {f"listeners[{nth}].address": f"127.0.0.1:{port}" for nth, port in enumerate(PORTS.values())} | keys
        arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [*peers.PEERS[name](scratch).command, *arguments]
        with contextlib.ExitStack() as running:
            running.enter_context(processes.no_sleeping_cores())
            base, receivers = start_haproxy(running, scratch, has_log, sink)
            log = scratch / f"{name}-compared.log"
            curtail = running.enter_context(ServerProcess(name, command, PROXY_CORE, PORTS.values(), log))
            for placement, core in PLACEMENTS.items():
                place([base, curtail], receivers, core)
                is_alone = core == PROXY_CORE
                for process in (base, curtail, servers):
                    process.set_real_time(is_alone)
                for protocol in load.PROTOCOLS:
                    title = f"{protocol}, {features}, {placement}"
                    print_line(f"added latency, {title}: {2 * plan.compared_blocks} blocks of {plan.compared_s} s")
                    results[title] = compare(plan, program, protocol, is_alone)
        if has_log and int((scratch / "lines.log").read_text()) == 0:
            raise load.LoadError("HAProxy sent no line of its access log")
    return results


def existing_curtail():
    """The program `curtail` of the release profile, or else of the profile of `make demo`."""
    paths = [peers.target_folder() / profile / "curtail" for profile in ("release", "debug")]
    for path in filter(Path.exists, paths):
        return path
    raise peers.MissingError(f"{paths[0]} does not exist: run cargo build --release -p curtail")


def start_haproxy(running, scratch, has_log, sink):
    """Starts HAProxy, with a receiver of its access log if it has one; returns HAProxy and all receivers."""
    command, receivers = peers.haproxy(scratch).command, [sink]
    if has_log:
        host, port = log_sink.ADDRESS
        command = ("env", f"ACCESS_LOG={host}:{port}", *command)
        program = (sys.executable, peers.BENCH / "harness" / "log_sink.py")
        lines, nice = scratch / "lines.log", processes.ELSEWHERE
        receivers.append(running.enter_context(ServerProcess("log", program, LOAD_CORE, (), lines, nice)))
    log = scratch / "haproxy-compared.log"
    return running.enter_context(ServerProcess(BASE, command, PROXY_CORE, peers.PROXY_PORTS.values(), log)), receivers


def compare(plan, program, protocol, is_real_time):
    """Compares HAProxy (A) with Curtail (B)."""
    command = [program, "bench", "compare", load.url(protocol, peers.PROXY_PORTS[protocol])]
    command += [load.url(protocol, PORTS[protocol]), "--protocol", protocol, "--rate", plan.compared_rate]
    command += ["--blocks", plan.compared_blocks, "--for", f"{plan.compared_s}s", "--warm-up", "1s", "--threads", 1]
    command = processes.at_real_time(command) if is_real_time else command
    generator = processes.spawn(command, LOAD_CORE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = generator.communicate(timeout=2 * plan.compared_blocks * (plan.compared_s + 1) + GRACE_S)
    except subprocess.TimeoutExpired:
        raise load.LoadError(f"curtail bench compare did not end within {GRACE_S} s after its blocks") from None
    finally:
        if generator.poll() is None:
            generator.kill()
            generator.wait()
    # Exit code 1 means a void run; the output says so too.
    if generator.returncode not in (0, 1):
        raise load.LoadError(f"curtail bench compare failed with exit code {generator.returncode}:\n{errors[-1000:]}")
    return {"command": " ".join(map(str, command)), "printed": output.strip()}
