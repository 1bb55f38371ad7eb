"""Runs `curtail server` on a folder of its own, on ports that the system chooses, and reads its log."""

import datetime
import json
import os
import resource
import subprocess
import time
from dataclasses import dataclass

from harness import processes
from harness.processes import StartError

# Server and sender have many threads.
ALL_CORES = f"0-{os.cpu_count() - 1}"
START_LIMIT_S = 60.0
# Flushing the memtables takes seconds; compaction takes longer.
STOP_LIMIT_S = 300.0
# Messages in the log.
ALL_COMPACTED = "nothing is left to compact"
COMPACTED = "compacted"


@dataclass(frozen=True)
class Compaction:
    """The time range of a compaction, in seconds since 1970."""

    begin_s: float
    end_s: float


class Server:
    """A server; it listens when the constructor returns, and has ended when `stop` returns."""

    def __init__(self, program, data, log, memory_mib):
        command = [program, "server", "--data", data, "--otlp", "127.0.0.1:0", "--api", "127.0.0.1:0"]
        self.command = [*command, "--set", f"memtable={memory_mib}MiB"]
        self.log = log
        self._stopped_cpu_s = None
        output = log.with_suffix(".out")
        with log.open("wb") as err, output.open("wb") as out:
            self.process = processes.spawn(self.command, ALL_CORES, stdout=out, stderr=err)
        try:
            self.otlp, self.api = self._read_addresses(output)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _read_addresses(self, output):
        """Waits for the two lines on standard output that name the addresses of the listeners."""
        limit = time.monotonic() + START_LIMIT_S
        while output.read_bytes().count(b"\n") < 2:
            if self.process.poll() is not None or time.monotonic() > limit:
                raise StartError(f"curtail server does not print its addresses. Its log:\n{self._log_end()}")
            time.sleep(0.02)
        lines = [line.split() for line in output.read_text().splitlines()]
        if [fields[0] for fields in lines] != ["otlp", "api"]:
            raise StartError(f"curtail server: expected one address of otlp and one of api, found {lines}")
        return [fields[1].removeprefix("http://") for fields in lines]

    def _log_end(self):
        return self.log.read_text(errors="replace")[-2000:]

    def log_events(self):
        """The events in the log, from its complete lines."""
        lines = self.log.read_text(errors="replace").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]

    def wait_until_compacted(self, limit_s=STOP_LIMIT_S):
        """Waits until the server logs that nothing is left to compact; it does so once after its start."""
        limit = time.monotonic() + limit_s
        while not any(event["fields"]["message"] == ALL_COMPACTED for event in self.log_events()):
            if self.process.poll() is not None or time.monotonic() > limit:
                raise StartError(f"curtail server: compaction exceeds {limit_s:.0f} s. Its log:\n{self._log_end()}")
            time.sleep(0.05)

    def compactions(self):
        """The compactions in the log."""
        compactions = []
        for event in self.log_events():
            if event["fields"]["message"] == COMPACTED:
                end = datetime.datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp()
                compactions.append(Compaction(end - event["fields"]["took_s"], end))
        return compactions

    def warnings(self):
        """The warnings and errors in the log."""
        return [event for event in self.log_events() if event["level"] in ("WARN", "ERROR")]

    def cost(self):
        """The cost of the running server since its start."""
        return processes.read_cost(self.process.pid)

    def peak_memory_bytes(self):
        """VmHWM of the running server."""
        return processes.read_peak_memory_bytes(self.process.pid)

    def stop(self):
        """Stops the server, which flushes its memtables; returns the processor time of its whole life, in seconds."""
        if self._stopped_cpu_s is not None:
            return self._stopped_cpu_s
        before = children_cpu_s()
        self.process.terminate()
        try:
            code = self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise StartError(f"curtail server did not stop within {STOP_LIMIT_S:.0f} s:\n{self._log_end()}") from None
        finally:
            self._stopped_cpu_s = children_cpu_s() - before
        if code != 0:
            raise StartError(f"curtail server failed with exit code {code}:\n{self._log_end()}")
        return self._stopped_cpu_s

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def children_cpu_s():
    """User and system time of all child processes that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
