"""Files of spans of which single bytes are changed, and the query results from them.

Each query first reads the whole files. Afterwards every result must be the same, or report that a run was not read
(`curtail-incomplete`), and then the log must name the file: the test looks for a wrong result without a report.

- **pages**: one byte before the end of a file, while the server runs;
- **ends**: one byte of the end of another, while the server is stopped, since it reads ends when it starts;
- **merging**: a file with a changed byte is among those that are to be merged: it is named and stays, others are merged.

Each byte is changed back before the next.
"""

import http.client
import json
import time
from contextlib import contextmanager
from dataclasses import replace

from harness.exactly_once import Wrong
from harness.live_server import Server
from harness.otlp import NS_PER_S
from harness.sending import Senders
from harness.table_counts import check

LIVES = 3
SENT_S = 0.3
# Of each life; a trace is read with all columns.
TRACES_ASKED = 10
QUESTIONS = (
    "/api/metrics/query?q=%7B+%7D+%7C+count_over_time%28%29+by+%28resource.service.name%29&start=0&end=9000000000",
    "/api/metrics/query?q=%7B+%7D+%7C+quantile_over_time%28duration%2C+0.5%2C+0.99%29+by+%28name%29&start=0&end=9000000000",
    "/api/search?limit=20&q=%7B+resource.service.name+%3D+%22cart%22+%7D+with+%28slowest%3Dtrue%29",
)
MERGE_LIMIT_S = 60
# At the end of a Parquet file: the length of the footer, and four letters.
LENGTH_BYTES, MAGIC_BYTES = 4, 4


def measure(plan, found, rng, place):
    # Runs are written when the server ends, and too few to be merged.
    calm = replace(place, arguments=("--set", "memtable=256MiB", "--set", "flush_every=1h"))
    lives = [written(found, rng, calm) for _ in range(LIVES)]
    one, other = (max(files, key=lambda file: file.stat().st_size) for files, _ in lives[:2])
    begun = [batch.at_ns // NS_PER_S for batch in found.sent.values()]
    of_all = f"&start={min(begun)}&end={max(begun) + 1}"
    paths = [f"{question}{of_all}" for question in QUESTIONS]
    paths += [f"/api/v2/traces/{trace}" for _, traces in lives for trace in traces[:TRACES_ASKED]]
    server = Server(calm).ready()
    try:
        whole = {path: response for path, (response, _) in ask(server, paths).items()}
        pages(plan, found, rng, (server, one, whole))
    finally:
        server.end()
    ends(plan, found, rng, (calm, other, whole))
    merging(found, rng, place, one)


def written(found, rng, place):
    """A life of a server that writes what it was sent; returns the new files of spans, and the traces in them."""
    spans = place.data / "tables" / "spans"
    before, known = set(spans.glob("day=*/*.parquet")), set(found.acknowledged)
    server = Server(place).ready()
    senders = Senders(found, server.otlp, rng)
    time.sleep(SENT_S)
    senders.stop()
    server.stop()
    return set(spans.glob("day=*/*.parquet")) - before, sorted(found.acknowledged - known)


def ask(server, paths):
    """The result of each query, and the number of its unread runs."""
    connection = http.client.HTTPConnection(server.api, timeout=60)
    responses = {}
    for path in paths:
        connection.request("GET", path, headers={"accept": "application/json"})
        response = connection.getresponse()
        body = response.read()
        said = json.loads(body) if response.status == 200 else response.status
        responses[path] = said, int(response.getheader("curtail-incomplete") or 0)
    return responses


@contextmanager
def changed(file, at, by):
    """A file with one byte changed, and then as it was."""
    with file.open("r+b") as opened:
        opened.seek(at)
        was = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([was ^ by]))
    try:
        yield
    finally:
        with file.open("r+b") as opened:
            opened.seek(at)
            opened.write(bytes([was]))


