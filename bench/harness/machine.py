"""Describes the machine and the revision of a measurement, for the report."""

import os
import platform
from pathlib import Path

from harness.peers import BENCH, command_output, find_program


def describe(is_built):
    """The machine, kernel, generators and revision, by name. Without `is_built`, this run did not build the program, so
    its revision is unknown."""
    return {
        "processor": processor_name(Path("/proc/cpuinfo").read_text()),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
        "revision": revision() if is_built else "unknown: built before this run",
        "python": platform.python_version(),
        "h2load": command_output(find_program("h2load", "nghttp2-client"), "--version").rpartition("/")[2],
        "wrk": command_output(find_program("wrk", "wrk"), "-v").split()[1].partition("/")[2],
    }


def processor_name(cpuinfo):
    """The model name in /proc/cpuinfo, or the architecture."""
    for line in cpuinfo.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def revision():
    """The measured commit; `+` marks uncommitted changes of the code."""
    commit = command_output("git", "-C", BENCH, "rev-parse", "--short=12", "HEAD")
    code = ("../crates", "../Cargo.toml", "../Cargo.lock")
    changes = command_output("git", "-C", BENCH, "status", "--porcelain", "--", *code)
    return commit + ("+" if changes else "")
