"""ClickHouse in process (chdb) on a Delta table: asks what standard input says, and prints how long it took.

Run by bench/harness/questions.py with the Python of bench/.venv. Its settings are as they come: all cores.
"""

import json
import math
import sys
import time

from chdb.session import Session


def main():
    asked = json.load(sys.stdin)
    session = Session()
    table = f"deltaLakeLocal('{asked['table']}')"
    rows = int(session.query(f"SELECT count() FROM (SELECT duration_ns FROM {table})", "CSV").bytes())
    took = {}
    for question in asked["questions"]:
        ids = asked["ids"] if "{id}" in question["sql"] else [""] * asked["rounds"]
        # Once to warm up.
        all_of_it = [timed(session, question["sql"].format(table=table, id=trace_id)) for trace_id in [ids[0], *ids]]
        ordered = sorted(all_of_it[1:])
        took[question["name"]] = {"p50": of_rank(ordered, 0.5), "p99": of_rank(ordered, 0.99), "count": len(ordered)}
    version = session.query("SELECT version()", "TSV").bytes().decode().strip()
    json.dump({"rows": rows, "questions": took, "version": version}, sys.stdout)


def timed(session, sql):
    """The milliseconds of a query, whose result must not be empty."""
    began = time.perf_counter()
    response = session.query(sql, "CSV").bytes()
    took = (time.perf_counter() - began) * 1e3
    if not response:
        raise SystemExit(f"no rows: {sql}")
    return took


def of_rank(ordered, share):
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]


if __name__ == "__main__":
    main()
