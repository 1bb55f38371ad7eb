"""The last segment of a log ends too early, or with something else, as it may after a power cut.

What is before that was acknowledged and must be there exactly once; the server must say from where on the rest is no
record. The reader in this file finds that position in the format that crates/store/src/log/segment.rs describes.
"""

import struct
import time
import zlib
from dataclasses import replace

from harness import otlp
from harness.exactly_once import Wrong
from harness.live_server import Server
from harness.sending import Senders
from harness.table_counts import counted

MAGIC = b"curtail log 2\r\n\n"
BLOCK_BYTES = 4096
# Salt, number, length of the body, signal, length of the tenant's name, padding, time of arrival, checksum of the body
# and checksum of all before it.
HEADER = struct.Struct("<QQIBBHQII")
SENT = ("spans", "logs", "points")
SAID = (
    "the log ends with an unfinished record",
    "a segment of the log is damaged; its other records were replayed, and the file is kept",
)


def measure(plan, found, rng, place):
    lost = reported = 0
    for nth in range(plan.cuts):
        folder = place.folder / f"{nth}"
        folder.mkdir()
        # All of it stays in the log.
        arguments = ("--set", "memtable=256MiB", "--set", "flush_every=1h")
        here = replace(place, folder=folder, tables=f"file://{folder}/data/tables", arguments=arguments)
        cut_off, is_reported = torn(found, rng, here, is_garbled=nth % 2 == 1)
        lost, reported = lost + cut_off, reported + is_reported
    found.say(
        f"{plan.cuts} times the last segment was cut at a random byte, every second time with random bytes after it: "
        f"{lost} acknowledged batches were cut off, all others are there exactly once"
    )
    found.say(f"{reported} times the rest ended within a record, and the server said at which byte; otherwise it said nothing")


def torn(found, rng, place, is_garbled):
    """Once. Returns how many acknowledged batches were cut off, and whether something was to be said of it."""
    known = set(found.sent)
    server = Server(place).ready()
    senders = Senders(found, server.otlp, rng, SENT)
    time.sleep(rng.uniform(0.2, 1.0))
    server.kill()
    senders.stop()
    segment = max((place.data / "log").glob("log-*"))
    before = segment.read_bytes()
    at = rng.randrange(BLOCK_BYTES, len(before))
    left = before[:at] + (rng.randbytes(rng.randrange(1, 3 * BLOCK_BYTES)) if is_garbled else b"")
    segment.write_bytes(left)
    whole, damage = read(left)
    said = restart(place)
    expected = damage and {"at": damage[0], "bytes": damage[1]}
    if said != expected:
        raise Wrong(f"{segment}, cut at {at}: the server said {said}, expected {expected}; seed {found.seed}")
    if expected and not found.lines:
        found.say(f"logged, for example: {SAID[0]}: {said}")
    return lost(found, place, known, (before, whole)), damage is not None


def restart(place):
    """Starts it, and has it write what it finds; returns what it says of damage."""
    server = Server(place).ready()
    code = server.stop()
    if code != 0:
        raise Wrong(f"a server with a torn log ends with {code}")
    said = [said for said in server.complaints() if said["message"] in SAID]
    if len(said) > 1 or len(server.complaints()) > len(said):
        raise Wrong(f"expected no more than one complaint, of the log: {server.complaints()}")
    return {name: said[0][name] for name in ("at", "bytes")} if said else None


def read(segment):
    """Where whole records end, and where what is no record begins, with its length; None if there is none."""
    at = whole = BLOCK_BYTES
    if not segment.startswith(MAGIC):
        return 0, (0, len(segment)) if segment else None
    while at < len(segment):
        end = record_end(segment, at)
        if end:
            at = whole = end
            continue
        filled = min(-(-at // BLOCK_BYTES) * BLOCK_BYTES, len(segment))
        if filled == at or any(segment[at:filled]):
            break
        at = filled
    return whole, (at, len(segment) - at) if at < len(segment) else None


def record_end(segment, at):
    """Where the record ends that begins there, if it is whole."""
    if at + HEADER.size > len(segment):
        return None
    salt, _, length, signal, named, _, _, of_body, of_header = HEADER.unpack_from(segment, at)
    end = at + HEADER.size + length
    if end > len(segment) or length < named or signal not in (1, 2, 3):
        return None
    is_of_segment = salt.to_bytes(8, "little") == segment[len(MAGIC) : len(MAGIC) + 8]
    is_header = zlib.crc32(segment[at : at + HEADER.size - 4]) == of_header
    is_whole = is_of_segment and is_header and zlib.crc32(segment[at + HEADER.size : end]) == of_body
    return end if is_whole else None


def lost(found, place, known, log):
    """How many acknowledged batches were cut off; each that was not must be there once."""
    segment, whole = log
    cut_off = 0
    there = {}
    for table in SENT:
        rows, _ = counted(place.data / "tables", table)
        there |= rows
    for id in set(found.sent) - known:
        batch = found.sent[id]
        bytes_of_id = batch.at_ns.to_bytes(8, "little") if batch.table == "points" else bytes.fromhex(id)
        at = segment.find(bytes_of_id)
        rows = there.pop(id, 0)
        # What is in no segment that is left was in one before, of which all is in runs; or it never came.
        is_there = at < whole if at >= 0 else id in found.acknowledged
        if rows != (otlp.ROWS_OF_A_BATCH if is_there else 0):
            raise Wrong(f"{batch}: {rows} rows, at {at} of the log, which is whole to {whole}; seed {found.seed}")
        cut_off += id in found.acknowledged and not is_there
    if there:
        raise Wrong(f"{len(there)} batches that nobody has sent; seed {found.seed}")
    return cut_off
