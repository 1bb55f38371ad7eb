"""Counts the requests of a server to its object store, from the log of the server."""

import collections

LOG_TARGET = "curtail_objects::http"


def count_log_events(events):
    """Returns the number of flushed runs, the number of merges, and the number of requests of each kind."""
    runs = merges = 0
    requests = collections.Counter()
    for event in events:
        fields = event.get("fields", {})
        runs += fields.get("message") == "flushed"
        merges += fields.get("message") == "compacted"
        if event.get("target") == LOG_TARGET:
            requests[classify_request(fields["method"], fields["path"])] += 1
    return runs, merges, requests


def classify_request(method, path):
    """The kind of a request: its method and the kind of its object."""
    path, _, query = path.partition("?")
    if "restype=container" in query or "list-type=" in query:
        kind = "list"
    elif "_delta_log" in path:
        kind = "log of a table"
    elif "comp=block" in query or "upload" in query:
        kind = "parts of a merged run"
    elif "day%3D" in path or "day=" in path:
        kind = "run"
    else:
        kind = "other"
    return f"{method} {kind}"
