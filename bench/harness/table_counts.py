"""What another reader of Delta tables counts in one, asked in a process of its own."""

import json
import os
import subprocess

from harness import otlp
from harness.exactly_once import Wrong, compare_table
from harness.peers import BENCH, MissingError

LIMIT_S = 600
# Made by bench/setup.
PYTHON = BENCH / ".venv" / "bin" / "python"


def reader(python, environment, *words):
    """Runs harness/delta_reader.py; returns what it has found."""
    if not python.exists():
        raise MissingError(f"{python.relative_to(BENCH.parent)} is not there: run bench/setup, or bench/setup-objects")
    done = subprocess.run(
        [python, "-m", "harness.delta_reader", *map(str, words)],
        cwd=BENCH,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise Wrong(f"{' '.join(map(str, words))}: the other reader ended with {done.returncode}")
    return json.loads(done.stdout)


def counted(tables, table):
    """How many rows each batch has in a table of a folder; and what its log has."""
    said = reader(PYTHON, {}, "count", tables / table, otlp.IDS[table])
    return said["rows"], said


def check(found, tables):
    """Whether all that was acknowledged is there once, in a folder with tables; returns the IDs that are, by table."""
    there = {}
    for table in otlp.IDS:
        rows, said = counted(tables, table)
        acknowledged, others = compare_table(found, table, rows, "deltalake")
        there[table] = set(rows)
        found.say(
            f"{table}: {acknowledged} acknowledged batches of {otlp.ROWS_OF_A_BATCH} are there exactly once, and {others} that "
            f"were not acknowledged; commits {said['operations']}, files {said['files']}"
        )
    return there
