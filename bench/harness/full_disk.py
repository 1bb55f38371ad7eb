"""A disk that is really full: a small file system in memory, filled up while senders send, and freed again.

Three times: with the log on it, with the tables on it while the log is elsewhere, and with both. While it is full senders
must learn of it, the log of the server must name it, and queries must succeed; once there is room the server must go
on by itself, and in the end everything acknowledged is there exactly once. Mounting needs root.
"""

import collections
import errno
import http.client
import os
import subprocess
import threading
import time
from dataclasses import replace

from harness.exactly_once import Found, Wrong
from harness.live_server import Server, spans_of
from harness.sending import Senders
from harness.table_counts import check

DISK_MIB = 96
# With senders that never wait for anything else, some MiB/s.
SENT = ("spans", "spans", "logs", "points")
BEFORE_S = 2.0
# The server tries again after 30 s at most.
AGAIN_LIMIT_S = 60.0
QUESTIONS = (
    "/api/search?limit=20&q=%7B+resource.service.name+%3D+%22cart%22+%7D",
    "/api/metrics/query?q=%7B+%7D+%7C+count_over_time%28%29+by+%28resource.service.name%29&start=0&end=9000000000",
)
NAMED = "No space left on device"


class SkippedError(Exception):
    """It cannot be done here; the message says why."""


class SmallDisk:
    """A file system of some MiB, mounted for as long as this is entered."""

    def __init__(self, folder):
        self.folder = folder
        self.ballast = folder / "ballast"

    def __enter__(self):
        if os.geteuid() != 0:
            raise SkippedError("a small file system is mounted for it, which needs root")
        self.folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "curtail-bench", self.folder]
        done = subprocess.run(mount, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise SkippedError(f"no file system can be mounted: {done.stderr.strip()}")
        return self

    def __exit__(self, *_):
        # It goes when nobody uses it any more.
        subprocess.run(["umount", "--lazy", self.folder], check=True)

    def fill(self):
        """Takes all room that there is."""
        with self.ballast.open("ab", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self):
        self.ballast.unlink()


class Filling(threading.Thread):
    """Keeps a disk full: what the server gives back is taken at once."""

    def __init__(self, disk):
        super().__init__(daemon=True)
        self.disk, self.stopping = disk, threading.Event()
        self.start()

    def run(self):
        while not self.stopping.wait(0.02):
            self.disk.fill()

    def stop(self):
        self.stopping.set()
        self.join()
        self.disk.free()


def measure(plan, found, rng, place):
    untold = []
    for what in ("log", "tables", "both"):
        folder = place.folder / what
        folder.mkdir()
        with SmallDisk(folder / "disk") as disk:
            own = disk.folder if what != "tables" else folder
            tables = (disk.folder if what != "log" else folder) / "tables"
            here = replace(place, folder=own, tables=f"file://{tables}")
            # The tables of each time are others.
            of_this = Found(found.name, found.seed, found.lines)
            untold += full(plan, of_this, rng, (here, disk, what, tables))
    if untold:
        raise Wrong(f"no sender learned that the disk is full, but {untold}; seed {found.seed}")


def full(plan, found, rng, where):
    """Once; returns the rejections if none names the full disk."""
    place, disk, what, tables = where
    title = {"log": "the log", "tables": "the tables", "both": "the log and the tables"}[what]
    # The server's own log is no part of what is tried.
    server = Server(place, log=disk.folder.parent / "curtail.log").ready()
    try:
        senders = Senders(found, server.otlp, rng, SENT)
        time.sleep(BEFORE_S)
        since = server.log.stat().st_size
        filling = Filling(disk)
        query_count = ask(plan.full_s, found, senders, server)
        refused, complaints = senders.refused(), server.complaints(since)
        until = time.monotonic()
        since = server.log.stat().st_size
        filling.stop()
        taken_s = again(until, lambda: senders.took_ms(until), "takes no batch", server)
        written_s = again(until, lambda: "flushed" in messages(server, since), "writes no run", server)
        time.sleep(1.0)
        senders.stop()
        logged = collections.Counter(said["message"] for said in complaints)
        found.say(f"{title} on a disk that was full for {plan.full_s:.0f} s: senders received {say(refused)}")
        found.say(f"  the server logged {dict(logged)}, for example {named(found, complaints)}")
        found.say(f"  {query_count} queries succeeded meanwhile")
        found.say(f"  with room again a batch was taken after {taken_s:.1f} s, a run written after {written_s:.1f} s")
        code = server.stop()
        if code != 0:
            raise Wrong(f"the server ended with {code}:\n{server.said()[-2000:]}")
    finally:
        server.end()
    check(found, tables)
    return [] if any("disk is full" in message for _, message in refused) else [f"{title}: {say(refused)}"]


def ask(seconds, found, senders, server):
    """Asks again and again for so long; every query must succeed, and traces be whole. Returns how many were."""
    connection = http.client.HTTPConnection(server.api, timeout=60)
    limit, query_count = time.monotonic() + seconds, 0
    while time.monotonic() < limit:
        for path in QUESTIONS:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            if response.status != 200 or response.getheader("curtail-incomplete"):
                raise Wrong(f"{path}: {response.status}, {body[:300]}; seed {found.seed}")
        trace_id = senders.all[0].acknowledged[-1]
        spans, _ = spans_of(trace_id, connection)
        if not spans:
            raise Wrong(f"trace {trace_id}, just acknowledged, is not there; seed {found.seed}")
        query_count += len(QUESTIONS) + 1
        time.sleep(0.1)
    return query_count


def again(since, is_so, what, server):
    """How many seconds after there was room something is so."""
    while not is_so():
        if time.monotonic() > since + AGAIN_LIMIT_S or not server.is_alive():
            raise Wrong(f"with room again the server {what} within {AGAIN_LIMIT_S:.0f} s:\n{server.said()[-2000:]}")
        time.sleep(0.02)
    return time.monotonic() - since


def messages(server, since):
    return [event["fields"].get("message") for event in server.events(since)]


def say(refused):
    return ", ".join(f'{status} "{message}" ({count} times)' for (status, message), count in refused.items()) or "nothing"


def named(found, complaints):
    """The first complaint that names what is full."""
    for said in complaints:
        if NAMED in str(said.get("error")):
            return said
    raise Wrong(f"the server does not log {NAMED!r}: {complaints[:5]}; seed {found.seed}")
