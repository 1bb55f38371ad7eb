"""Our own benchmarks, in release builds: `cargo bench` of one crate each, its output shown and kept."""

import subprocess

from harness.peers import BENCH

CRATES = {
    "simulator": "curtail-sim",
    "sketch": "curtail-sketch",
    "policy": "curtail-policy",
    "otlp": "curtail-otlp",
    "store": "curtail-store",
}
# A benchmark that takes longer is broken; compiling is not counted.
LIMIT_S = 60


class CargoError(Exception):
    """A benchmark did not build, failed, or went on for too long."""


def has_benches(crate):
    """Does the crate have benchmarks? `cargo bench` of a crate without any succeeds and prints nothing of use."""
    return any((BENCH.parent / "crates" / crate.removeprefix("curtail-") / "benches").glob("*.rs"))


def measure(crate):
    """Build the benchmarks of `crate`, run them, and return what they printed."""
    # `--bench *`: the benchmarks alone; `--benches` would list the library's tests as well.
    cargo = ["cargo", "bench", "--quiet", "--package", crate, "--bench", "*"]
    built = subprocess.run([*cargo, "--no-run"], cwd=BENCH.parent, check=False)
    if built.returncode != 0:
        raise CargoError(f"the benchmarks of {crate} do not build")
    try:
        done = subprocess.run(cargo, cwd=BENCH.parent, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise CargoError(f"the benchmarks of {crate} did not end within {LIMIT_S} s") from None
    if done.returncode != 0:
        raise CargoError(f"the benchmarks of {crate} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout
