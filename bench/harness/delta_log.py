"""What a Delta table says of its files: sizes and rows of those that are live."""

import json
from dataclasses import dataclass


class DeltaError(Exception):
    """A log that this cannot read; the message says which file."""


@dataclass(frozen=True)
class Live:
    """The files of a table, together."""

    files: int
    size_bytes: int
    rows: int


def live(table):
    """Adds up the files that were added and not removed, over all commits since the first.

    Checkpoints are not read: a table as young as a benchmark's still has every commit."""
    commits = sorted((table / "_delta_log").glob("[0-9]*.json"))
    if not commits or int(commits[0].stem) != 0:
        raise DeltaError(f"{table}/_delta_log: the first commit is not there")
    added = {}
    for commit in commits:
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                added[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                added.pop(action["remove"]["path"], None)
    return Live(
        files=len(added),
        size_bytes=sum(add["size"] for add in added.values()),
        rows=sum(json.loads(add["stats"])["numRecords"] for add in added.values()),
    )
