"""Runs the same queries on Delta tables in a folder with four engines, each with its own reader: ClickHouse in process
(chdb), deltalake with pyarrow, polars, and curtail-sql.

It runs in the Python of bench/.venv, which has these engines: `python -m harness.engines FOLDER CURTAIL_SQL`. It reads
FOLDER/tables, and prints the result and version of each engine as JSON; all numbers are integers.
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
class QueryColumns:
    """The columns of a table that the queries use."""

    id: str
    value: str
    time: str
    service: str = "service"


TABLES = {
    "spans": QueryColumns("trace_id", "duration_ns", "start_ns"),
    "logs": QueryColumns("trace_id", "severity", "time_ns"),
    "points": QueryColumns("time_ns", "value_int", "time_ns"),
    "traces": QueryColumns("trace_id", "span_count", "start_ns", "root_service"),
}


def sql_queries(columns, table):
    """Two queries: five totals in one row, then one row for each service. ClickHouse and curtail-sql accept both."""
    totals = f"count(*), count(DISTINCT {columns.id}), sum({columns.value}), min({columns.time}), max({columns.time})"
    return f"SELECT {totals} FROM {table}", f"SELECT {columns.service}, count(*) FROM {table} GROUP BY 1 ORDER BY 1"


def make_result(totals, services):
    """The result of a table, in the same form for every engine."""
    names = ("rows", "batches", "sum", "first", "last")
    by_service = {str(service or ""): int(rows) for service, rows in services}
    return {**dict(zip(names, map(int, totals))), "by service": dict(sorted(by_service.items()))}


def query_clickhouse(folder, _program):
    from chdb.session import Session

    session = Session()
    results = {}
    for table, columns in TABLES.items():
        queries = sql_queries(columns, f"deltaLakeLocal('{folder}/tables/{table}')")
        outputs = [session.query(query, "CSV").bytes().decode() for query in queries]
        (totals,), services = (list(csv.reader(io.StringIO(output))) for output in outputs)
        # ClickHouse writes null as \N.
        results[table] = make_result(totals, ((service.replace("\\N", ""), rows) for service, rows in services))
    return results, session.query("SELECT version()", "TSV").bytes().decode().strip()


def query_pyarrow(folder, _program):
    import deltalake
    import pyarrow.compute as pc

    results = {}
    for table, columns in TABLES.items():
        names = sorted({columns.id, columns.value, columns.time, columns.service})
        rows = deltalake.DeltaTable(f"{folder}/tables/{table}").to_pyarrow_dataset().to_table(columns=names)
        times = pc.min_max(rows[columns.time])
        ids, values = rows[columns.id], rows[columns.value]
        totals = (rows.num_rows, pc.count_distinct(ids), pc.sum(values), times["min"], times["max"])
        totals = [getattr(total, "as_py", lambda total=total: total)() for total in totals]
        groups = rows.group_by(columns.service).aggregate([([], "count_all")])
        results[table] = make_result(totals, zip(groups[columns.service].to_pylist(), groups["count_all"].to_pylist()))
    return results, f"{deltalake.__version__}, pyarrow {sys.modules['pyarrow'].__version__}"


def query_polars(folder, _program):
    import polars as pl

    results = {}
    for table, columns in TABLES.items():
        rows = pl.scan_delta(f"{folder}/tables/{table}")
        time = pl.col(columns.time)
        totals = rows.select(
            pl.len().alias("rows"),
            pl.col(columns.id).n_unique().alias("batches"),
            pl.col(columns.value).sum().cast(pl.Int64).alias("sum"),
            time.min().alias("first"),
            time.max().alias("last"),
        )
        services = rows.group_by(columns.service).len().collect().rows()
        results[table] = make_result(totals.collect().row(0), services)
    return results, pl.__version__


def query_curtail_sql(folder, program):
    def run_query(query):
        command = [program, "--data", folder, "--format", "csv", query]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
        return list(csv.reader(io.StringIO(done.stdout)))[1:]

    results = {}
    for table, columns in TABLES.items():
        (totals,), services = map(run_query, sql_queries(columns, table))
        results[table] = make_result(totals, services)
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return results, version.split()[-1]


ENGINES = {
    "ClickHouse (chdb)": query_clickhouse, "deltalake": query_pyarrow,
    "polars": query_polars, "curtail-sql": query_curtail_sql,
}  # fmt: skip


def main(folder, program):
    print(json.dumps({name: engine(folder, program) for name, engine in ENGINES.items()}), flush=True)
    # A normal exit may abort: see harness/delta_reader.py.
    os._exit(0)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
