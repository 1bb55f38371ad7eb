"""Runs the benchmarks of Curtail's crates (`cargo bench`) in release builds, and returns their output."""

import json
import subprocess
from pathlib import Path

from harness.peers import BENCH

CRATES = {
    "simulator": "curtail-sim",
    "sketch": "curtail-sketch",
    "policy": "curtail-policy",
    "otlp": "curtail-otlp",
    "explain": "curtail-explain",
}
# Time limit of a benchmark, without its build.
LIMIT_S = 600


class CargoError(Exception):
    """A benchmark failed to build, failed, or exceeded its time limit."""


def has_benches(crate):
    """Whether the crate has benchmarks. Without any, `cargo bench` succeeds and prints no figure."""
    return any((BENCH.parent / "crates" / crate.removeprefix("curtail-") / "benches").glob("*.rs"))


def run_benches(crate, name="*", arguments=()):
    """Builds and runs benchmarks of `crate`; returns their output."""
    # `--bench *` selects only benchmarks; `--benches` lists the tests of the library too.
    cargo = ["cargo", "bench", "--quiet", "--package", crate, "--bench", name]
    build = subprocess.run([*cargo, "--no-run"], cwd=BENCH.parent, check=False)
    if build.returncode != 0:
        raise CargoError(f"the benchmarks of {crate} failed to build")
    command = [*cargo, "--", *arguments]
    try:
        run = subprocess.run(command, cwd=BENCH.parent, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise CargoError(f"the benchmarks of {crate} did not end within {LIMIT_S} s") from None
    if run.returncode != 0:
        raise CargoError(f"the benchmarks of {crate} failed with exit code {run.returncode}:\n{run.stdout}")
    return run.stdout


def build_bench(crate, name):
    """Builds one benchmark of `crate`; returns the path of its program, which the caller runs."""
    cargo = ["cargo", "bench", "--quiet", "--package", crate, "--bench", name, "--no-run", "--message-format", "json"]
    build = subprocess.run(cargo, cwd=BENCH.parent, stdout=subprocess.PIPE, text=True, check=False)
    if build.returncode != 0:
        raise CargoError(f"the benchmark {name} of {crate} failed to build")
    messages = [json.loads(line) for line in build.stdout.splitlines()]
    artifacts = [m for m in messages if m["reason"] == "compiler-artifact" and m["target"]["name"] == name]
    return Path(artifacts[-1]["executable"])
