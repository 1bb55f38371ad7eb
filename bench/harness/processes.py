"""Starts a process on chosen cores, says what it has cost so far, and stops it.

A process here means a whole tree: nginx is a master and a worker, Envoy is many threads. Cost is read from
/proc, for every thread of every process of the tree:

- processor time: /proc/PID/task/TID/schedstat, nanoseconds (user and system together); the split comes from
  /proc/PID/stat, which counts in ticks of 10 ms;
- time spent ready but kept waiting for a core: the second field of schedstat. It is the disturbance from
  whatever else the machine did, and the report prints it beside the figure that it disturbs;
- peak memory: VmHWM of each process, added up. Pages that a master shares with its worker count twice.

Loopback work of the kernel (the softirq that hands a packet to the receiver) runs in the sender's time, so it is
part of these figures, for every proxy in the same way.
"""

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

START_LIMIT_S = 15.0
STOP_LIMIT_S = 5.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Above other work on the machine, where the user may ask for that.
NICE_WANTED = -15


class StartError(Exception):
    """A process did not come up; the message says which, and what it printed last."""


@dataclass(frozen=True)
class Cost:
    """What a process tree has used since it started; subtract two to get the cost of what lies between."""

    cpu_ns: int
    user_s: float
    system_s: float
    waited_ns: int

    def __sub__(self, earlier):
        return Cost(
            self.cpu_ns - earlier.cpu_ns,
            self.user_s - earlier.user_s,
            self.system_s - earlier.system_s,
            self.waited_ns - earlier.waited_ns,
        )


def priority():
    """The nice value that every measured process gets: a negative one needs root, 0 otherwise."""
    return NICE_WANTED if os.geteuid() == 0 else 0


def spawn(command, core, **popen):
    """Start `command` pinned to `core`, in a session of its own, so that Ctrl-C reaches only us."""
    pinned = ["taskset", "--cpu-list", str(core), "nice", "-n", str(priority()), *map(str, command)]
    process = subprocess.Popen(pinned, stdin=subprocess.DEVNULL, start_new_session=True, **popen)
    # Where the kernel groups sessions (autogroup), nice counts only inside a session; the group has a nice of its own.
    group = Path(f"/proc/{process.pid}/autogroup")
    if priority() and group.exists():
        group.write_text(str(priority()))
    return process


class Running:
    """A server or proxy on loopback that is up when the constructor returns, and gone after `stop`."""

    def __init__(self, name, command, core, ports, log):
        taken = [port for port in ports if is_listening(port)]
        if taken:
            raise StartError(f"{name}: something already listens on 127.0.0.1:{taken[0]}; stop it first")
        self.name = name
        self.log = Path(log)
        with self.log.open("wb") as out:
            self.process = spawn(command, core, stdout=out, stderr=subprocess.STDOUT)
        try:
            self._wait_for(ports)
        except BaseException:
            self.stop()
            raise

    def _wait_for(self, ports):
        limit = time.monotonic() + START_LIMIT_S
        for port in ports:
            while not is_listening(port):
                if self.process.poll() is not None or time.monotonic() > limit:
                    last = self.log.read_text(errors="replace")[-2000:]
                    raise StartError(f"{self.name}: not listening on 127.0.0.1:{port}. It printed:\n{last}")
                time.sleep(0.02)

    def pin(self, core):
        """Move every thread of the tree to another core."""
        for pid in tree(self.process.pid):
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {core})

    def cost(self):
        """What the whole tree has used since it started."""
        return sum_costs(cost_of_process(pid) for pid in tree(self.process.pid))

    def peak_memory_bytes(self):
        """VmHWM of the tree, added up."""
        return sum(peak_memory_bytes_of_process(pid) for pid in tree(self.process.pid))

    def stop(self):
        """Ask it to end, then make what is left of its process group end; only what this class started."""
        if self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # All of the group ended by itself.
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def is_listening(port):
    """Does something listen on this loopback port?"""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tree(pid):
    """A process and all its descendants, the process first."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found.extend(int(child) for child in task.read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def cost_of_process(pid):
    """The cost of one process with all its threads."""
    user_s, system_s = parse_stat(Path(f"/proc/{pid}/stat").read_text())
    cpu_ns = waited_ns = 0
    for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        ran, waited, _slices = map(int, schedstat.read_text().split())
        cpu_ns += ran
        waited_ns += waited
    return Cost(cpu_ns, user_s, system_s, waited_ns)


def parse_stat(text):
    """User and system seconds from a line of /proc/PID/stat. The command name may hold spaces and brackets."""
    fields = text.rpartition(")")[2].split()
    # The first field after the name is the third of the line, so user time (14) is at 11.
    return int(fields[11]) / TICKS_PER_S, int(fields[12]) / TICKS_PER_S


def peak_memory_bytes_of_process(pid):
    """VmHWM of one process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/status has no VmHWM line")


def sum_costs(costs):
    """Add up the costs of the processes of a tree."""
    total = Cost(0, 0.0, 0.0, 0)
    for cost in costs:
        total = Cost(
            total.cpu_ns + cost.cpu_ns,
            total.user_s + cost.user_s,
            total.system_s + cost.system_s,
            total.waited_ns + cost.waited_ns,
        )
    return total
