"""Reading a torn log, changing bytes, and what engines are asked and say."""

import struct
import tempfile
import unittest
import zlib
from pathlib import Path

from harness import damaged_runs, engines, readers, torn_log
from harness.otlp import ROWS_OF_A_BATCH, Batch


SALT = 0x1234_5678_9ABC_DEF0


def record(body):
    header = struct.pack("<QQIBBHQI", SALT, 0, len(body), 1, 0, 0, 17, zlib.crc32(body))
    return header + struct.pack("<I", zlib.crc32(header)) + body


def block(content):
    return content.ljust(torn_log.BLOCK_BYTES, b"\0")


class TornLog(unittest.TestCase):
    def setUp(self):
        self.one, self.other = record(b"one" * 50), record(b"other" * 70)
        self.log = block(torn_log.MAGIC + struct.pack("<Q", SALT)) + block(self.one + self.other) + block(self.one)

    def test_a_whole_log_has_no_damage(self):
        end = 2 * torn_log.BLOCK_BYTES + len(self.one)
        self.assertEqual(torn_log.read(self.log), (end, None))

    def test_what_is_cut_off_within_a_record_begins_with_it(self):
        begin = torn_log.BLOCK_BYTES + len(self.one)
        self.assertEqual(torn_log.read(self.log[: begin + 20]), (begin, (begin, 20)))

    def test_what_is_cut_off_between_groups_is_not_seen(self):
        end = torn_log.BLOCK_BYTES + len(self.one) + len(self.other)
        for at in (end, end + 100, 2 * torn_log.BLOCK_BYTES):
            self.assertEqual(torn_log.read(self.log[:at]), (end, None))

    def test_a_changed_byte_is_damage(self):
        changed = bytearray(self.log)
        changed[torn_log.BLOCK_BYTES + 30] ^= 1
        self.assertEqual(torn_log.read(bytes(changed))[1][0], torn_log.BLOCK_BYTES)


class ChangedBytes(unittest.TestCase):
    def test_a_byte_is_changed_back(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "file"
            file.write_bytes(b"abc")
            with damaged_runs.changed(file, 1, 3):
                self.assertEqual(file.read_bytes(), b"aac")
            self.assertEqual(file.read_bytes(), b"abc")


class Engines(unittest.TestCase):
    def test_what_was_sent_is_what_an_engine_should_say(self):
        batches = [Batch("spans", "a", "cart", 5, 10), Batch("spans", "b", "stock", 3, 20), Batch("spans", "c", "cart", 4, 30)]
        n = ROWS_OF_A_BATCH
        said = engines.said((3 * n, 3, 60, 3, 5), [("stock", n), ("cart", 2 * n)])
        self.assertEqual(readers.expected(batches), said)


if __name__ == "__main__":
    unittest.main()
