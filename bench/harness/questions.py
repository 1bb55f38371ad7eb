"""The questions that are asked about spans, of Curtail and of ClickHouse.

This is the one place that knows how each of them is put: to ClickHouse in SQL; to Curtail over HTTP, by path and query;
and to its library by `cargo bench -p curtail-store --bench query`, whose names these are.
"""

import json
import re
import subprocess
import time
import urllib.parse
from dataclasses import dataclass, field

from harness.peers import BENCH, MissingError

TRACE = "trace by ID"
# The sender's spans begin within these, in seconds since 1970.
TIME = {"start": 1_750_000_000, "end": 1_750_001_000}
CLICKHOUSE_LIMIT_S = 600


class QueryResultError(Exception):
    """A query result is not the expected one."""


@dataclass(frozen=True)
class Question:
    """A question; the bounds are on its median and its p99 over ten million spans, in milliseconds."""

    name: str
    sql: str
    path: str = ""
    asked: dict = field(default_factory=dict)
    p50_max_ms: float = 0.0
    p99_max_ms: float = 0.0

    def target(self):
        """What is asked for over HTTP; nothing where a path alone does not say it."""
        return f"{self.path}?{urllib.parse.urlencode(self.asked)}" if self.path else ""


QUESTIONS = (
    Question(
        TRACE,
        "SELECT * FROM {table} WHERE tenant = 'anonymous' AND trace_id = unhex('{id}')",
        p50_max_ms=5.0,
        p99_max_ms=20.0,
    ),
    Question(
        "slowest 20 of a service",
        "SELECT hex(trace_id), hex(span_id), service, name, start_ns, duration_ns FROM {table}"
        " WHERE tenant = 'anonymous' AND service = 'cart' ORDER BY duration_ns DESC LIMIT 20",
        path="/api/search",
        asked={"q": '{ resource.service.name = "cart" }', "order": "slowest", "limit": 20},
        p50_max_ms=100.0,
    ),
    Question(
        "p99 by service, minute",
        "SELECT service, intDiv(start_ns, 60000000000) AS minute, quantileExact(0.99)(duration_ns), count()"
        " FROM {table} WHERE tenant = 'anonymous' GROUP BY service, minute",
        path="/api/metrics/query_range",
        asked={"q": "{ } | quantile_over_time(duration, 0.99) by (resource.service.name)", "step": "60s", **TIME},
        p50_max_ms=180.0,
    ),
    Question(
        "p99 of an attribute",
        "SELECT quantileExact(0.99)(duration_ns), count() FROM {table}"
        " WHERE tenant = 'anonymous' AND enduser_id = 'user-17'",
        path="/api/metrics/query",
        asked={"q": '{ span.enduser.id = "user-17" } | quantile_over_time(duration, 0.99)', **TIME},
        p50_max_ms=130.0,
    ),
)


def ask(connection, path):
    """Ask Curtail once; return the milliseconds. Every result must be complete and not empty."""
    began = time.perf_counter()
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    took_ms = (time.perf_counter() - began) * 1e3
    said = json.loads(body) if response.status == 200 else {}
    has_some = any(said.get(name) for name in ("batches", "trace", "resourceSpans", "traces", "series", "tagValues"))
    if not has_some or response.getheader("curtail-incomplete"):
        raise QueryResultError(f"{path}: {response.status}: {body[:500]}")
    return took_ms


def parse_library(printed):
    """The medians and p99 that the library's benchmark printed."""
    found = {}
    for question in QUESTIONS:
        line = re.search(rf"^ *{re.escape(question.name)} +([\d.]+) +([\d.]+) +[\d.]+$", printed, re.MULTILINE)
        if not line:
            raise ValueError(f"expected {question.name!r} in what the benchmark of questions printed:\n{printed}")
        found[question.name] = {"p50": float(line.group(1)), "p99": float(line.group(2))}
    return found


def clickhouse(table, ids, rounds):
    """Ask ClickHouse, in process, on the Delta table in a folder; returns milliseconds, and its count of rows."""
    python = BENCH / ".venv" / "bin" / "python"
    if not python.exists():
        raise MissingError("ClickHouse (chdb) is not installed: run bench/setup")
    asked = {
        "table": str(table), "ids": ids, "rounds": rounds,
        "questions": [{"name": question.name, "sql": question.sql} for question in QUESTIONS],
    }  # fmt: skip
    done = subprocess.run(
        [python, BENCH / "peers" / "clickhouse.py"], input=json.dumps(asked), stdout=subprocess.PIPE, text=True,
        # It reads nothing that is not below the folder in which it is started.
        cwd=table.parent, timeout=CLICKHOUSE_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise MissingError(f"bench/peers/clickhouse.py ended with {done.returncode}")
    response = json.loads(done.stdout)
    return response["questions"] | {"version": response["version"]}, response["rows"]
