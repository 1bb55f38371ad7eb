"""Sends with real clients, asks for everything back, and says what was compared.

    cd bench && .venv/bin/python -m clients --program PATH

Traces are asked for by their IDs over HTTP, in protobuf and in JSON; log records and points are read from the Delta
tables with `deltalake` and Arrow, once the server has ended and so written all of it. Whatever differs is printed, and
the exit code is 1.
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

SHOWN = 3


class Compared:
    """What was held against each other, and what differed."""

    def __init__(self):
        self.lines = [("client", "of", "rows", "fields", "")]
        self.differ = 0

    def add(self, client, of, sent, came):
        """Two lists of rows as text, in any order."""
        missing, more = Counter(sent) - Counter(came), Counter(came) - Counter(sent)
        fields = sum(leaves(json.loads(row)) for row in sent)
        verdict = "equal" if sent and not missing and not more else "DIFFER"
        self.lines.append((client, of, f"{len(sent):,}", f"{fields:,}", verdict))
        if verdict == "equal":
            return
        self.differ += 1
        print(f"{client}, {of}: {len(sent)} sent, {missing.total()} of them not there, {more.total()} others there")
        for title, wrong in (("sent", missing), ("came", more)):
            for row in sorted(wrong)[:SHOWN]:
                print(f"  {title}: {row}")

    def print(self):
        widths = [max(map(len, column)) for column in zip(*self.lines)]
        for line in self.lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def leaves(value):
    """How many values lie in a value."""
    if isinstance(value, dict):
        return sum(map(leaves, value.values()))
    if isinstance(value, list):
        return sum(map(leaves, value))
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, required=True, help="the curtail command")
    given = parser.parse_args()
    compared = Compared()
    with tempfile.TemporaryDirectory(prefix="curtail-clients-") as scratch:
        data = Path(scratch) / "data"
        with Server(given.program, data, Path(scratch) / "server.log", 16) as server:
            sent = send(server)
            for client, kept in sent.items():
                compare_traces(compared, client, parsed(kept, "traces"), server.api)
            complaints = server.complaints()
        for of, table in (("logs", "logs"), ("metrics", "points")):
            compare_rows(compared, sent, of, data / "tables" / table)
    compared.print()
    for complaint in complaints:
        print(f"the server complained: {complaint['fields']}")
    return int(bool(compared.differ or complaints))


def send(server):
    """Send with every client in every way; return what each sent, by signal, as requests in protobuf."""
    sent = {}
    for protocol in ("grpc", "http"):
        for is_packed in (False, True):
            name = f"Python SDK, {protocol}{', gzip' if is_packed else ''}"
            sent[name] = sdk.send(name, protocol, server.otlp, is_packed)
    program = telemetrygen.path()
    if program is None:
        raise SystemExit(f"telemetrygen is not installed: go install {telemetrygen.PACKAGE}@latest")
    for protocol in ("grpc", "http"):
        with tee.Tee(server.otlp) as between:
            telemetrygen.send(program, protocol, getattr(between, protocol))
            sent[f"telemetrygen, {protocol}"] = between.kept
    return sent


def parsed(kept, signal):
    """Requests as one message: their first fields are the same."""
    return rows.MESSAGES[signal].FromString(b"".join(kept[signal]))


def compare_traces(compared, client, message, api):
    """Every trace that was sent, asked for in both forms."""
    sent = list(rows.spans(message))
    ids = sorted({span.trace_id.hex() for e in message.resource_spans for s in e.scope_spans for span in s.spans})
    connection = http.client.HTTPConnection(api, timeout=30)
    for form, read in (("application/protobuf", of_protobuf), ("application/json", of_json)):
        came = []
        for trace_id in ids:
            connection.request("GET", f"/api/v2/traces/{trace_id}", headers={"accept": form})
            response = connection.getresponse()
            body = response.read()
            if response.status == 200:
                came += rows.spans(read(body))
        compared.add(client, f"spans, {form}", sent, came)
    connection.close()


def of_protobuf(body):
    """A `TraceByIDResponse`: its first field is the trace, which has the field of a `TracesData`."""
    at, length, shift = 1, 0, 0
    if body[0] != 0x0A:
        raise ValueError(f"expected field 1, found {body[:1]}")
    while True:
        byte = body[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return rows.TracesData.FromString(body[at : at + length])


def of_json(body):
    """The same in protobuf's JSON."""
    return ParseDict(json.loads(body)["trace"], rows.TracesData())


def compare_rows(compared, sent, of, table):
    """All log records, or all points, as they were sent and as they stand in a table."""
    read = rows.logs if of == "logs" else rows.points
    by_client = {client: list(read(parsed(kept, of))) for client, kept in sent.items()}
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    names = set(found[0]) - {name for rows_of in by_client.values() for row in rows_of for name in row}
    own = rows.columns_of([row for rows_of in by_client.values() for row in rows_of], names - rows.OTHER_COLUMNS)
    came = [rows.stored(row, own) for row in found]
    for client, rows_of in by_client.items():
        services = {row["resource"].get("service.name") for row in rows_of}
        its_own = [row for row in came if row["resource"].get("service.name") in services]
        compared.add(client, of, list(map(rows.said, rows_of)), list(map(rows.said, its_own)))


if __name__ == "__main__":
    sys.exit(main())