def end_begins(file):
    """Where the footer begins, and as many bytes before it, which are indexes: all of that is read when a server starts."""
    content = file.read_bytes()
    footer = int.from_bytes(content[-LENGTH_BYTES - MAGIC_BYTES : -MAGIC_BYTES], "little")
    return len(content) - 2 * footer, len(content)


def pages(plan, found, rng, where):
    server, file, whole = where
    outcomes = Outcomes(found, "pages", file)
    end, _ = end_begins(file)
    for _ in range(plan.flips):
        at, by, since = rng.randrange(MAGIC_BYTES, end), rng.randrange(1, 256), server.log.stat().st_size
        with changed(file, at, by):
            outcomes.take((at, by), whole, ask(server, whole), server.complaints(since))
    outcomes.tell()


def ends(plan, found, rng, where):
    place, file, whole = where
    outcomes = Outcomes(found, "the end", file)
    begin, end = end_begins(file)
    for _ in range(plan.end_flips):
        at, by = rng.randrange(begin, end), rng.randrange(1, 256)
        with changed(file, at, by):
            server = Server(place).ready()
            try:
                outcomes.take((at, by), whole, ask(server, whole), server.complaints())
            finally:
                server.end()
    outcomes.tell()


class Outcomes:
    """What came of changed bytes of a file."""

    def __init__(self, found, of, file):
        self.found, self.of, self.file = found, of, file
        self.same = self.reported = 0
        self.wrong = []
        self.example = None

    def take(self, change, whole, responses, complaints):
        """Compares results with those of the whole file. `change`: which byte was changed, and by what."""
        silent = [path for path, (said, unread) in responses.items() if said != whole[path] and not unread]
        if silent:
            self.wrong.append((change, [(path, responses[path][0]) for path in silent]))
        elif not any(unread for _, unread in responses.values()):
            self.same += 1
        else:
            naming = [said for said in complaints if self.file.name in str(said)]
            if not naming:
                raise Wrong(
                    f"{self.file}, byte {change}: the server does not name it: {complaints[:3]}; seed {self.found.seed}"
                )
            self.reported += 1
            self.example = self.example or naming[0]

    def tell(self):
        """The counts of all outcomes; a wrong result without a report is a failure."""
        self.found.say(
            f"{self.reported + self.same + len(self.wrong)} times a byte of {self.of} was changed: {self.reported} times "
            f"results reported an unread run, and the log named it, {self.same} times all results were the same, "
            f"{len(self.wrong)} times one was wrong without a word"
        )
        self.found.say(f"  logged, for example: {self.example}")
        for (at, by), paths in self.wrong[:10]:
            path, said = paths[0]
            size = self.file.stat().st_size
            self.found.say(
                f"  WRONG: byte {at} of {size} changed by {by:#x}: {len(paths)} results, as of {path}: {str(said)[:300]}"
            )
        if self.wrong:
            raise Wrong(
                f"{len(self.wrong)} changed bytes of {self.of} make wrong results without a report; seed {self.found.seed}"
            )


def merging(found, rng, place, file):
    """A damaged file among those that should be merged."""
    with changed(file, end_begins(file)[0] // 2, 1):
        server = Server(place).ready()
        try:
            senders = Senders(found, server.otlp, rng)
            limit = time.monotonic() + MERGE_LIMIT_S
            while not (naming := named(server, file)) or not is_merged(server):
                if time.monotonic() > limit or not server.is_alive():
                    raise Wrong(f"{file.name} is not named, or nothing is merged: {server.complaints()}; seed {found.seed}")
                time.sleep(0.1)
            senders.stop()
            server.stop()
        finally:
            server.end()
    found.say(f"a byte of a page was changed before a merge: other runs are merged; logged: {naming[0]}")
    check(found, place.data / "tables")


def named(server, file):
    return [said for said in server.complaints() if file.name in str(said)]


def is_merged(server):
    return any(event["fields"].get("message") == "compacted" for event in server.events())
