"""Queries of tables in an object store: their latency, and the number of requests of each.

Each is asked of a server that was just started, where nothing but the ends of runs is in memory, and then again and
again. Before the first it has merged what there was to merge, so that no request is of that.
"""

import http.client
import time
import urllib.parse

from harness import questions
from harness.exactly_once import Wrong
from harness.live_server import Server
from harness.object_requests import tally
from harness.otlp import NS_PER_S
from harness.sending import quantile
from harness.store_server import MERGED_ALL

MERGED_LIMIT_S = 120
VALUES = {
    "values of an attribute": "/api/v2/search/tag/span.enduser.id/values",
    "values of service.name": "/api/v2/search/tag/resource.service.name/values",
}


def ask(plan, found, rng, place):
    """Asks everything `plan.asked` times, searches and the like a fifth as often."""
    begun = [found.sent[id].at_ns for id in found.acknowledged]
    of_all = {"start": min(begun) // NS_PER_S, "end": max(begun) // NS_PER_S + 1}
    ids = rng.choices(sorted(found.acknowledged), k=plan.asked + 1)
    paths = {questions.TRACE: [f"/api/traces/{id}" for id in ids]}
    for question in questions.QUESTIONS:
        if question.path:
            asked = question.asked | (of_all if "start" in question.asked else {})
            path = f"{question.path}?{urllib.parse.urlencode(asked)}"
            paths[question.name] = [path] * (plan.asked // 5 + 1)
    for name, path in VALUES.items():
        paths[name] = [f"{path}?{urllib.parse.urlencode(of_all)}"] * (plan.asked // 5 + 1)
    for name, asked in paths.items():
        found.say(line(name, asked, place))


def line(name, paths, place):
    """Asks the first of a server that has just begun, then the others."""
    server = Server(place).ready()
    try:
        limit = time.monotonic() + MERGED_LIMIT_S
        while not any(event["fields"].get("message") == MERGED_ALL for event in server.events()):
            if time.monotonic() > limit:
                raise Wrong(f"runs are not merged after {MERGED_LIMIT_S} s")
            time.sleep(0.1)
        connection = http.client.HTTPConnection(server.api, timeout=60)
        before = requests(server)
        cold_ms = questions.ask(connection, paths[0])
        cold = requests(server) - before
        took = [questions.ask(connection, path) for path in paths[1:]]
        each = (requests(server) - before - cold) / len(took)
    finally:
        server.stop()
    return (
        f"{name}: at first {cold_ms:.1f} ms, {cold} requests; then {len(took)} times: p50 {quantile(took, 0.5):.1f} ms, "
        f"p99 {quantile(took, 0.99):.1f} ms, {each:.1f} requests each"
    )


def requests(server):
    return sum(tally(server.events())[2].values())
