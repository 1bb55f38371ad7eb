"""Reads the log of a Delta table: count, bytes and rows of the live files."""

import json
from dataclasses import dataclass


class DeltaError(Exception):
    """A Delta log cannot be read; the message names the file."""


@dataclass(frozen=True)
class LiveFiles:
    """Totals of the live files of a table."""

    files: int
    size_bytes: int
    rows: int


def sum_live_files(table):
    """Adds up the files that commits added and no later commit removed.

    It reads no checkpoints: the table of a benchmark is young enough to have every commit."""
    commits = sorted((table / "_delta_log").glob("[0-9]*.json"))
    if not commits or int(commits[0].stem) != 0:
        raise DeltaError(f"{table}/_delta_log: the first commit is missing")
    live = {}
    for commit in commits:
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                live.pop(action["remove"]["path"], None)
    return LiveFiles(
        files=len(live),
        size_bytes=sum(add["size"] for add in live.values()),
        rows=sum(json.loads(add["stats"])["numRecords"] for add in live.values()),
    )
