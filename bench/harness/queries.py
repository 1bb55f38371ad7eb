"""The queries over spans that the benchmarks run in Curtail and in ClickHouse.

Each query has a form for ClickHouse (SQL) and for Curtail over HTTP (path and parameters). Its name is that of
`cargo bench -p curtail-store --bench query`, which runs it in the library.
"""

import json
import re
import subprocess
import time
import urllib.parse
from dataclasses import dataclass, field

from harness.peers import BENCH, MissingError

TRACE = "trace by ID"
# Time range of the starts of the sender's spans, in seconds since 1970.
TIME = {"start": 1_750_000_000, "end": 1_750_001_000}
CLICKHOUSE_LIMIT_S = 600


class QueryResultError(Exception):
    """A query result is not the expected one."""


@dataclass(frozen=True)
class Query:
    """A query; the bounds are for its median and its p99 over ten million spans, in milliseconds."""

    name: str
    sql: str
    path: str = ""
    parameters: dict = field(default_factory=dict)
    p50_max_ms: float = 0.0
    p99_max_ms: float = 0.0

    def target(self):
        """The path and parameters of the HTTP request; empty for a query that needs an ID."""
        return f"{self.path}?{urllib.parse.urlencode(self.parameters)}" if self.path else ""


QUERIES = (
    Query(
        TRACE,
        "SELECT * FROM {table} WHERE tenant = 'anonymous' AND trace_id = unhex('{id}')",
        p50_max_ms=5.0,
        p99_max_ms=20.0,
    ),
    Query(
        "slowest 20 of a service",
        "SELECT hex(trace_id), hex(span_id), service, name, start_ns, duration_ns FROM {table}"
        " WHERE tenant = 'anonymous' AND service = 'cart' ORDER BY duration_ns DESC LIMIT 20",
        path="/api/search",
        parameters={"q": '{ resource.service.name = "cart" }', "order": "slowest", "limit": 20},
        p50_max_ms=100.0,
    ),
    Query(
        "p99 by service, minute",
        "SELECT service, intDiv(start_ns, 60000000000) AS minute, quantileExact(0.99)(duration_ns), count()"
        " FROM {table} WHERE tenant = 'anonymous' GROUP BY service, minute",
        path="/api/metrics/query_range",
        parameters={"q": "{ } | quantile_over_time(duration, 0.99) by (resource.service.name)", "step": "60s", **TIME},
        p50_max_ms=180.0,
    ),
    Query(
        "p99 of an attribute",
        "SELECT quantileExact(0.99)(duration_ns), count() FROM {table}"
        " WHERE tenant = 'anonymous' AND enduser_id = 'user-17'",
        path="/api/metrics/query",
        parameters={"q": '{ span.enduser.id = "user-17" } | quantile_over_time(duration, 0.99)', **TIME},
        p50_max_ms=130.0,
    ),
)


def time_query(connection, path):
    """Runs a query in Curtail; returns its duration in ms. The result must be complete and not empty."""
    start = time.perf_counter()
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    duration_ms = (time.perf_counter() - start) * 1e3
    result = json.loads(body) if response.status == 200 else {}
    has_data = any(result.get(name) for name in ("batches", "trace", "resourceSpans", "traces", "series", "tagValues"))
    if not has_data or response.getheader("curtail-incomplete"):
        raise QueryResultError(f"{path}: {response.status}: {body[:500]}")
    return duration_ms


def parse_library_output(output):
    """Parses the medians and p99 in the output of the library's benchmark."""
    durations = {}
    for query in QUERIES:
        line = re.search(rf"^ *{re.escape(query.name)} +([\d.]+) +([\d.]+) +[\d.]+$", output, re.MULTILINE)
        if not line:
            raise ValueError(f"expected {query.name!r} in the output of the query benchmark:\n{output}")
        durations[query.name] = {"p50": float(line.group(1)), "p99": float(line.group(2))}
    return durations


def query_clickhouse(table, ids, rounds):
    """Runs the queries in ClickHouse, in process, on a Delta table; returns durations in ms, and the row count."""
    python = BENCH / ".venv" / "bin" / "python"
    if not python.exists():
        raise MissingError("ClickHouse (chdb) is not installed: run bench/setup")
    request = {
        "table": str(table), "ids": ids, "rounds": rounds,
        "queries": [{"name": query.name, "sql": query.sql} for query in QUERIES],
    }  # fmt: skip
    process = subprocess.run(
        [python, BENCH / "peers" / "clickhouse.py"], input=json.dumps(request), stdout=subprocess.PIPE, text=True,
        # ClickHouse reads only files below its working directory.
        cwd=table.parent, timeout=CLICKHOUSE_LIMIT_S, check=False,
    )  # fmt: skip
    if process.returncode != 0:
        raise MissingError(f"bench/peers/clickhouse.py failed with exit code {process.returncode}")
    response = json.loads(process.stdout)
    return response["queries"] | {"version": response["version"]}, response["rows"]
