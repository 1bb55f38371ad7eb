"""Checks Curtail's protocols with foreign tools: h2spec, gRPC's interop cases, websockets, Tempo's own types, Prometheus.
Everything runs on loopback, with a time limit.

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

from harness import certificates, peers, processes

GO = peers.BENCH / "conformance-go"
# Time limit of a case; a slower case fails.
CASE_LIMIT_S = 60
CORE = 0
REPLICA, PROXY, ADMIN, INTEROP, OTLP, API, SCRAPER = 23001, 23002, 23003, 23004, 23005, 23006, 23007

# Known deviations of the tools, or options that the standard leaves open, with the reason. A listed case that passes
# fails the run.
KNOWN_FAILURES = {
    ("h2spec", "http2/3.5 Sends invalid connection preface"): "the port serves HTTP/1.1 as well, and responds in it",
}
INTEROP_CASES = (
    "empty_unary large_unary client_streaming server_streaming ping_pong empty_stream timeout_on_sleeping_server "
    "cancel_after_begin cancel_after_first_response status_code_and_message special_status_message custom_metadata "
    "unimplemented_method unimplemented_service pick_first_unary orca_per_rpc orca_oob"
).split()
# 1/16 octave, the schema of the proxy's native histograms, and the growth of its classic buckets; Prometheus
# interpolates within a bucket. CLOCK_ERROR allows for the difference between the clocks of client and proxy.
NATIVE_ERROR, CLASSIC_ERROR, CLOCK_ERROR = 2 ** (1 / 16) - 1, 0.2, 0.02
LATENCIES = 1_500


@dataclass(frozen=True)
class Check:
    """A case, whether it passed, and the reason of a failure."""

    name: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class Programs:
    """The paths of the programs."""

    curtail: Path
    go: Path


def build(print_line, is_built):
    """Builds `curtail`, and the Go programs in the versions that go.mod and go.sum pin."""
    if not is_built:
        print_line("building curtail")
        command = ["cargo", "build", "--quiet", "--locked", "--package", "curtail"]
        if subprocess.run(command, cwd=peers.BENCH.parent, check=False).returncode != 0:
            raise peers.MissingError("building curtail failed; run cargo build to see why")
    binaries = peers.target_folder() / "conformance"
    binaries.mkdir(parents=True, exist_ok=True)
    peers.find_program("go", "golang")
    print_line("building h2spec, gRPC's interop client and server, and the judge")
    for package, output in (("tool", f"{binaries}/"), (".", binaries / "judge")):
        if subprocess.run(["go", "build", "-o", output, package], cwd=GO, check=False).returncode != 0:
            raise peers.MissingError(f"go build {package} failed in {GO}")
    return Programs(peers.target_folder() / "debug" / "curtail", binaries)


def run(command):
    """Runs a command and returns its exit code and output; a timeout is a failure."""
    try:
        process = subprocess.run(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=CASE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"took longer than {CASE_LIMIT_S} s"
    return process.returncode, process.stdout


@contextmanager
def run_processes(*commands):
    """Runs processes until the end of the block; each listens on its ports when the block begins."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curtail-conformance-")))
        for name, command, ports in commands:
            stack.enter_context(processes.ServerProcess(name, command, CORE, ports, scratch / f"{name}.log"))
        yield scratch


def proxy(programs, upstream, protocol="auto"):
    """The command of the proxy in front of one upstream."""
    command = [programs.curtail, "proxy", "--listen", f"127.0.0.1:{PROXY}", "--admin", f"127.0.0.1:{ADMIN}"]
    command += ["--upstream", f"http://127.0.0.1:{upstream}", "--set", f"upstreams.service.connect.protocol={protocol}"]
    return "proxy", command, [PROXY, ADMIN]


def replica(programs):
    """The command of an HTTP/1.1 server whose response time the request sets."""
    return "replica", [programs.go / "judge", "replica", f"127.0.0.1:{REPLICA}"], [REPLICA]


