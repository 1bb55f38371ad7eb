"""`curtail server` on a local disk while all kinds of things fail: nothing that was acknowledged is lost or there twice.

- **kills**: it is killed (SIGKILL) at random moments, every second time while it merges runs;
- **torn log** (harness/torn_log.py): the end of its log is cut off, or written over, after a kill;
- **full disk** (harness/full_disk.py): what the log, the tables or both lie on is full for a while;
- **damaged runs** (harness/damaged_runs.py): single bytes of files of spans are changed.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from harness import damaged_runs, full_disk, torn_log
from harness.exactly_once import Found, Wrong
from harness.kills import Moments, kills
from harness.live_server import Place, Server
from harness.table_counts import check

SENT = ("spans", "spans", "logs", "points")
# Merges are short on a local disk.
MOMENTS = Moments(earliest_s=0.0, latest_s=3.0, of_merge_s=0.01)


@dataclass(frozen=True)
class Plan:
    kills: int = 100
    cuts: int = 20
    full_s: float = 10.0
    flips: int = 200
    end_flips: int = 100


QUICK = Plan(kills=6, cuts=4, full_s=4.0, flips=20, end_flips=4)


def measure(plan, program, scratch, seed):
    """All of it, also what follows a failure. Returns what was found, each with a title; and what failed or was left out."""
    parts = [
        (f"{plan.kills} kills", killed),
        ("A torn log", torn_log.measure),
        ("A full disk", full_disk.measure),
        ("Damaged runs", damaged_runs.measure),
    ]
    sections, failures = [], []
    for title, part in parts:
        found, rng = Found("faults", seed), random.Random(f"{seed} {title}")
        folder = Path(scratch) / part.__module__.rpartition(".")[2]
        folder.mkdir()
        try:
            part(plan, found, rng, Place(program, folder, f"file://{folder}/data/tables"))
        except (full_disk.SkippedError, Wrong) as why:
            is_skipped = isinstance(why, full_disk.SkippedError)
            failures.append(f"{title}: {'left out' if is_skipped else 'FAILED'}: {why}")
            found.say(failures[-1])
        sections.append((title, found))
    return sections, failures


def killed(plan, found, rng, place):
    tables = place.data / "tables"

    def merging(_server):
        """Parts of a merged run are in a file that gets its name when all of them are there."""
        before = set(staged(tables))
        return lambda: bool(set(staged(tables)) - before)

    of_merging = kills(plan.kills, found, rng, place, merging, SENT, MOMENTS)
    found.say(f"killed {plan.kills} times, {of_merging} of them while it merged")
    server = Server(place).ready()
    complaints = server.complaints()
    server.stop()
    found.say(f"started once more and stopped; it complained of {complaints or 'nothing'}")
    check(found, tables)
    left = [file.stat().st_size for file in tables.glob("*/day=*/*#*")]
    found.say(f"{len(left)} files of {sum(left)} bytes are left of runs that were being written")


def staged(tables):
    return tables.glob("*/day=*/merged-*#*")
