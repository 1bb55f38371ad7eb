"""Our own benchmarks, in release builds: `cargo bench` of one crate each, its output shown and kept."""

import json
import subprocess
from pathlib import Path

from harness.peers import BENCH

CRATES = {
    "simulator": "curtail-sim",
    "sketch": "curtail-sketch",
    "policy": "curtail-policy",
    "otlp": "curtail-otlp",
}
# A benchmark that takes longer is broken; compiling is not counted.
LIMIT_S = 600


class CargoError(Exception):
    """A benchmark did not build, failed, or went on for too long."""


def has_benches(crate):
    """Does the crate have benchmarks? `cargo bench` of a crate without any succeeds and prints nothing of use."""
    return any((BENCH.parent / "crates" / crate.removeprefix("curtail-") / "benches").glob("*.rs"))


def measure(crate, name="*", words=()):
    """Build benchmarks of `crate`, run them, and return what they printed."""
    # `--bench *`: the benchmarks alone; `--benches` would list the library's tests as well.
    cargo = ["cargo", "bench", "--quiet", "--package", crate, "--bench", name]
    built = subprocess.run([*cargo, "--no-run"], cwd=BENCH.parent, check=False)
    if built.returncode != 0:
        raise CargoError(f"the benchmarks of {crate} do not build")
    run = [*cargo, "--", *words]
    try:
        done = subprocess.run(run, cwd=BENCH.parent, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise CargoError(f"the benchmarks of {crate} did not end within {LIMIT_S} s") from None
    if done.returncode != 0:
        raise CargoError(f"the benchmarks of {crate} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def program(crate, name):
    """Build one benchmark of `crate`; return its program, for those who run it themselves."""
    cargo = ["cargo", "bench", "--quiet", "--package", crate, "--bench", name, "--no-run", "--message-format", "json"]
    built = subprocess.run(cargo, cwd=BENCH.parent, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise CargoError(f"the benchmark {name} of {crate} does not build")
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    made = [m for m in messages if m["reason"] == "compiler-artifact" and m["target"]["name"] == name]
    return Path(made[-1]["executable"])