def h2spec(programs):
    """Runs every case of h2spec against a clear-text listener of the proxy."""
    with run_processes(replica(programs), proxy(programs, REPLICA)) as scratch:
        yield from run_h2spec(programs, scratch / "h2spec.xml", [])


def h2spec_tls(programs):
    """Runs every case of h2spec against a listener with TLS."""
    with tempfile.TemporaryDirectory(prefix="curtail-conformance-") as folder:
        certificate, key = certificates.write_self_signed(Path(folder))
        config = Path(folder) / "proxy.yaml"
        listener = {"address": f"127.0.0.1:{PROXY}", "tls": {"certificate_file": str(certificate), "key_file": str(key)}}
        service = {"replicas": [f"http://127.0.0.1:{REPLICA}"]}
        routes = [{"upstream": "service"}]
        config.write_text(json.dumps({"listeners": [listener], "routes": routes, "upstreams": {"service": service}}))
        command = [programs.curtail, "proxy", "--config", config]
        with run_processes(replica(programs), ("proxy", command, [PROXY])) as scratch:
            yield from run_h2spec(programs, scratch / "h2spec.xml", ["--tls", "--insecure"])


def run_h2spec(programs, report_path, options):
    command = [programs.go / "h2spec", "--host", "127.0.0.1", "--port", PROXY, "--timeout", 5, *options]
    run([*command, "--junit-report", report_path])
    for case in ElementTree.parse(report_path).iter("testcase"):
        failures = [part for part in case if part.tag in ("failure", "error")]
        detail = " ".join(" ".join((part.text or "").split()) for part in failures)
        yield Check(f"{case.get('package')} {case.get('classname')}", not failures, detail)


def grpc(programs):
    """Runs gRPC's interop cases through the proxy; a case that also fails without a proxy counts as passed."""
    server = ("interop", [programs.go / "server", f"-port={INTEROP}"], [INTEROP])
    with run_processes(server, proxy(programs, INTEROP, "http2")):
        for case in INTEROP_CASES:
            code, output = run_interop(programs, case, PROXY)
            if code != 0 and run_interop(programs, case, INTEROP)[0] != 0:
                yield Check(f"{case} (fails without a proxy too)", True)
            else:
                yield Check(case, code == 0, output.strip()[-300:])


def run_interop(programs, case, port):
    client = [programs.go / "client", "-server_host=127.0.0.1", f"-server_port={port}", f"-test_case={case}"]
    return run(["timeout", "20", *client])


def tempo(programs):
    """Decodes the responses of the server's Tempo API with Tempo's types; an unknown field is an error."""
    with tempfile.TemporaryDirectory(prefix="curtail-conformance-") as data:
        otlp, api = f"127.0.0.1:{OTLP}", f"127.0.0.1:{API}"
        command = [programs.curtail, "server", "--data", data, "--otlp", otlp, "--api", api]
        with run_processes(("server", command, [OTLP, API])):
            yield from run_judge([programs.go / "judge", "tempo", f"http://{otlp}", f"http://{api}"])


def websocket(programs):
    """Compares WebSockets through the proxy, over HTTP/1.1 and HTTP/2, with direct ones, byte by byte."""
    python = peers.BENCH / ".venv" / "bin" / "python"
    if not python.exists():
        raise peers.MissingError("the packages websockets and h2 are missing: run bench/setup")
    with run_processes(proxy(programs, INTEROP)):
        yield from run_judge([python, peers.BENCH / "harness" / "websocket_cases.py", INTEROP, PROXY])


def run_judge(command):
    """Runs a program that prints `pass NAME` or `FAIL NAME: DETAIL` for each case."""
    code, output = run(command)
    lines = re.findall(r"^(pass|FAIL) (.*)$", output, re.MULTILINE)
    for verdict, rest in lines:
        name, _, detail = rest.partition(": ") if verdict == "FAIL" else (rest, "", "")
        yield Check(name, verdict == "pass", detail)
    if not lines:
        yield Check(str(command[1]), False, f"exit code {code}: {output.strip()[-300:]}")


