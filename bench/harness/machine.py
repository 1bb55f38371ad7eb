"""What the figures were measured on: without it a figure means nothing elsewhere."""

import os
import platform
from pathlib import Path

from harness.peers import BENCH, output_of, program


def describe(built):
    """The machine, the kernel, the generators and the revision measured, as names and values for a report.

    `built` says whether what is measured was built by this run; otherwise its revision is not known."""
    return {
        "processor": processor(Path("/proc/cpuinfo").read_text()),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
        "revision": revision() if built else "not known, built before",
        "python": platform.python_version(),
        "h2load": output_of(program("h2load", "nghttp2-client"), "--version").rpartition("/")[2],
        "wrk": output_of(program("wrk", "wrk"), "-v").split()[1].partition("/")[2],
    }


def processor(cpuinfo):
    """The model name, or what there is."""
    for line in cpuinfo.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def revision():
    """The commit measured; `+` says that the code measured has changes beside it."""
    commit = output_of("git", "-C", BENCH, "rev-parse", "--short=12", "HEAD")
    code = ("../crates", "../Cargo.toml", "../Cargo.lock")
    changed = output_of("git", "-C", BENCH, "status", "--porcelain", "--", *code)
    return commit + ("+" if changed else "")
