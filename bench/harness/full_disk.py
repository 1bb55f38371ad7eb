"""Fills a small file system in memory while senders send, frees it, and checks that `curtail server` recovers.

The file system contains the log in the first run, the tables in the second, both in the third. While it is full, the
server must reject batches with a reason, log the error, and serve queries. Once space is free, the server must recover
without a restart. At the end, every acknowledged batch must be stored exactly once. Mounting needs root.
"""

import collections
import errno
import http.client
import os
import subprocess
import threading
import time
from dataclasses import replace

from harness.exactly_once import CheckError, DeliveryReport
from harness.live_server import Server, count_spans
from harness.sending import Senders
from harness.table_counts import check_tables

# The senders, which never pause between batches, fill some MiB/s.
DISK_MIB = 96
SENDER_TABLES = ("spans", "spans", "logs", "points")
WARMUP_S = 2.0
# The server retries after 30 s at most.
RECOVERY_LIMIT_S = 60.0
QUERIES = (
    "/api/search?limit=20&q=%7B+resource.service.name+%3D+%22cart%22+%7D",
    "/api/metrics/query?q=%7B+%7D+%7C+count_over_time%28%29+by+%28resource.service.name%29&start=0&end=9000000000",
)
DISK_FULL_ERROR = "No space left on device"


class SkippedError(Exception):
    """The test cannot run on this machine; the message says why."""


class SmallDisk:
    """A tmpfs of `DISK_MIB`, mounted while the context is active."""

    def __init__(self, folder):
        self.folder = folder
        self.ballast = folder / "ballast"

    def __enter__(self):
        if os.geteuid() != 0:
            raise SkippedError("the test mounts a small file system, which needs root")
        self.folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "curtail-bench", self.folder]
        done = subprocess.run(mount, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise SkippedError(f"no file system can be mounted: {done.stderr.strip()}")
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "--lazy", self.folder], check=True)

    def fill(self):
        """Takes all free space."""
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


class DiskFiller(threading.Thread):
    """Keeps a disk full: takes the space that the server frees."""

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


def measure(plan, report, rng, config):
    unexplained = []
    for content in ("log", "tables", "both"):
        folder = config.folder / content
        folder.mkdir()
        with SmallDisk(folder / "disk") as disk:
            server_folder = disk.folder if content != "tables" else folder
            tables = (disk.folder if content != "log" else folder) / "tables"
            run_config = replace(config, folder=server_folder, tables_url=f"file://{tables}")
            # Each run has its own tables, and so its own batches.
            run_report = DeliveryReport(report.name, report.seed, report.lines)
            unexplained += run_on_full_disk(plan, run_report, rng, (run_config, disk, content, tables))
    if unexplained:
        raise CheckError(f"no rejection says that the disk is full: {unexplained}; seed {report.seed}")


def run_on_full_disk(plan, report, rng, context):
    """One run; returns its rejections if none of them names the full disk."""
    config, disk, content, tables = context
    title = {"log": "the log", "tables": "the tables", "both": "the log and the tables"}[content]
    # The server's own log is outside, so that it can name the full disk.
    server = Server(config, log=disk.folder.parent / "curtail.log").wait_until_ready()
    try:
        senders = Senders(report, server.otlp, rng, SENDER_TABLES)
        time.sleep(WARMUP_S)
        offset = server.log.stat().st_size
        filler = DiskFiller(disk)
        query_count = query_repeatedly(plan.disk_full_s, report, senders, server)
        rejections, warnings = senders.rejections(), server.warnings(offset)
        freed = time.monotonic()
        offset = server.log.stat().st_size
        filler.stop()
        accept_s = wait_for_recovery(freed, lambda: senders.latencies_ms(freed), "accept a batch", server)
        flush_s = wait_for_recovery(freed, lambda: "flushed" in log_messages(server, offset), "flush a run", server)
        time.sleep(1.0)
        senders.stop()
        message_counts = collections.Counter(fields["message"] for fields in warnings)
        rejection_list = format_rejections(rejections)
        report.add_line(f"{title} on a full disk for {plan.disk_full_s:.0f} s: senders received {rejection_list}")
        report.add_line(f"  warnings: {dict(message_counts)}, for example {find_disk_full_warning(report, warnings)}")
        report.add_line(f"  {query_count} queries succeeded on the full disk")
        report.add_line(f"  once freed: batch accepted after {accept_s:.1f} s, run flushed after {flush_s:.1f} s")
        code = server.stop()
        if code != 0:
            raise CheckError(f"the server exited with {code}:\n{server.read_log()[-2000:]}")
    finally:
        server.kill_if_alive()
    check_tables(report, tables)
    return [] if any("disk is full" in message for _, message in rejections) else [f"{title}: {rejection_list}"]


def query_repeatedly(seconds, report, senders, server):
    """Runs queries for some seconds; every query must succeed with a complete result. Returns the number of queries."""
    connection = http.client.HTTPConnection(server.api, timeout=60)
    limit, query_count = time.monotonic() + seconds, 0
    while time.monotonic() < limit:
        for path in QUERIES:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            if response.status != 200 or response.getheader("curtail-incomplete"):
                raise CheckError(f"{path}: {response.status}, {body[:300]}; seed {report.seed}")
        trace_id = senders.threads[0].acknowledged_ids[-1]
        if not count_spans(trace_id, connection):
            raise CheckError(f"trace {trace_id} was acknowledged, but a query does not find it; seed {report.seed}")
        query_count += len(QUERIES) + 1
        time.sleep(0.1)
    return query_count


def wait_for_recovery(freed, is_recovered, action, server):
    """Returns the seconds from the time `freed` until the server has recovered."""
    while not is_recovered():
        if time.monotonic() > freed + RECOVERY_LIMIT_S or not server.is_alive():
            log = server.read_log()[-2000:]
            raise CheckError(f"with free space, the server did not {action} within {RECOVERY_LIMIT_S:.0f} s:\n{log}")
        time.sleep(0.02)
    return time.monotonic() - freed


def log_messages(server, offset):
    return [event["fields"].get("message") for event in server.log_events(offset)]


def format_rejections(rejections):
    lines = [f'{status} "{message}" ({count} times)' for (status, message), count in rejections.items()]
    return ", ".join(lines) or "no rejections"


def find_disk_full_warning(report, warnings):
    for fields in warnings:
        if DISK_FULL_ERROR in str(fields.get("error")):
            return fields
    raise CheckError(f"the server does not log {DISK_FULL_ERROR!r}: {warnings[:5]}; seed {report.seed}")
