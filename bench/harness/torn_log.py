"""Tears the last segment of a server's log, as a power failure may: cuts it off, or replaces its end with random bytes.

After a restart, the acknowledged batches before the cut must be stored exactly once. The server must log where damage
begins and its length. This file parses the segment independently, in the format of crates/store/src/log/segment.rs.
"""

import struct
import time
import zlib
from dataclasses import replace

from harness import otlp
from harness.exactly_once import CheckError
from harness.live_server import Server
from harness.sending import Senders
from harness.table_counts import count_batch_rows

MAGIC = b"curtail log 2\r\n\n"
BLOCK_BYTES = 4096
# Salt, number, length of the body, signal, length of the tenant's name, padding, time of arrival, checksum of the body,
# checksum of the header up to here.
HEADER = struct.Struct("<QQIBBHQII")
TABLES = ("spans", "logs", "points")
DAMAGE_MESSAGES = (
    "the log ends with an unfinished record",
    "a segment of the log is damaged; its other records were replayed, and the file is kept",
)


def measure(plan, report, rng, config):
    total_lost = total_reported = 0
    for nth in range(plan.cuts):
        folder = config.folder / f"{nth}"
        folder.mkdir()
        # All batches stay in the log.
        arguments = ("--set", "memtable=256MiB", "--set", "flush_every=1h")
        run_config = replace(config, folder=folder, tables_url=f"file://{folder}/data/tables", arguments=arguments)
        lost, is_reported = tear_log(report, rng, run_config, is_garbled=nth % 2 == 1)
        total_lost, total_reported = total_lost + lost, total_reported + is_reported
    report.add_line(
        f"cut the last segment at a random byte {plan.cuts} times, every second time with random bytes after the cut: "
        f"{total_lost} acknowledged batches were cut off, all others are stored exactly once"
    )
    report.add_line(f"{total_reported} cuts were within a record: the server logged the byte; it logged no other cut")


def tear_log(report, rng, config, is_garbled):
    """Returns the number of acknowledged batches that the cut removed, and whether the server logged damage."""
    earlier_ids = set(report.sent_batches)
    server = Server(config).wait_until_ready()
    senders = Senders(report, server.otlp, rng, TABLES)
    time.sleep(rng.uniform(0.2, 1.0))
    server.kill()
    senders.stop()
    segment = max((config.data / "log").glob("log-*"))
    original = segment.read_bytes()
    cut = rng.randrange(BLOCK_BYTES, len(original))
    torn = original[:cut] + (rng.randbytes(rng.randrange(1, 3 * BLOCK_BYTES)) if is_garbled else b"")
    segment.write_bytes(torn)
    records_end, damage = parse_segment(torn)
    logged = restart_server(config)
    expected = damage and {"at": damage[0], "bytes": damage[1]}
    if logged != expected:
        raise CheckError(f"{segment}, cut at {cut}: server logged {logged}, expected {expected}; seed {report.seed}")
    if expected and not report.lines:
        report.add_line(f"example of the log: {DAMAGE_MESSAGES[0]}: {logged}")
    return count_lost_batches(report, config, earlier_ids, (original, records_end)), damage is not None


def restart_server(config):
    """Starts the server and stops it, so that it replays and flushes the log; returns the damage that it logs."""
    server = Server(config).wait_until_ready()
    code = server.stop()
    if code != 0:
        raise CheckError(f"a server with a torn log exits with {code}")
    warnings = server.warnings()
    if len(warnings) > 1 or any(fields["message"] not in DAMAGE_MESSAGES for fields in warnings):
        raise CheckError(f"expected at most one warning, about the log: {warnings}")
    return {name: warnings[0][name] for name in ("at", "bytes")} if warnings else None


def parse_segment(segment):
    """Returns the end of the valid records, and the position and length of damage, or None."""
    at = records_end = BLOCK_BYTES
    if not segment.startswith(MAGIC):
        return 0, (0, len(segment)) if segment else None
    while at < len(segment):
        end = find_record_end(segment, at)
        if end:
            at = records_end = end
            continue
        block_end = min(-(-at // BLOCK_BYTES) * BLOCK_BYTES, len(segment))
        if block_end == at or any(segment[at:block_end]):
            break
        at = block_end
    return records_end, (at, len(segment) - at) if at < len(segment) else None


def find_record_end(segment, at):
    """The end of the record that begins at a position, or None if no valid record begins there."""
    if at + HEADER.size > len(segment):
        return None
    salt, _, length, signal, tenant_length, _, _, body_checksum, header_checksum = HEADER.unpack_from(segment, at)
    end = at + HEADER.size + length
    if end > len(segment) or length < tenant_length or signal not in (1, 2, 3):
        return None
    has_salt = salt.to_bytes(8, "little") == segment[len(MAGIC) : len(MAGIC) + 8]
    is_header_valid = zlib.crc32(segment[at : at + HEADER.size - 4]) == header_checksum
    is_valid = has_salt and is_header_valid and zlib.crc32(segment[at + HEADER.size : end]) == body_checksum
    return end if is_valid else None


def count_lost_batches(report, config, earlier_ids, log):
    """Returns the number of acknowledged batches that the cut removed; checks that all others are stored once."""
    segment, records_end = log
    lost = 0
    row_counts = {}
    for table in TABLES:
        row_counts |= count_batch_rows(config.data / "tables", table)[0]
    for id in set(report.sent_batches) - earlier_ids:
        batch = report.sent_batches[id]
        id_bytes = batch.time_ns.to_bytes(8, "little") if batch.table == "points" else bytes.fromhex(id)
        at = segment.find(id_bytes)
        rows = row_counts.pop(id, 0)
        # A batch that is not in this segment was in an earlier one, which is flushed to runs, or never arrived.
        is_stored = at < records_end if at >= 0 else id in report.acknowledged_ids
        if rows != (otlp.BATCH_ROWS if is_stored else 0):
            raise CheckError(
                f"{batch} has {rows} rows, is at {at} of the log; records end at {records_end}; seed {report.seed}"
            )
        lost += id in report.acknowledged_ids and not is_stored
    if row_counts:
        raise CheckError(f"{len(row_counts)} batches are stored that were never sent; seed {report.seed}")
    return lost
