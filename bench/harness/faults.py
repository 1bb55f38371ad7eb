"""Injects faults into `curtail server` on a local disk, and checks that no acknowledged batch is lost or duplicated.

- **kills**: the server is killed (SIGKILL) at random times, every second time during a merge of runs;
- **torn log** (harness/torn_log.py): after a kill, the end of the log is cut off or overwritten;
- **full disk** (harness/full_disk.py): the disk with the log, the tables or both is full for a while;
- **damaged runs** (harness/damaged_runs.py): single bytes of files of spans are changed.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from harness import damaged_runs, full_disk, torn_log
from harness.exactly_once import CheckError, DeliveryReport
from harness.kills import KillDelays, kill_repeatedly
from harness.live_server import Server, ServerConfig
from harness.table_counts import check_tables

SENDER_TABLES = ("spans", "spans", "logs", "points")
# Merges are short on a local disk.
DELAYS = KillDelays(min_s=0.0, max_s=3.0, merge_max_s=0.01)


@dataclass(frozen=True)
class Plan:
    kills: int = 100
    cuts: int = 20
    disk_full_s: float = 10.0
    flips: int = 200
    footer_flips: int = 100


QUICK = Plan(kills=6, cuts=4, disk_full_s=4.0, flips=20, footer_flips=4)


def measure(plan, program, scratch, seed):
    """Runs every part, also after a failure. Returns titles with reports, and lines about failed or skipped parts."""
    # The titles are part of the random seeds.
    parts = [
        (f"{plan.kills} kills", kill_server),
        ("A torn log", torn_log.measure),
        ("A full disk", full_disk.measure),
        ("Damaged runs", damaged_runs.measure),
    ]
    sections, failures = [], []
    for title, part in parts:
        report, rng = DeliveryReport("faults", seed), random.Random(f"{seed} {title}")
        folder = Path(scratch) / part.__module__.rpartition(".")[2]
        folder.mkdir()
        try:
            part(plan, report, rng, ServerConfig(program, folder, f"file://{folder}/data/tables"))
        except (full_disk.SkippedError, CheckError) as error:
            is_skipped = isinstance(error, full_disk.SkippedError)
            failures.append(f"{title}: {'skipped' if is_skipped else 'FAILED'}: {error}")
            report.add_line(failures[-1])
        sections.append((title, report))
    return sections, failures


def kill_server(plan, report, rng, config):
    tables = config.data / "tables"

    def watch_merges(_server):
        """A merge writes to a temporary file until the merged run is complete."""
        earlier_files = set(find_partial_merges(tables))
        return lambda: bool(set(find_partial_merges(tables)) - earlier_files)

    merge_kill_count = kill_repeatedly(plan.kills, report, rng, config, watch_merges, SENDER_TABLES, DELAYS)
    report.add_line(f"killed {plan.kills} times, {merge_kill_count} times during a merge")
    server = Server(config).wait_until_ready()
    warnings = server.warnings()
    server.stop()
    report.add_line(f"started again and stopped; warnings at the start: {warnings or 'none'}")
    check_tables(report, tables)
    sizes = [file.stat().st_size for file in tables.glob("*/day=*/*#*")]
    report.add_line(f"{len(sizes)} files of {sum(sizes)} bytes remain of runs that were not completed")


def find_partial_merges(tables):
    return tables.glob("*/day=*/merged-*#*")
