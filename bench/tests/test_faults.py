"""Tests the parser of torn logs, changed bytes, and the expected results of engines."""

import struct
import tempfile
import unittest
import zlib
from pathlib import Path

from harness import damaged_runs, engines, readers, torn_log
from harness.otlp import BATCH_ROWS, Batch


SALT = 0x1234_5678_9ABC_DEF0


def record(body):
    header = struct.pack("<QQIBBHQI", SALT, 0, len(body), 1, 0, 0, 17, zlib.crc32(body))
    return header + struct.pack("<I", zlib.crc32(header)) + body


def block(content):
    return content.ljust(torn_log.BLOCK_BYTES, b"\0")


class TornLog(unittest.TestCase):
    def setUp(self):
        self.first, self.second = record(b"one" * 50), record(b"other" * 70)
        self.log = block(torn_log.MAGIC + struct.pack("<Q", SALT)) + block(self.first + self.second) + block(self.first)

    def test_a_whole_log_has_no_damage(self):
        end = 2 * torn_log.BLOCK_BYTES + len(self.first)
        self.assertEqual(torn_log.parse_segment(self.log), (end, None))

    def test_damage_of_a_cut_within_a_record_begins_at_the_record(self):
        begin = torn_log.BLOCK_BYTES + len(self.first)
        self.assertEqual(torn_log.parse_segment(self.log[: begin + 20]), (begin, (begin, 20)))

    def test_a_cut_between_groups_is_no_damage(self):
        end = torn_log.BLOCK_BYTES + len(self.first) + len(self.second)
        for at in (end, end + 100, 2 * torn_log.BLOCK_BYTES):
            self.assertEqual(torn_log.parse_segment(self.log[:at]), (end, None))

    def test_a_changed_byte_is_damage(self):
        changed = bytearray(self.log)
        changed[torn_log.BLOCK_BYTES + 30] ^= 1
        self.assertEqual(torn_log.parse_segment(bytes(changed))[1][0], torn_log.BLOCK_BYTES)


class ChangedBytes(unittest.TestCase):
    def test_a_changed_byte_is_restored(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "file"
            file.write_bytes(b"abc")
            with damaged_runs.change_byte(file, 1, 3):
                self.assertEqual(file.read_bytes(), b"aac")
            self.assertEqual(file.read_bytes(), b"abc")


class Engines(unittest.TestCase):
    def test_the_expected_result_of_sent_batches(self):
        batches = [("a", "cart", 5, 10), ("b", "stock", 3, 20), ("c", "cart", 4, 30)]
        batches = [Batch("spans", *fields) for fields in batches]
        n = BATCH_ROWS
        result = engines.make_result((3 * n, 3, 60, 3, 5), [("stock", n), ("cart", 2 * n)])
        self.assertEqual(readers.expected_result(batches), result)


if __name__ == "__main__":
    unittest.main()
