"""Which requests a server has sent to its object store, as its log tells."""

import collections

# Statuses of HTTP.
TARGET = "curtail_objects::http"


def tally(events):
    """How many runs were written, how often runs were merged, and how often the store was asked what."""
    runs = merged = 0
    requests = collections.Counter()
    for event in events:
        said = event.get("fields", {})
        runs += said.get("message") == "flushed"
        merged += said.get("message") == "compacted"
        if event.get("target") == TARGET:
            requests[kind(said["method"], said["path"])] += 1
    return runs, merged, requests


def kind(method, path):
    """What a request is for."""
    path, _, query = path.partition("?")
    if "restype=container" in query or "list-type=" in query:
        what = "list"
    elif "_delta_log" in path:
        what = "log of a table"
    elif "comp=block" in query or "upload" in query:
        what = "parts of a merged run"
    elif "day%3D" in path or "day=" in path:
        what = "run"
    else:
        what = "other"
    return f"{method} {what}"
