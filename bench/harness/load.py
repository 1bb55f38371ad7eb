"""The load generators: h2load at a fixed rate for both protocols, wrk and h2load flat out.

Fixed rate. wrk has no rate option, so h2load paces HTTP/1.1 too (`--h1 --rps`). By default, h2load sends in bursts:
its timer ticks every 10 ms at best, and its connections start together. At 5,000 requests a second, 50 requests arrive
at once every 10 ms. A proxy that handles 50 requests per wake-up looks cheaper than it is in service. Three settings
spread the requests:

- Each connection sends less than one request per tick (its rate is below 100 a second).
- Connections open 1 ms apart (`-r 1 --rate-period 1ms`), and their period is not a whole number of milliseconds. Their
  phases interleave: 51 connections at 10.2 ms each give one request every 0.2 ms.
- LIBEV_FLAGS=1 makes the event loop use select(), which waits in microseconds; epoll rounds up to milliseconds.

The generator logs the latency of every request, from its start to the end of the response, on its own clock. The
latency does not count from the planned time. With one request in flight per connection and a tick of 10 ms, a slow
response delays at most the next request of its connection. The report shows the measured rate.

Flat out. wrk (HTTP/1.1, 64 connections, one request each) and h2load (HTTP/2, 8 connections of 16 streams). These show
throughput, and the cost per request when every wake-up finds many requests.
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
# The harness kills a generator that still runs this long after its planned end.
GRACE_S = 20


class LoadError(Exception):
    """A generator or a request failed; the message has the number of failures or the output of the generator."""


@dataclass(frozen=True)
class PacedResult:
    """The result of a fixed-rate block: sorted latencies in microseconds, and the measured rate."""

    latencies_us: list
    rate: float

    @property
    def requests(self):
        return len(self.latencies_us)


def connection_count(rate):
    """The number of connections that send `rate` requests a second, each with a period just above the 10 ms tick."""
    return max(1, math.floor(rate / 100) + 1)


def url(protocol, port):
    """The URL of a request. The path names the protocol, so that a proxy can choose its upstream by path."""
    return f"http://127.0.0.1:{port}/{protocol}"


def paced_command(protocol, port, rate, requests, log):
    """The h2load command for a fixed rate; `rate` is the sum over all connections, requests a second."""
    connections = connection_count(rate)
    protocol_flag = "--h1" if protocol == HTTP1 else "-m1"
    return [
        "h2load", protocol_flag, "-n", requests, "-c", connections, "--rps", f"{rate / connections:.4f}",
        "-r", 1, "--rate-period", "1ms", "--log-file", log, url(protocol, port),
    ]  # fmt: skip


def send_paced(protocol, port, rate, requests, core, log):
    """Sends `requests` at `rate` a second; returns a `PacedResult`. Every response must be a 200."""
    log.unlink(missing_ok=True)
    run_generator(paced_command(protocol, port, rate, requests, log), core, requests / rate)
    return parse_log(log.read_text(), requests)


def parse_log(text, requests):
    """Parses h2load's log: start in microseconds since 1970, status, microseconds until the end of the response."""
    rows = [tuple(map(int, line.split("\t"))) for line in text.splitlines()]
    errors = [status for _start, status, _latency in rows if status != 200]
    if errors or len(rows) != requests:
        raise LoadError(f"{len(rows)} of {requests} requests completed, {len(errors)} without 200: {errors[:1]}")
    starts = [start for start, _status, _latency in rows]
    span_s = (max(starts) - min(starts)) / 1e6
    return PacedResult(sorted(latency for _start, _status, latency in rows), (requests - 1) / span_s)


def flat_out_command(protocol, port, seconds):
    """The command that sends as fast as responses arrive, for `seconds`."""
    if protocol == HTTP1:
        return ["wrk", "-t1", "-c", WRK_CONNECTIONS, "-d", f"{seconds}s", url(protocol, port)]
    return ["h2load", "-c", H2_CONNECTIONS, "-m", H2_STREAMS, "-D", seconds, url(protocol, port)]


def send_flat_out(protocol, port, seconds, core):
    """Sends as fast as responses arrive, for `seconds`; returns the number of completed requests."""
    output = run_generator(flat_out_command(protocol, port, seconds), core, seconds)
    return parse_wrk(output) if protocol == HTTP1 else parse_h2load(output)


def parse_wrk(text):
    """The number of requests in wrk's summary; a response that is not 2xx, or a socket error, is an error."""
    error = re.search(r"Non-2xx.*|Socket errors.*", text)
    if error:
        raise LoadError(f"wrk: {error.group(0).strip()}")
    return int(search_output(r"(\d+) requests in", text))


def parse_h2load(text):
    """The number of requests in h2load's summary; a response that is not 2xx is an error."""
    succeeded, failed = search_output(r"(\d+) succeeded", text), search_output(r"(\d+) failed", text)
    if int(failed) or not int(succeeded):
        raise LoadError(f"h2load: {succeeded} succeeded, {failed} failed")
    return int(succeeded)


def search_output(pattern, text):
    """The first group of `pattern` in the output of a generator, which must match."""
    match = re.search(pattern, text)
    if not match:
        raise LoadError(f"expected {pattern!r} in the output of the generator:\n{text[-1000:]}")
    return match.group(1)


def run_generator(command, core, seconds):
    """Runs a generator on `core` until it ends; returns its output."""
    environment = dict(os.environ, LIBEV_FLAGS="1")
    generator = processes.spawn(
        command, core, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        output, _ = generator.communicate(timeout=seconds + GRACE_S)
    except subprocess.TimeoutExpired:
        raise LoadError(f"{command[0]} still runs {GRACE_S} s after its {seconds:.0f} s; the target hangs") from None
    finally:
        if generator.poll() is None:
            generator.kill()
            generator.wait()
    if generator.returncode != 0:
        raise LoadError(f"{command[0]} failed with exit code {generator.returncode}:\n{output[-1000:]}")
    return output
