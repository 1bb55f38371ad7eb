"""Sends data with real clients, reads all of it back, and compares.

    cd bench && .venv/bin/python -m clients --program PATH

It reads traces over HTTP, by ID, as protobuf and as JSON. After the server has stopped and flushed its memtables, it
reads log records and points from the Delta tables with `deltalake` and Arrow. It prints some of the rows that differ.
Exit code: 1 if a row differs or the server logs a warning.
"""

import argparse
import http.client
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from deltalake import DeltaTable
from google.protobuf.json_format import ParseDict

from clients import rows, sdk, tee, telemetrygen
from harness.store_server import Server

PRINTED_ROWS_MAX = 3


class Comparison:
    """The table of compared rows, and the number of comparisons that failed."""

    def __init__(self):
        self.lines = [("client", "data", "rows", "fields", "verdict")]
        self.failure_count = 0

    def add(self, client, data, sent, received):
        """Compares two lists of rows as text, in any order."""
        missing, unexpected = Counter(sent) - Counter(received), Counter(received) - Counter(sent)
        fields = sum(count_values(json.loads(row)) for row in sent)
        verdict = "equal" if sent and not missing and not unexpected else "DIFFER"
        self.lines.append((client, data, f"{len(sent):,}", f"{fields:,}", verdict))
        if verdict == "equal":
            return
        self.failure_count += 1
        print(f"{client}, {data}: {len(sent)} sent, {missing.total()} missing, {unexpected.total()} unexpected")
        for title, differing in (("missing", missing), ("unexpected", unexpected)):
            for row in sorted(differing)[:PRINTED_ROWS_MAX]:
                print(f"  {title}: {row}")

    def print_table(self):
        widths = [max(map(len, column)) for column in zip(*self.lines)]
        for line in self.lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def count_values(value):
    """The number of scalar values in a JSON value."""
    if isinstance(value, dict):
        return sum(map(count_values, value.values()))
    if isinstance(value, list):
        return sum(map(count_values, value))
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, required=True, help="path of curtail")
    options = parser.parse_args()
    comparison = Comparison()
    with tempfile.TemporaryDirectory(prefix="curtail-clients-") as scratch:
        data = Path(scratch) / "data"
        with Server(options.program, data, Path(scratch) / "server.log", 16) as server:
            sent = send(server)
            for client, requests in sent.items():
                compare_traces(comparison, client, merge_requests(requests, "traces"), server.api)
            warnings = server.warnings()
        for signal, table in (("logs", "logs"), ("metrics", "points")):
            compare_rows(comparison, sent, signal, data / "tables" / table)
    comparison.print_table()
    for warning in warnings:
        print(f"the server logged a warning: {warning['fields']}")
    return int(bool(comparison.failure_count or warnings))


def send(server):
    """Sends with every client, protocol and coding; returns the requests of each by signal, as protobuf."""
    sent = {}
    for protocol in ("grpc", "http"):
        for is_compressed in (False, True):
            name = f"Python SDK, {protocol}{', gzip' if is_compressed else ''}"
            sent[name] = sdk.send(name, protocol, server.otlp, is_compressed)
    program = telemetrygen.find_program()
    if program is None:
        raise SystemExit(f"telemetrygen is not installed: go install {telemetrygen.PACKAGE}@latest")
    for protocol in ("grpc", "http"):
        with tee.Tee(server.otlp) as proxy:
            telemetrygen.send(program, protocol, getattr(proxy, protocol))
            sent[f"telemetrygen, {protocol}"] = proxy.requests
    return sent


def merge_requests(requests, signal):
    """Parses the requests of a signal as one message; concatenation merges their repeated first field."""
    return rows.MESSAGES[signal].FromString(b"".join(requests[signal]))


def compare_traces(comparison, client, message, api):
    """Queries every trace that was sent, in both formats, and compares its spans."""
    sent = list(rows.spans(message))
    ids = sorted({span.trace_id.hex() for e in message.resource_spans for s in e.scope_spans for span in s.spans})
    connection = http.client.HTTPConnection(api, timeout=30)
    for media_type, parse in (("application/protobuf", parse_protobuf), ("application/json", parse_json)):
        received = []
        for trace_id in ids:
            connection.request("GET", f"/api/v2/traces/{trace_id}", headers={"accept": media_type})
            response = connection.getresponse()
            body = response.read()
            if response.status == 200:
                received += rows.spans(parse(body))
        comparison.add(client, f"spans, {media_type}", sent, received)
    connection.close()


def parse_protobuf(body):
    """Parses a `TraceByIDResponse`: field 1 is the trace, with the field of a `TracesData`."""
    offset, length, shift = 1, 0, 0
    if body[0] != 0x0A:
        raise ValueError(f"expected field 1, found {body[:1]}")
    while True:
        byte = body[offset]
        length |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return rows.TracesData.FromString(body[offset : offset + length])


def parse_json(body):
    """Parses a `TraceByIDResponse` in protobuf's JSON."""
    return ParseDict(json.loads(body)["trace"], rows.TracesData())


def compare_rows(comparison, sent, signal, table):
    """Compares all log records, or all points, with the rows of a table."""
    make_rows = rows.logs if signal == "logs" else rows.points
    sent_rows = {client: list(make_rows(merge_requests(requests, signal))) for client, requests in sent.items()}
    all_sent = [row for client_rows in sent_rows.values() for row in client_rows]
    table_rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    names = set(table_rows[0]) - {name for row in all_sent for name in row}
    columns = rows.attribute_columns(all_sent, names - rows.OTHER_COLUMNS)
    received = [rows.restore(row, columns) for row in table_rows]
    for client, client_rows in sent_rows.items():
        services = {row["resource"].get("service.name") for row in client_rows}
        received_rows = [row for row in received if row["resource"].get("service.name") in services]
        comparison.add(client, signal, list(map(rows.to_json, client_rows)), list(map(rows.to_json, received_rows)))


if __name__ == "__main__":
    sys.exit(main())
