"""Foreign tools hold Curtail against the protocols that it speaks: h2spec, gRPC's interop cases, Tempo's own types,
Prometheus. Everything runs on loopback and is bounded in time.

Each suite is a function that takes the paths of the programs and yields one `Check` for each case.
"""

import json
import math
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import peers, processes

GO = peers.BENCH / "conformance-go"
# The time limit of a case; beyond it, the case has failed.
CASE_LIMIT_S = 60
CORE = 0
BACKEND, PROXY, ADMIN, INTEROP, OTLP, API, SCRAPER = 23001, 23002, 23003, 23004, 23005, 23006, 23007

# Known deviations of the tools, or options that the standard leaves open, with the reason. A listed case that passes
# fails the run.
KNOWN = {
    ("h2spec", "http2/3.5 Sends invalid connection preface"): "the port serves HTTP/1.1 as well, and responds in it",
}
INTEROP_CASES = (
    "empty_unary large_unary client_streaming server_streaming ping_pong empty_stream timeout_on_sleeping_server "
    "cancel_after_begin cancel_after_first_response status_code_and_message special_status_message custom_metadata "
    "unimplemented_method unimplemented_service pick_first_unary orca_per_rpc orca_oob"
).split()
# 1/16 octave, the schema of the proxy's native histograms, and the growth of its classic buckets; Prometheus
# interpolates within a bucket. The rest is what client and proxy measure differently.
NATIVE_ERROR, CLASSIC_ERROR, CLOCK_ERROR = 2 ** (1 / 16) - 1, 0.2, 0.02
LATENCIES = 1_500


@dataclass(frozen=True)
class Check:
    """A case, whether it passed, and the reason if not."""

    name: str
    passed: bool
    said: str = ""


@dataclass(frozen=True)
class Programs:
    """The paths of the programs."""

    curtail: Path
    go: Path


def build(say, is_built):
    """Builds `curtail`, and the Go programs in the versions that go.mod and go.sum pin."""
    if not is_built:
        say("building curtail")
        command = ["cargo", "build", "--quiet", "--locked", "--package", "curtail"]
        if subprocess.run(command, cwd=peers.BENCH.parent, check=False).returncode != 0:
            raise peers.MissingError("building curtail failed; run cargo build to see why")
    binaries = peers.target() / "conformance"
    binaries.mkdir(parents=True, exist_ok=True)
    peers.program("go", "golang")
    say("building h2spec, gRPC's interop client and server, and the judge")
    for what in (["tool"], ["."]):
        target = binaries / "judge" if what == ["."] else f"{binaries}/"
        done = subprocess.run(["go", "build", "-o", target, *what], cwd=GO, check=False)
        if done.returncode != 0:
            raise peers.MissingError(f"go build {what[0]} failed in {GO}")
    return Programs(peers.target() / "debug" / "curtail", binaries)


