"""Measures queries of tables in an object store: their latency, and their number of requests to the store.

A new server runs each query: once cold, when only the footers of runs are in memory, then repeatedly. Before the first
query, the server has finished its merges, so no request belongs to a merge.
"""

import http.client
import time
import urllib.parse

from harness import queries
from harness.exactly_once import CheckError
from harness.live_server import Server
from harness.object_requests import count_log_events
from harness.otlp import NS_PER_S
from harness.sending import quantile
from harness.store_server import ALL_COMPACTED

MERGE_LIMIT_S = 120
VALUE_PATHS = {
    "values of an attribute": "/api/v2/search/tag/span.enduser.id/values",
    "values of service.name": "/api/v2/search/tag/resource.service.name/values",
}


def measure_queries(plan, report, rng, config):
    """Runs `plan.queries` queries of traces by ID, and a fifth of that of each other kind."""
    times_ns = [report.sent_batches[id].time_ns for id in report.acknowledged_ids]
    time_range = {"start": min(times_ns) // NS_PER_S, "end": max(times_ns) // NS_PER_S + 1}
    ids = rng.choices(sorted(report.acknowledged_ids), k=plan.queries + 1)
    paths_by_name = {queries.TRACE: [f"/api/traces/{id}" for id in ids]}
    for query in queries.QUERIES:
        if query.path:
            parameters = query.parameters | (time_range if "start" in query.parameters else {})
            path = f"{query.path}?{urllib.parse.urlencode(parameters)}"
            paths_by_name[query.name] = [path] * (plan.queries // 5 + 1)
    for name, path in VALUE_PATHS.items():
        paths_by_name[name] = [f"{path}?{urllib.parse.urlencode(time_range)}"] * (plan.queries // 5 + 1)
    for name, paths in paths_by_name.items():
        report.add_line(measure_query(name, paths, config))


def measure_query(name, paths, config):
    """Runs the first path on a cold server, then the others; returns a line of figures."""
    server = Server(config).wait_until_ready()
    try:
        limit = time.monotonic() + MERGE_LIMIT_S
        while not any(event["fields"].get("message") == ALL_COMPACTED for event in server.log_events()):
            if time.monotonic() > limit:
                raise CheckError(f"the server has not merged all runs after {MERGE_LIMIT_S} s")
            time.sleep(0.1)
        connection = http.client.HTTPConnection(server.api, timeout=60)
        initial_count = count_requests(server)
        cold_ms = queries.time_query(connection, paths[0])
        cold_count = count_requests(server) - initial_count
        warm_ms = [queries.time_query(connection, path) for path in paths[1:]]
        mean_count = (count_requests(server) - initial_count - cold_count) / len(warm_ms)
    finally:
        server.stop()
    return (
        f"{name}: cold {cold_ms:.1f} ms, {cold_count} requests; then {len(warm_ms)} queries: "
        f"p50 {quantile(warm_ms, 0.5):.1f} ms, p99 {quantile(warm_ms, 0.99):.1f} ms, mean {mean_count:.1f} requests"
    )


def count_requests(server):
    return sum(count_log_events(server.log_events())[2].values())
