"""Starts a process tree on chosen cores, reads its cost from /proc, and stops it.

nginx runs a master and a worker; Envoy runs many threads. The cost is the sum over all threads of all processes:

- processor time: /proc/PID/task/TID/schedstat, in nanoseconds, user and system together. /proc/PID/stat has the
  split, in ticks of 10 ms.
- waited: the time in which a thread was ready but another process had the core, the second field of schedstat. It
  shows disturbance by other load on the machine, so the report prints it next to the processor time.
- peak memory: the sum of VmHWM of each process. Pages that a master shares with its worker count twice.

The kernel's loopback work (the softirq that hands a packet to the receiver) runs in the sender's time. These figures
therefore include it, for every proxy in the same way.
"""

import contextlib
import functools
import os
import signal
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

START_LIMIT_S = 15.0
STOP_LIMIT_S = 5.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Raises the priority above other load on the machine.
NICE_AS_ROOT = -15
# In place of a nice value, for a process that stands for another machine and must not delay what it shares a core with: the
# policy SCHED_IDLE. With a nice value of 19, a receiver of spans still ran to the end of its time slice, and p99 was 5 % higher (HTTP/1.1).
ELSEWHERE = "idle"
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
# The maximum time to wake a core, in microseconds, for as long as the file is open (a 32-bit integer).
WAKE_UP_LATENCY = Path("/dev/cpu_dma_latency")


class StartError(Exception):
    """A process did not start or stop; the message names it and has the end of its output."""


@dataclass(frozen=True)
class Cost:
    """Cost of a process tree since its start; the difference of two is the cost of the interval between them."""

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


@contextlib.contextmanager
def no_autogroup():
    """Switches autogroup off, if this process may: with it, priorities do not count between sessions."""
    before = AUTOGROUP.read_text() if AUTOGROUP.exists() and os.geteuid() == 0 else None
    if before:
        AUTOGROUP.write_text("0")
    try:
        yield
    finally:
        if before:
            AUTOGROUP.write_text(before)


@contextlib.contextmanager
def no_sleeping_cores():
    """Makes idle cores poll instead of sleep, if this process may: on a virtual machine, each sleep is an exit to the
    hypervisor, and the time to wake up varies."""
    if not os.access(WAKE_UP_LATENCY, os.W_OK):
        yield
        return
    with WAKE_UP_LATENCY.open("wb", buffering=0) as latency:
        latency.write(struct.pack("i", 0))
        yield


def nice_value():
    """The nice value of every measured process; a negative value needs root."""
    return NICE_AS_ROOT if os.geteuid() == 0 else 0


@functools.cache
def can_run_at_real_time():
    """Whether this process may start others at real-time priority, which needs root or CAP_SYS_NICE."""
    return subprocess.run(["chrt", "--fifo", "1", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def at_real_time(command):
    """The command at real-time priority, if that is possible."""
    return ["chrt", "--fifo", "1", *command] if can_run_at_real_time() else command


def spawn(command, core, nice=None, **popen):
    """Starts `command` pinned to `core`, in a session of its own, so that Ctrl-C reaches only the harness. `nice` is a nice
    value or ELSEWHERE."""
    nice = nice_value() if nice is None else nice
    priority = ["chrt", "--idle", "0"] if nice == ELSEWHERE else ["nice", "-n", str(nice)]
    pinned = ["taskset", "--cpu-list", str(core), *priority, *map(str, command)]
    process = subprocess.Popen(pinned, stdin=subprocess.DEVNULL, start_new_session=True, **popen)
    # With autogroup, priorities count only within a session; the group of the session has its own nice value.
    group = Path(f"/proc/{process.pid}/autogroup")
    if nice and group.exists():
        group.write_text("19" if nice == ELSEWHERE else str(nice))
    return process


class ServerProcess:
    """A server or proxy on loopback; it listens when the constructor returns, and has ended when `stop` returns."""

    def __init__(self, name, command, core, ports, log, nice=None):
        used_ports = [port for port in ports if is_listening(port)]
        if used_ports:
            raise StartError(f"{name}: 127.0.0.1:{used_ports[0]} is already in use; stop its listener")
        self.name = name
        self.log = Path(log)
        with self.log.open("wb") as log_file:
            self.process = spawn(command, core, nice, stdout=log_file, stderr=subprocess.STDOUT)
        try:
            self._wait_for_ports(ports)
        except BaseException:
            self.stop()
            raise

    def _wait_for_ports(self, ports):
        limit = time.monotonic() + START_LIMIT_S
        for port in ports:
            while not is_listening(port):
                if self.process.poll() is not None or time.monotonic() > limit:
                    output = self.log.read_text(errors="replace")[-2000:]
                    raise StartError(f"{self.name}: not listening on 127.0.0.1:{port}. Its output:\n{output}")
                time.sleep(0.02)

    def pin(self, core):
        """Moves every thread of the process tree to another core."""
        for pid in list_process_tree(self.process.pid):
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {core})

    def set_real_time(self, is_on):
        """Moves every thread of the process tree to real-time priority, if that is possible, or back."""
        if can_run_at_real_time():
            policy, priority = (os.SCHED_FIFO, 1) if is_on else (os.SCHED_OTHER, 0)
            for pid in list_process_tree(self.process.pid):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))

    def cost(self):
        """The cost of the process tree since its start."""
        return sum_costs(read_cost(pid) for pid in list_process_tree(self.process.pid))

    def peak_memory_bytes(self):
        """The sum of VmHWM of the process tree."""
        return sum(read_peak_memory_bytes(pid) for pid in list_process_tree(self.process.pid))

    def stop(self):
        """Sends SIGTERM to the process, waits, then sends SIGKILL to the rest of its process group."""
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
            pass  # The whole group has already ended.
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def is_listening(port):
    """Whether a process listens on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def list_process_tree(pid):
    """The PIDs of a process and all its descendants, the process first."""
    pids = [pid]
    for parent in pids:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                pids.extend(int(child) for child in task.read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return pids


def read_cost(pid):
    """The cost of one process with all its threads."""
    user_s, system_s = parse_stat(Path(f"/proc/{pid}/stat").read_text())
    cpu_ns = waited_ns = 0
    for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        ran, waited, _slices = map(int, schedstat.read_text().split())
        cpu_ns += ran
        waited_ns += waited
    return Cost(cpu_ns, user_s, system_s, waited_ns)


def parse_stat(text):
    """User and system seconds from a line of /proc/PID/stat. The command name may contain spaces and brackets."""
    fields = text.rpartition(")")[2].split()
    # fields[0] is field 3 of proc(5), so user time (field 14) is fields[11].
    return int(fields[11]) / TICKS_PER_S, int(fields[12]) / TICKS_PER_S


def read_peak_memory_bytes(pid):
    """VmHWM of one process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/status has no VmHWM line")


def sum_costs(costs):
    """Adds the costs of several processes."""
    total = Cost(0, 0.0, 0.0, 0)
    for cost in costs:
        total = Cost(
            total.cpu_ns + cost.cpu_ns,
            total.user_s + cost.user_s,
            total.system_s + cost.system_s,
            total.waited_ns + cost.waited_ns,
        )
    return total
