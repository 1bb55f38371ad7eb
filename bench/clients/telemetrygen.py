"""Sends data with telemetrygen, the load generator of the OpenTelemetry Collector, over gRPC and HTTP."""

import os
import shutil
import subprocess
from pathlib import Path

PACKAGE = "github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen"
LIMIT_S = 60
ATTRIBUTES = ("text=\"größer\"", "number=17", "is=true", "http.request.method=\"GET\"")
METRICS = ("Gauge", "Sum", "Histogram", "ExponentialHistogram")


def find_program():
    """The path of telemetrygen; None if it is not installed."""
    path = shutil.which("telemetrygen", path=os.pathsep.join([os.environ["PATH"], str(Path.home() / "go" / "bin")]))
    return path and Path(path)


def send(program, protocol, address):
    """Sends spans, logs, and points of every kind that telemetrygen has."""
    common = ["--otlp-insecure", "--otlp-endpoint", address, "--rate", "0", "--workers", "2"]
    common += ["--service", f"telemetrygen-{protocol}"]
    common += [f"--telemetry-attributes={attribute}" for attribute in ATTRIBUTES]
    common += ["--otlp-attributes=tags=[\"a\",\"b\"]"]
    common += ["--otlp-http"] if protocol == "http" else []
    run(program, "traces", *common, "--traces", 50, "--child-spans", 4, "--span-links", 2, "--status-code", "Error")
    run(program, "logs", *common, "--logs", 100, "--trace-id", f"{2**100:032x}", "--span-id", f"{2**50:016x}")
    for kind in METRICS:
        run(program, "metrics", *common, "--metrics", 20, "--metric-type", kind)


def run(program, *arguments):
    """Runs telemetrygen until it ends."""
    process = subprocess.run(
        [program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
        check=False,
    )  # fmt: skip
    if process.returncode != 0:
        command = f"telemetrygen {' '.join(map(str, arguments))}"
        raise SystemExit(f"{command}: exit code {process.returncode}\n{process.stdout[-2000:]}")
