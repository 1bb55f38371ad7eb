"""The load generators: h2load at a fixed rate for both protocols, wrk and h2load flat out.

Fixed rate. wrk has no rate option, so h2load paces HTTP/1.1 too (`--h1 --rps`). Left alone it sends in bursts:
its timer never ticks faster than every 10 ms, and all its connections start together, so 5,000 requests a second
arrive as 50 at once every 10 ms, and a proxy that handles 50 requests per wake-up looks cheaper than it is in
service. Three settings spread them out:

- each connection sends less than one request per tick (rate per connection < 100 a second);
- connections open 1 ms apart (`-r 1 --rate-period 1ms`) and their period is not a whole number of milliseconds, so
  their phases interleave: 51 connections at 10.2 ms each give one request every 0.2 ms;
- LIBEV_FLAGS=1 makes its event loop use select(), which waits in microseconds; epoll rounds up to milliseconds.

Latency is the generator's own clock, from sending a request to the end of its response, every request written to a log.
It is not the time since the request was due: with one request in flight per connection and a tick of 10 ms a slow
response delays at most the next request of that one connection. The rate really reached is kept; the report shows it.

Flat out. wrk (HTTP/1.1, 64 connections, one request each) and h2load (HTTP/2, 8 connections of 16 streams). These
show throughput and the cost per request when every wake-up finds much to do.
"""

import math
import os
import re
import subprocess
from dataclasses import dataclass

from harness import processes

HTTP1 = "http1"
HTTP2 = "http2"
PROTOCOLS = (HTTP1, HTTP2)

WRK_CONNECTIONS = 64
H2_CONNECTIONS = 8
H2_STREAMS = 16
# A generator that hangs is ended this long after it should have finished.
GRACE_S = 20


class LoadError(Exception):
    """A generator failed, or requests failed; the message says how many and where to look."""


@dataclass(frozen=True)
class Paced:
    """What a fixed-rate block saw: sorted latencies in microseconds, and the rate it really reached."""

    latencies_us: list
    rate: float

    @property
    def requests(self):
        return len(self.latencies_us)


def connections_for(rate):
    """How many connections send `rate` requests a second, each with a period just above the 10 ms tick."""
    return max(1, math.floor(rate / 100) + 1)


def url(protocol, port):
    """What is asked for. The path names the protocol, so that a proxy can choose its upstream by path."""
    return f"http://127.0.0.1:{port}/{protocol}"


def paced_command(protocol, port, rate, requests, log):
    """The h2load command for a fixed rate; `rate` is the sum over all connections, requests a second."""
    connections = connections_for(rate)
    protocol_flag = "--h1" if protocol == HTTP1 else "-m1"
    return [
        "h2load", protocol_flag, "-n", requests, "-c", connections, "--rps", f"{rate / connections:.4f}",
        "-r", 1, "--rate-period", "1ms", "--log-file", log, url(protocol, port),
    ]  # fmt: skip


def paced(protocol, port, rate, requests, core, log):
    """Send `requests` at `rate` a second and return what came back. Every response must be a 200."""
    log.unlink(missing_ok=True)
    run(paced_command(protocol, port, rate, requests, log), core, requests / rate)
    return parse_log(log.read_text(), requests)


def parse_log(text, requests):
    """Read h2load's log: start in microseconds since the epoch, status, microseconds until the response ended."""
    rows = [tuple(map(int, line.split("\t"))) for line in text.splitlines()]
    bad = [status for _start, status, _took in rows if status != 200]
    if bad or len(rows) != requests:
        raise LoadError(f"{len(rows)} of {requests} requests completed, {len(bad)} without 200 (first: {bad[:1]})")
    starts = [start for start, _status, _took in rows]
    span_s = (max(starts) - min(starts)) / 1e6
    return Paced(sorted(took for _start, _status, took in rows), (requests - 1) / span_s)


def flat_out_command(protocol, port, seconds):
    """The command that sends as fast as responses arrive, for `seconds`."""
    if protocol == HTTP1:
        return ["wrk", "-t1", "-c", WRK_CONNECTIONS, "-d", f"{seconds}s", url(protocol, port)]
    return ["h2load", "-c", H2_CONNECTIONS, "-m", H2_STREAMS, "-D", seconds, url(protocol, port)]


def flat_out(protocol, port, seconds, core):
    """Send as fast as responses arrive, for `seconds`; return the number of completed requests."""
    printed = run(flat_out_command(protocol, port, seconds), core, seconds)
    return parse_wrk(printed) if protocol == HTTP1 else parse_h2load(printed)


def parse_wrk(text):
    """The number of requests in wrk's summary; responses that were not 2xx or broken connections are an error."""
    trouble = re.search(r"Non-2xx.*|Socket errors.*", text)
    if trouble:
        raise LoadError(f"wrk: {trouble.group(0).strip()}")
    return int(find(r"(\d+) requests in", text))


def parse_h2load(text):
    """The number of requests in h2load's summary; anything but 2xx is an error."""
    done, failed = find(r"(\d+) succeeded", text), find(r"(\d+) failed", text)
    if int(failed) or not int(done):
        raise LoadError(f"h2load: {done} succeeded, {failed} failed")
    return int(done)


def find(pattern, text):
    """The first group of `pattern`, which the generator's output must hold."""
    found = re.search(pattern, text)
    if not found:
        raise LoadError(f"expected {pattern!r} in what the generator printed:\n{text[-1000:]}")
    return found.group(1)


def run(command, core, seconds):
    """Run a generator to its end on `core` and return what it printed."""
    environment = dict(os.environ, LIBEV_FLAGS="1")
    generator = processes.spawn(
        command, core, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        printed, _ = generator.communicate(timeout=seconds + GRACE_S)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{command[0]} still ran {GRACE_S} s after its {seconds:.0f} s; the target hangs") from None
    finally:
        if generator.poll() is None:
            generator.kill()
            generator.wait()
    if generator.returncode != 0:
        raise LoadError(f"{command[0]} ended with {generator.returncode}:\n{printed[-1000:]}")
    return printed