def run(command):
    """Runs a command and returns its exit code and output; a timeout is a failure."""
    try:
        done = subprocess.run(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=CASE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"took longer than {CASE_LIMIT_S} s"
    return done.returncode, done.stdout


@contextmanager
def running(*commands):
    """Runs processes until the end of the block, once each listens on its ports."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curtail-conformance-")))
        for name, command, ports in commands:
            stack.enter_context(processes.Running(name, command, CORE, ports, scratch / f"{name}.log"))
        yield scratch


def proxy(programs, upstream, protocol="auto"):
    """The command of the proxy in front of one upstream."""
    command = [programs.curtail, "proxy", "--listen", f"127.0.0.1:{PROXY}", "--admin", f"127.0.0.1:{ADMIN}"]
    command += ["--upstream", f"http://127.0.0.1:{upstream}", "--set", f"upstreams.service.connect.protocol={protocol}"]
    return "proxy", command, [PROXY, ADMIN]


def backend(programs):
    """The command of an HTTP/1.1 server whose response time the request sets."""
    return "backend", [programs.go / "judge", "backend", f"127.0.0.1:{BACKEND}"], [BACKEND]


def h2spec(programs):
    """Runs every case of h2spec against a clear-text listener of the proxy."""
    with running(backend(programs), proxy(programs, BACKEND)) as scratch:
        written = scratch / "h2spec.xml"
        run([programs.go / "h2spec", "--host", "127.0.0.1", "--port", PROXY, "--timeout", 5, "--junit-report", written])
        for case in ElementTree.parse(written).iter("testcase"):
            failures = [part for part in case if part.tag in ("failure", "error")]
            said = " ".join(" ".join((part.text or "").split()) for part in failures)
            yield Check(f"{case.get('package')} {case.get('classname')}", not failures, said)


def grpc(programs):
    """Runs gRPC's interop cases through the proxy; a case that also fails without a proxy counts as passed."""
    server = ("interop", [programs.go / "server", f"-port={INTEROP}"], [INTEROP])
    with running(server, proxy(programs, INTEROP, "http2")):
        for case in INTEROP_CASES:
            code, said = interop(programs, case, PROXY)
            if code != 0 and interop(programs, case, INTEROP)[0] != 0:
                yield Check(f"{case} (fails without a proxy too)", True)
            else:
                yield Check(case, code == 0, said.strip()[-300:])


def interop(programs, case, port):
    client = [programs.go / "client", "-server_host=127.0.0.1", f"-server_port={port}", f"-test_case={case}"]
    return run(["timeout", "20", *client])


def tempo(programs):
    """Decodes the responses of the server's Tempo API with Tempo's types; an unknown field is an error."""
    with tempfile.TemporaryDirectory(prefix="curtail-conformance-") as data:
        command = [programs.curtail, "server", "--data", data]
        command += ["--otlp", f"127.0.0.1:{OTLP}", "--api", f"127.0.0.1:{API}"]
        with running(("server", command, [OTLP, API])):
            yield from judged([programs.go / "judge", "tempo", f"http://127.0.0.1:{OTLP}", f"http://127.0.0.1:{API}"])


def judged(command):
    """Converts the output of a judge to checks."""
    code, said = run(command)
    lines = re.findall(r"^(pass|FAIL) (.*)$", said, re.MULTILINE)
    for verdict, rest in lines:
        name, _, why = rest.partition(": ") if verdict == "FAIL" else (rest, "", "")
        yield Check(name, verdict == "pass", why)
    if not lines:
        yield Check(str(command[1]), False, f"exit code {code}: {said.strip()[-300:]}")


def prometheus(programs):
    """Parses the proxy's metrics with Prometheus's parsers, and compares p99 from both kinds of histogram."""
    with running(backend(programs), proxy(programs, BACKEND)):
        code, said = run([programs.go / "judge", "latencies", f"http://127.0.0.1:{PROXY}", LATENCIES])
        if code != 0:
            yield Check("latencies", False, said.strip()[-300:])
            return
        truth = float(said)
        yield from judged([programs.go / "judge", "metrics", f"http://127.0.0.1:{ADMIN}/metrics"])
        name = "curtail_request_duration_seconds"
        for kind, flags, series, error in [
            ("classic", [], f"{name}_bucket", CLASSIC_ERROR),
            ("native", ["--enable-feature=native-histograms"], name, NATIVE_ERROR),
        ]:
            value = scraped_p99(series, flags)
            off = value / truth - 1
            said = f"{value:.4f} s, the client measured {truth:.4f} s: {off:+.1%}"
            yield Check(f"p99 from {kind} histograms: {said}", abs(off) <= error + CLOCK_ERROR, f"allowed {error:.1%}")


def scraped_p99(series, flags):
    """The 99th percentile according to a Prometheus that scrapes the proxy; NaN without a result."""
    with tempfile.TemporaryDirectory(prefix="curtail-conformance-") as scratch:
        written = Path(scratch) / "prometheus.yml"
        scrape = {"job_name": "curtail", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{ADMIN}"]}]}
        written.write_text(json.dumps({"scrape_configs": [scrape]}))
        command = [peers.program("prometheus", "prometheus"), f"--config.file={written}", f"--storage.tsdb.path={scratch}/data"]
        command += [f"--web.listen-address=127.0.0.1:{SCRAPER}", *flags]
        with running(("prometheus", command, [SCRAPER])):
            asked = urllib.parse.urlencode({"query": f"histogram_quantile(0.99, {series})"})
            limit = time.monotonic() + CASE_LIMIT_S
            while time.monotonic() < limit:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{SCRAPER}/api/v1/query?{asked}", timeout=5) as response:
                        found = json.load(response)["data"]["result"]
                except urllib.error.HTTPError as error:
                    if error.code != 503:  # Prometheus listens before it is ready.
                        raise
                    found = []
                if found:
                    return float(found[0]["value"][1])
                time.sleep(0.5)
    return math.nan


SUITES = {"h2spec": h2spec, "grpc": grpc, "tempo": tempo, "prometheus": prometheus}


def judge(suite, programs):
    """The checks of a suite; a known failure counts as passed, and an unexpected pass as failed."""
    for check in SUITES[suite](programs):
        reason = KNOWN.get((suite, check.name))
        if reason is None:
            yield check
        elif check.passed:
            yield Check(check.name, False, f"passes, but is listed as failing: {reason}")
        else:
            yield Check(f"{check.name} (known: {reason})", True)


def versions():
    """The versions of the foreign tools, from go.mod and from their own output."""
    pinned = (GO / "go.mod").read_text()
    wanted = {
        "h2spec": "github.com/summerwind/h2spec",
        "gRPC interop": "google.golang.org/grpc",
        "Tempo's types": "github.com/grafana/tempo",
        "Prometheus's parser": "github.com/prometheus/common",
    }
    found = {name: re.search(rf"{re.escape(module)} (\S+)", pinned).group(1) for name, module in wanted.items()}
    said = peers.output_of(peers.program("prometheus", "prometheus"), "--version").split()
    return found | {"Prometheus": said[2] if len(said) > 2 else "?"}