def prometheus(programs):
    """Parses the proxy's metrics with Prometheus's parsers; compares p99 of its histograms with that of the client."""
    with run_processes(replica(programs), proxy(programs, REPLICA)):
        code, output = run([programs.go / "judge", "latencies", f"http://127.0.0.1:{PROXY}", LATENCIES])
        if code != 0:
            yield Check("latencies", False, output.strip()[-300:])
            return
        client_p99 = float(output)
        yield from run_judge([programs.go / "judge", "metrics", f"http://127.0.0.1:{ADMIN}/metrics"])
        name = "curtail_request_duration_seconds"
        for kind, flags, series, error in [
            ("classic", [], f"{name}_bucket", CLASSIC_ERROR),
            ("native", ["--enable-feature=native-histograms"], name, NATIVE_ERROR),
        ]:
            p99 = scrape_p99(series, flags)
            deviation = p99 / client_p99 - 1
            figures = f"{p99:.4f} s, the client measured {client_p99:.4f} s: {deviation:+.1%}"
            is_close = abs(deviation) <= error + CLOCK_ERROR
            yield Check(f"p99 from {kind} histograms: {figures}", is_close, f"allowed {error:.1%}")


def scrape_p99(series, flags):
    """The 99th percentile according to a Prometheus that scrapes the proxy; NaN without a result."""
    with tempfile.TemporaryDirectory(prefix="curtail-conformance-") as scratch:
        configuration = Path(scratch) / "prometheus.yml"
        scrape = {"job_name": "curtail", "scrape_interval": "1s"}
        scrape["static_configs"] = [{"targets": [f"127.0.0.1:{ADMIN}"]}]
        configuration.write_text(json.dumps({"scrape_configs": [scrape]}))
        command = [peers.find_program("prometheus", "prometheus"), f"--config.file={configuration}"]
        command += [f"--storage.tsdb.path={scratch}/data", f"--web.listen-address=127.0.0.1:{SCRAPER}", *flags]
        with run_processes(("prometheus", command, [SCRAPER])):
            query = urllib.parse.urlencode({"query": f"histogram_quantile(0.99, {series})"})
            url = f"http://127.0.0.1:{SCRAPER}/api/v1/query?{query}"
            limit = time.monotonic() + CASE_LIMIT_S
            while time.monotonic() < limit:
                try:
                    with urllib.request.urlopen(url, timeout=5) as response:
                        series_values = json.load(response)["data"]["result"]
                except urllib.error.HTTPError as error:
                    if error.code != 503:  # 503: Prometheus listens, but is not ready.
                        raise
                    series_values = []
                if series_values:
                    return float(series_values[0]["value"][1])
                time.sleep(0.5)
    return math.nan


SUITES = {
    "h2spec": h2spec, "h2spec-tls": h2spec_tls, "grpc": grpc, "websocket": websocket, "tempo": tempo, "prometheus": prometheus,
}


def run_suite(suite, programs):
    """Yields the checks of a suite; a known failure counts as passed, and its unexpected pass as failed."""
    for check in SUITES[suite](programs):
        reason = KNOWN_FAILURES.get((suite, check.name))
        if reason is None:
            yield check
        elif check.passed:
            yield Check(check.name, False, f"passes, but is listed as failing: {reason}")
        else:
            yield Check(f"{check.name} (known: {reason})", True)


def versions():
    """The versions of the foreign tools, from go.mod and from their own output."""
    pinned = (GO / "go.mod").read_text()
    modules = {
        "h2spec": "github.com/summerwind/h2spec",
        "gRPC interop": "google.golang.org/grpc",
        "Tempo's types": "github.com/grafana/tempo",
        "Prometheus's parser": "github.com/prometheus/common",
    }
    versions_by_name = {name: re.search(rf"{re.escape(m)} (\S+)", pinned).group(1) for name, m in modules.items()}
    output = peers.command_output(peers.find_program("prometheus", "prometheus"), "--version").split()
    return versions_by_name | {"Prometheus": output[2] if len(output) > 2 else "?"}
