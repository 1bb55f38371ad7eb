"""The Collector's own load generator, over gRPC and HTTP."""

import os
import shutil
import subprocess
from pathlib import Path

PACKAGE = "github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen"
LIMIT_S = 60
ATTRIBUTES = ("text=\"größer\"", "number=17", "is=true", "http.request.method=\"GET\"")
METRICS = ("Gauge", "Sum", "Histogram", "ExponentialHistogram")


def path():
    """Where it is installed; nothing when it is not."""
    found = shutil.which("telemetrygen", path=os.pathsep.join([os.environ["PATH"], str(Path.home() / "go" / "bin")]))
    return found and Path(found)


def send(program, protocol, address):
    """Have it send spans, logs and points of every form that it knows."""
    common = ["--otlp-insecure", "--otlp-endpoint", address, "--rate", "0", "--workers", "2"]
    common += ["--service", f"telemetrygen-{protocol}"]
    common += [f"--telemetry-attributes={each}" for each in ATTRIBUTES] + ["--otlp-attributes=tags=[\"a\",\"b\"]"]
    common += ["--otlp-http"] if protocol == "http" else []
    run(program, "traces", *common, "--traces", 50, "--child-spans", 4, "--span-links", 2, "--status-code", "Error")
    run(program, "logs", *common, "--logs", 100, "--trace-id", f"{2**100:032x}", "--span-id", f"{2**50:016x}")
    for kind in METRICS:
        run(program, "metrics", *common, "--metrics", 20, "--metric-type", kind)


def run(program, *arguments):
    """Run it to its end."""
    done = subprocess.run(
        [program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"telemetrygen {' '.join(map(str, arguments))}: {done.returncode}\n{done.stdout[-2000:]}")
