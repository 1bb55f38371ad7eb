"""Tests the parsers of the store benchmark: Delta's log, the sender's rows, the output of the query benchmark."""

import json
import math
import tempfile
import unittest
from pathlib import Path

from harness import delta_log, queries, store
from harness.store_server import Compaction


def add(path, size, rows):
    return {"add": {"path": path, "size": size, "stats": json.dumps({"numRecords": rows})}}


class DeltaLogTest(unittest.TestCase):
    def test_live_files_were_added_and_not_removed(self):
        commits = [
            [{"protocol": {}}, {"metaData": {}}],
            [add("a", 10, 1), add("b", 20, 2)],
            [{"remove": {"path": "a"}}, {"remove": {"path": "b"}}, add("c", 25, 3), {"commitInfo": {}}],
            [add("d", 5, 1)],
        ]
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "_delta_log"
            log.mkdir()
            for number, actions in enumerate(commits):
                (log / f"{number:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
            expected = delta_log.LiveFiles(files=2, size_bytes=30, rows=4)
            self.assertEqual(delta_log.sum_live_files(Path(folder)), expected)
            (log / f"{0:020}.json").unlink()
            with self.assertRaises(delta_log.DeltaError):
                delta_log.sum_live_files(Path(folder))


class WaitTest(unittest.TestCase):
    def test_a_quantile_is_the_value_of_its_rank(self):
        ordered = list(range(1, 1001))
        self.assertEqual([store.quantile(ordered, q) for q in (0.5, 0.99, 0.999)], [500, 990, 999])
        self.assertEqual(store.quantile([7], 0.999), 7)
        self.assertTrue(math.isnan(store.quantile([], 0.5)))

    def test_a_wait_that_overlaps_a_compaction_counts_as_during(self):
        rows = [(1_000_000, 500_000), (1_600_000, 500_000), (2_500_000, 100), (2_900_000, 200_000), (3_500_000, 1)]
        during, outside = store.split_waits(rows, [Compaction(2.0, 3.0)])
        self.assertEqual((during, outside), ([500_000, 100, 200_000], [500_000, 1]))

    def test_a_row_of_the_sender_has_the_planned_time_and_the_wait(self):
        self.assertEqual(store.parse_rows("17\t200\t4\n18\t200\t5\n"), [(17, 4), (18, 5)])


class QueryTest(unittest.TestCase):
    def test_the_output_of_the_library_has_every_query(self):
        output = "1 million spans\n     ms   p50    p99    CPU\n" + "".join(
            f"{query.name:>24} {number + 0.5:>9.2f} {number + 1.25:>9.2f} {number + 2:>9.2f}\n"
            for number, query in enumerate(queries.QUERIES)
        )
        durations = queries.parse_library_output(output)
        self.assertEqual(durations[queries.TRACE], {"p50": 0.5, "p99": 1.25})
        self.assertEqual(len(durations), len(queries.QUERIES))
        with self.assertRaises(ValueError):
            queries.parse_library_output(output.replace("trace by ID", "trace"))


if __name__ == "__main__":
    unittest.main()
