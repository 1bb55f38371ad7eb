"""Tests the cost of a process, read from /proc, and the start and stop of processes."""

import os
import select
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from harness import processes
from harness.processes import Cost

BURN = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\nimport sys; sys.stdin.read()"
SERVE = (
    "import socket, subprocess, sys\n"
    "s = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "c = subprocess.Popen(['sleep', '60'])\n"
    "c.wait()\n"
)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class ProcTest(unittest.TestCase):
    def test_a_command_name_with_spaces_and_brackets_does_not_shift_the_fields(self):
        ticks = processes.TICKS_PER_S
        line = f"7 (a) b) c) S 1 7 7 0 -1 0 1 0 2 0 {3 * ticks} {ticks // 2} 0 0 20 0 1 0 99"
        self.assertEqual(processes.parse_stat(line), (3.0, 0.5))

    def test_costs_subtract_field_by_field(self):
        self.assertEqual(Cost(9, 3.0, 2.0, 7) - Cost(4, 1.0, 0.5, 2), Cost(5, 2.0, 1.5, 5))

    def test_costs_of_a_tree_add_up(self):
        total = processes.sum_costs([Cost(1, 2.0, 3.0, 4), Cost(10, 20.0, 30.0, 40)])
        self.assertEqual(total, Cost(11, 22.0, 33.0, 44))

    def test_the_two_clocks_of_a_process_that_burns_cpu_agree(self):
        child = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.assertEqual(child.stdout.readline(), b"done\n")
            cost = processes.read_cost(child.pid)
        finally:
            child.communicate()
        self.assertGreaterEqual(cost.cpu_ns, 290_000_000)
        # User time and system time each round by one tick.
        self.assertAlmostEqual(cost.cpu_ns / 1e9, cost.user_s + cost.system_s, delta=0.021)

    def test_peak_memory_is_in_bytes(self):
        page = os.sysconf("SC_PAGE_SIZE")
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * page
        # VmHWM is the peak, statm the current value; the kernel counts both per thread in batches of 64 pages.
        self.assertGreater(processes.read_peak_memory_bytes(os.getpid()), resident - 256 * page)


class ServerProcessTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = Path(folder.name) / "log"

    def start(self, script, port):
        return processes.ServerProcess("server", [sys.executable, "-c", script, port], 0, [port], self.log)

    def test_stop_ends_every_process_of_the_tree(self):
        with self.start(SERVE, free_port()) as server:
            end_events = select.poll()
            pids = processes.list_process_tree(server.process.pid)
            for pid in pids:
                # A pidfd becomes readable when its process ends.
                pidfd = os.pidfd_open(pid)
                self.addCleanup(os.close, pidfd)
                end_events.register(pidfd, select.POLLIN)
            self.assertEqual(len(pids), 2, "the server and its child")
            self.assertEqual(end_events.poll(0), [], "both run")
            server.stop()
            while len(events := end_events.poll(5000)) < 2:
                self.assertTrue(events, "a process still runs after stop()")

    def test_pin_moves_every_process_of_the_tree(self):
        with self.start(SERVE, free_port()) as server:
            core = max(os.sched_getaffinity(0))
            server.pin(core)
            for pid in processes.list_process_tree(server.process.pid):
                self.assertEqual(os.sched_getaffinity(pid), {core})

    @unittest.skipUnless(processes.can_run_at_real_time(), "needs root or CAP_SYS_NICE")
    def test_real_time_priority_is_for_every_process_of_the_tree(self):
        with self.start(SERVE, free_port()) as server:
            for is_on, policy in ((True, os.SCHED_FIFO), (False, os.SCHED_OTHER)):
                server.set_real_time(is_on)
                for pid in processes.list_process_tree(server.process.pid):
                    self.assertEqual(os.sched_getscheduler(pid), policy)

    def test_the_error_of_a_failed_start_shows_the_output(self):
        with self.assertRaisesRegex(processes.StartError, "no such luck"):
            self.start("import sys; sys.exit('no such luck')", free_port())

    def test_the_error_names_a_port_in_use(self):
        port = free_port()
        with self.start(SERVE, port), self.assertRaisesRegex(processes.StartError, f"127.0.0.1:{port}"):
            self.start(SERVE, port)


if __name__ == "__main__":
    unittest.main()
