"""Asks four engines the same of Delta tables in a folder, each by its own reader: ClickHouse in process (chdb), deltalake
with pyarrow, polars, and curtail-sql.

It runs in the Python of bench/.venv, which has them: `python -m harness.engines PLACE CURTAIL_SQL`, where PLACE/tables are
the tables. What each says it prints as JSON, all numbers whole.
"""

import csv
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Asked:
    """The columns of a table that are asked about."""

    id: str
    summed: str
    time: str
    service: str = "service"


TABLES = {
    "spans": Asked("trace_id", "duration_ns", "start_ns"),
    "logs": Asked("trace_id", "severity", "time_ns"),
    "points": Asked("time_ns", "value_int", "time_ns"),
    "traces": Asked("trace_id", "span_count", "start_ns", "root_service"),
}


def sql(asked, table):
    """Two questions: one row of five numbers, then a row for each service. The words mean the same to both engines."""
    numbers = f"count(*), count(DISTINCT {asked.id}), sum({asked.summed}), min({asked.time}), max({asked.time})"
    return f"SELECT {numbers} FROM {table}", f"SELECT {asked.service}, count(*) FROM {table} GROUP BY 1 ORDER BY 1"


def said(numbers, services):
    """What every engine says of a table."""
    names = ("rows", "batches", "sum", "first", "last")
    by_service = {str(service or ""): int(rows) for service, rows in services}
    return {**dict(zip(names, map(int, numbers))), "by service": dict(sorted(by_service.items()))}


def clickhouse(folder, _program):
    from chdb.session import Session

    session = Session()
    found = {}
    for table, asked in TABLES.items():
        responses = [session.query(text, "CSV").bytes() for text in sql(asked, f"deltaLakeLocal('{folder}/tables/{table}')")]
        (numbers,), services = (list(csv.reader(io.StringIO(response.decode()))) for response in responses)
        # It writes what is not there as \N.
        found[table] = said(numbers, ((service.replace("\\N", ""), rows) for service, rows in services))
    return found, session.query("SELECT version()", "TSV").bytes().decode().strip()


def pyarrow(folder, _program):
    import deltalake
    import pyarrow.compute as pc

    found = {}
    for table, asked in TABLES.items():
        columns = sorted({asked.id, asked.summed, asked.time, asked.service})
        rows = deltalake.DeltaTable(f"{folder}/tables/{table}").to_pyarrow_dataset().to_table(columns=columns)
        times = pc.min_max(rows[asked.time])
        numbers = (rows.num_rows, pc.count_distinct(rows[asked.id]), pc.sum(rows[asked.summed]), times["min"], times["max"])
        of_each = rows.group_by(asked.service).aggregate([([], "count_all")])
        services = zip(of_each[asked.service].to_pylist(), of_each["count_all"].to_pylist())
        found[table] = said([getattr(number, "as_py", lambda number=number: number)() for number in numbers], services)
    return found, f"{deltalake.__version__}, pyarrow {sys.modules['pyarrow'].__version__}"


def polars(folder, _program):
    import polars as pl

    found = {}
    for table, asked in TABLES.items():
        rows = pl.scan_delta(f"{folder}/tables/{table}")
        time = pl.col(asked.time)
        numbers = rows.select(
            pl.len().alias("rows"),
            pl.col(asked.id).n_unique().alias("batches"),
            pl.col(asked.summed).sum().cast(pl.Int64).alias("sum"),
            time.min().alias("first"),
            time.max().alias("last"),
        )
        services = rows.group_by(asked.service).len().collect().rows()
        found[table] = said(numbers.collect().row(0), services)
    return found, pl.__version__


def curtail_sql(folder, program):
    def ask(text):
        done = subprocess.run(
            [program, "--data", folder, "--format", "csv", text], stdout=subprocess.PIPE, text=True, timeout=120, check=True
        )
        return list(csv.reader(io.StringIO(done.stdout)))[1:]

    found = {}
    for table, asked in TABLES.items():
        (numbers,), services = map(ask, sql(asked, table))
        found[table] = said(numbers, services)
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return found, version.split()[-1]


ENGINES = {"ClickHouse (chdb)": clickhouse, "deltalake": pyarrow, "polars": polars, "curtail-sql": curtail_sql}


def main(folder, program):
    print(json.dumps({name: engine(folder, program) for name, engine in ENGINES.items()}), flush=True)
    # As harness/delta_reader.py ends, and why.
    os._exit(0)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
