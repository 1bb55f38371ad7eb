"""Counts the rows of Delta tables with an independent reader, harness/delta_reader.py, in a process of its own."""

import json
import os
import subprocess

from harness import otlp
from harness.exactly_once import CheckError, check_table
from harness.peers import BENCH, MissingError

LIMIT_S = 600
# bench/setup makes it.
PYTHON = BENCH / ".venv" / "bin" / "python"


def run_delta_reader(python, environment, *arguments):
    """Returns the result of the command, parsed."""
    if not python.exists():
        raise MissingError(f"{python.relative_to(BENCH.parent)} is missing: run bench/setup or bench/setup-objects")
    done = subprocess.run(
        [python, "-m", "harness.delta_reader", *map(str, arguments)],
        cwd=BENCH,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise CheckError(f"harness.delta_reader {' '.join(map(str, arguments))} exits with {done.returncode}")
    return json.loads(done.stdout)


def count_batch_rows(tables, table):
    """Counts the rows of each batch in a table of a folder; returns them, and the whole result of the reader."""
    result = run_delta_reader(PYTHON, {}, "count", tables / table, otlp.ID_COLUMNS[table])
    return result["rows"], result


def check_tables(report, tables):
    """Checks all tables of a folder for exactly-once storage; returns the IDs of the stored batches by table."""
    stored_ids = {}
    for table in otlp.ID_COLUMNS:
        row_counts, result = count_batch_rows(tables, table)
        acknowledged, unacknowledged = check_table(report, table, row_counts, "deltalake")
        stored_ids[table] = set(row_counts)
        report.add_line(
            f"{table}: {acknowledged} acknowledged batches of {otlp.BATCH_ROWS} rows are stored exactly once, as are "
            f"{unacknowledged} unacknowledged batches; commits {result['operations']}, files {result['files']}"
        )
    return stored_ids
