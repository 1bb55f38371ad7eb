"""`curtail server` as a process that is killed, and started again where it was."""

import json
import os
import re
import select
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness.exactly_once import Wrong
from harness.processes import StartError

START_LIMIT_S = 60
END_LIMIT_S = 120


@dataclass(frozen=True)
class Place:
    """Where a server lives: its own folder, and where its tables are."""

    program: Path
    folder: Path
    tables: str
    environment: dict = field(default_factory=dict)
    arguments: tuple = ("--set", "memtable=1MiB", "--set", "flush_every=1s")

    @property
    def data(self):
        return Path(self.folder) / "data"


class Server:
    """A server on ports that the system chose."""

    def __init__(self, place, settings=None, log=None):
        """Its log goes to the folder, unless `log` says where to; `settings` are added to its environment."""
        self.log = log or Path(place.folder) / "curtail.log"
        self.begins = self.log.stat().st_size if self.log.exists() else 0
        command = [place.program, "server", "--data", place.data, "--tables", place.tables]
        command += ["--otlp", "127.0.0.1:0", "--api", "127.0.0.1:0", *place.arguments]
        with self.log.open("ab") as err:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                env=os.environ | place.environment | (settings or {}),
                bufsize=0,
                start_new_session=True,
            )

    def ready(self):
        """Waits until it listens."""
        self.otlp = self._address("otlp http://")
        self.api = self._address("api  http://")
        self.listens = self.log.stat().st_size
        return self

    def _address(self, prefix):
        line = self._line()
        if not line.startswith(prefix):
            self.kill()
            raise StartError(f"curtail server: expected a line {prefix!r}, found {line!r}. Its log:\n{self.said()[-2000:]}")
        return line.removeprefix(prefix).split()[0]

    def _line(self):
        """Byte by byte, so that nothing lies in a buffer where select would not see it."""
        line = b""
        while not line.endswith(b"\n") and select.select([self.process.stdout], [], [], START_LIMIT_S)[0]:
            byte = self.process.stdout.read(1)
            if not byte:
                break
            line += byte
        return line.decode()

    def said(self, since=None):
        """What it has logged since it was started, or since its log was so long."""
        with self.log.open("rb") as log:
            log.seek(self.begins if since is None else since)
            return log.read().decode(errors="replace")

    def events(self, since=None):
        """Its log line by line; the last one may be in the writing."""
        for line in self.said(since).splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue

    def complaints(self, since=None):
        """What it has warned of: fields of the events."""
        return [event["fields"] for event in self.events(since) if event.get("level") in ("ERROR", "WARN")]

    def is_alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Has it write what it has; returns its exit code."""
        self.process.terminate()
        return self.process.wait(END_LIMIT_S)

    def end(self):
        """After an early exit: stops everything that was started."""
        if self.is_alive():
            self.kill()


def spans_of(trace_id, connection):
    """How many spans of a trace there are, and how long that took in ms."""
    begun = time.monotonic()
    connection.request("GET", f"/api/traces/{trace_id}")
    response = connection.getresponse()
    body = response.read()
    took_ms = (time.monotonic() - begun) * 1e3
    if response.status == 404:
        return 0, took_ms
    if response.status != 200 or response.getheader("curtail-incomplete"):
        raise Wrong(f"trace {trace_id}: {response.status}, unread runs {response.getheader('curtail-incomplete')}")
    return len(re.findall(rb'"spanId"', body)), took_ms
