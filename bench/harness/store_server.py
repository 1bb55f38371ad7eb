"""`curtail server` on a folder of its own, on ports that the system chooses; and what its log said."""

import datetime
import json
import os
import resource
import subprocess
import time
from dataclasses import dataclass

from harness import processes
from harness.processes import StartError

# Both cores: it is a service of many threads, and so is the sender.
ALL_CORES = f"0-{os.cpu_count() - 1}"
START_LIMIT_S = 60.0
# Writing what is in memory takes some seconds, merging some more.
STOP_LIMIT_S = 300.0
MERGED_ALL = "nothing is left to compact"
MERGED = "compacted"


@dataclass(frozen=True)
class Merge:
    """When runs were being merged, in seconds since 1970."""

    begin_s: float
    end_s: float


class Server:
    """A server that is ready when the constructor returns, and is gone after `stop`."""

    def __init__(self, program, data, log, memory_mib):
        command = [program, "server", "--data", data, "--otlp", "127.0.0.1:0", "--api", "127.0.0.1:0"]
        self.command = [*command, "--set", f"memtable={memory_mib}MiB"]
        self.log = log
        self._stopped_cpu_s = None
        printed = log.with_suffix(".out")
        with log.open("wb") as err, printed.open("wb") as out:
            self.process = processes.spawn(self.command, ALL_CORES, stdout=out, stderr=err)
        try:
            self.otlp, self.api = self._addresses(printed)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _addresses(self, printed):
        """Where it listens: two lines on standard output, once it does."""
        limit = time.monotonic() + START_LIMIT_S
        while printed.read_bytes().count(b"\n") < 2:
            if self.process.poll() is not None or time.monotonic() > limit:
                raise StartError(f"curtail server does not say where it listens. It said:\n{self._last()}")
            time.sleep(0.02)
        lines = [line.split() for line in printed.read_text().splitlines()]
        if [words[0] for words in lines] != ["otlp", "api"]:
            raise StartError(f"curtail server: expected an address of otlp and one of api, it printed {lines}")
        return [words[1].removeprefix("http://") for words in lines]

    def _last(self):
        return self.log.read_text(errors="replace")[-2000:]

    def events(self):
        """The lines of its log so far, whole ones only."""
        lines = self.log.read_text(errors="replace").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]

    def wait_until_merged(self, limit_s=STOP_LIMIT_S):
        """Wait until it has logged that nothing is left to compact; it says so once after it was started."""
        limit = time.monotonic() + limit_s
        while not any(event["fields"]["message"] == MERGED_ALL for event in self.events()):
            if self.process.poll() is not None or time.monotonic() > limit:
                raise StartError(f"curtail server: runs are not merged after {limit_s:.0f} s. It said:\n{self._last()}")
            time.sleep(0.05)

    def merges(self):
        """When it merged runs so far."""
        found = []
        for event in self.events():
            if event["fields"]["message"] == MERGED:
                end = datetime.datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp()
                found.append(Merge(end - event["fields"]["took_s"], end))
        return found

    def complaints(self):
        """What it warned of."""
        return [event for event in self.events() if event["level"] in ("WARN", "ERROR")]

    def cost(self):
        """What it has used since it started, while it runs."""
        return processes.cost_of_process(self.process.pid)

    def peak_memory_bytes(self):
        """VmHWM, while it runs."""
        return processes.peak_memory_bytes_of_process(self.process.pid)

    def stop(self):
        """Ask it to end, which writes what is in memory; return the processor seconds of its whole life."""
        if self._stopped_cpu_s is not None:
            return self._stopped_cpu_s
        before = children_cpu_s()
        self.process.terminate()
        try:
            code = self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise StartError(f"curtail server did not end within {STOP_LIMIT_S:.0f} s:\n{self._last()}") from None
        finally:
            self._stopped_cpu_s = children_cpu_s() - before
        if code != 0:
            raise StartError(f"curtail server ended with {code}:\n{self._last()}")
        return self._stopped_cpu_s

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def children_cpu_s():
    """User and system seconds of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
