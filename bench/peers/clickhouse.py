"""Runs queries on a Delta table in ClickHouse, in process (chdb), and prints their durations as JSON.

bench/harness/queries.py starts it with the Python of bench/.venv, and writes the queries to its standard input.
ClickHouse has its default settings, so it uses all cores.
"""

import json
import math
import sys
import time

from chdb.session import Session


def main():
    request = json.load(sys.stdin)
    session = Session()
    table = f"deltaLakeLocal('{request['table']}')"
    rows = int(session.query(f"SELECT count() FROM (SELECT duration_ns FROM {table})", "CSV").bytes())
    results = {}
    for query in request["queries"]:
        ids = request["ids"] if "{id}" in query["sql"] else [""] * request["rounds"]
        # The first one is the warm-up.
        durations = [time_query(session, query["sql"].format(table=table, id=id)) for id in [ids[0], *ids]]
        ordered = sorted(durations[1:])
        results[query["name"]] = {"p50": quantile(ordered, 0.5), "p99": quantile(ordered, 0.99), "count": len(ordered)}
    version = session.query("SELECT version()", "TSV").bytes().decode().strip()
    json.dump({"rows": rows, "queries": results, "version": version}, sys.stdout)


def time_query(session, sql):
    """Returns the duration of a query in milliseconds; its result must not be empty."""
    start = time.perf_counter()
    result = session.query(sql, "CSV").bytes()
    duration_ms = (time.perf_counter() - start) * 1e3
    if not result:
        raise SystemExit(f"no rows: {sql}")
    return duration_ms


def quantile(ordered, q):
    return ordered[max(1, math.ceil(q * len(ordered))) - 1]


if __name__ == "__main__":
    main()
