"""Starts `curtail server` as a process that a test can kill and start again on the same folder."""

import json
import os
import re
import select
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from harness.exactly_once import CheckError
from harness.processes import StartError

START_LIMIT_S = 60
END_LIMIT_S = 120


@dataclass(frozen=True)
class ServerConfig:
    """The program, folder, tables and arguments of a server."""

    program: Path
    folder: Path
    tables_url: str
    environment: dict = field(default_factory=dict)
    arguments: tuple = ("--set", "memtable=1MiB", "--set", "flush_every=1s")

    @property
    def data(self):
        return Path(self.folder) / "data"


class Server:
    """A server on ports that the system chooses."""

    def __init__(self, config, environment=None, log=None):
        """`environment` is added to that of the process; `log` replaces the log file in the folder of the server."""
        self.log = log or Path(config.folder) / "curtail.log"
        self.log_begin = self.log.stat().st_size if self.log.exists() else 0
        command = [config.program, "server", "--data", config.data, "--tables", config.tables_url]
        command += ["--otlp", "127.0.0.1:0", "--api", "127.0.0.1:0", *config.arguments]
        with self.log.open("ab") as err:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                env=os.environ | config.environment | (environment or {}),
                bufsize=0,
                start_new_session=True,
            )

    def wait_until_ready(self):
        """Waits until the server listens."""
        self.otlp = self._read_address("otlp http://")
        self.api = self._read_address("api  http://")
        self.log_size_when_ready = self.log.stat().st_size
        return self

    def _read_address(self, prefix):
        line = self._read_line()
        if not line.startswith(prefix):
            self.kill()
            log = self.read_log()[-2000:]
            raise StartError(f"curtail server: expected a line with prefix {prefix!r}, got {line!r}. Its log:\n{log}")
        return line.removeprefix(prefix).split()[0]

    def _read_line(self):
        """Reads single bytes, because select does not see bytes in a buffer."""
        line = b""
        while not line.endswith(b"\n") and select.select([self.process.stdout], [], [], START_LIMIT_S)[0]:
            byte = self.process.stdout.read(1)
            if not byte:
                break
            line += byte
        return line.decode()

    def read_log(self, offset=None):
        """The log from a byte offset, by default from the start of this process."""
        with self.log.open("rb") as log:
            log.seek(self.log_begin if offset is None else offset)
            return log.read().decode(errors="replace")

    def log_events(self, offset=None):
        """The events of the log, without an incomplete last line."""
        for line in self.read_log(offset).splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue

    def warnings(self, offset=None):
        """The fields of warnings and errors."""
        return [event["fields"] for event in self.log_events(offset) if event.get("level") in ("ERROR", "WARN")]

    def is_alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Stops the server, which then flushes its memtables; returns its exit code."""
        self.process.terminate()
        return self.process.wait(END_LIMIT_S)

    def kill_if_alive(self):
        """Cleans up after an exception."""
        if self.is_alive():
            self.kill()


def count_spans(trace_id, connection):
    """The number of spans of a trace, by the API; 0 if there is no such trace."""
    connection.request("GET", f"/api/traces/{trace_id}")
    response = connection.getresponse()
    body = response.read()
    if response.status == 404:
        return 0
    if response.status != 200 or response.getheader("curtail-incomplete"):
        missing = response.getheader("curtail-incomplete")
        raise CheckError(f"trace {trace_id}: status {response.status}, curtail-incomplete: {missing}")
    return len(re.findall(rb'"spanId"', body))
