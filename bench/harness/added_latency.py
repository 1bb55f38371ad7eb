"""Measures the latency that Curtail adds relative to HAProxy: `curtail bench compare`, in interleaved blocks.

Both proxies run at once on the same core; only one has load at a time. Either they have core 0 alone, or they share core 1
with replicas and generator. The two blocks of a pair send the same requests at the same times after their start, so a
disturbance longer than a block affects both. Each printed percentile has a confidence interval.
"""

import subprocess

from harness import load, peers, processes
from harness.passthrough import LOAD_CORE, PROXY_CORE, place
from harness.processes import ServerProcess
from harness.store import build_server

BASE = "haproxy"
# Ports of Curtail; HAProxy has its usual ports, because both run at the same time.
PORTS = {load.HTTP1: 21013, load.HTTP2: 21014}
# The configuration of Curtail, and the keys that it gets in addition, by the title of the features.
FEATURES = {"features off": ("curtail-plain", {}), "features on": ("curtail", {"access_log.file": "/dev/null"})}
PLACEMENTS = {"own core": PROXY_CORE, "shared core": LOAD_CORE}
GRACE_S = 120


def measure(plan, scratch, sink, no_build, print_line):
    """Returns the output and the command of `curtail bench compare`, by features, placement and protocol. The replicas
    must be running."""
    program = peers.target_folder() / "release" / "curtail" if no_build else build_server()
    results = {}
    for features, (name, keys) in FEATURES.items():
        settings = {f"listeners[{nth}].address": f"127.0.0.1:{port}" for nth, port in enumerate(PORTS.values())} | keys
        arguments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        haproxy, command = peers.haproxy(scratch).command, [*peers.PEERS[name](scratch).command, *arguments]
        with (
            ServerProcess(BASE, haproxy, PROXY_CORE, peers.PROXY_PORTS.values(), scratch / "haproxy-compared.log") as base,
            ServerProcess(name, command, PROXY_CORE, PORTS.values(), scratch / f"{name}-compared.log") as curtail,
        ):
            for placement, core in PLACEMENTS.items():
                place(base, sink, core)
                place(curtail, sink, core)
                for protocol in load.PROTOCOLS:
                    title = f"{protocol}, {features}, {placement}"
                    print_line(f"added latency, {title}: {2 * plan.compared_blocks} blocks of {plan.compared_s} s")
                    results[title] = compare(plan, program, protocol)
    return results


def compare(plan, program, protocol):
    """Compares HAProxy (A) with Curtail (B)."""
    command = [program, "bench", "compare", load.url(protocol, peers.PROXY_PORTS[protocol])]
    command += [load.url(protocol, PORTS[protocol]), "--protocol", protocol, "--rate", plan.compared_rate]
    command += ["--blocks", plan.compared_blocks, "--for", f"{plan.compared_s}s", "--warm-up", "1s", "--threads", 1]
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
