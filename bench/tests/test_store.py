"""Reading what the store's benchmark reads: Delta's log, the sender's lines, the benchmark of questions."""

import json
import math
import tempfile
import unittest
from pathlib import Path

from harness import delta_log, questions, store
from harness.store_server import Merge


def add(path, size, rows):
    return {"add": {"path": path, "size": size, "stats": json.dumps({"numRecords": rows})}}


class DeltaLog(unittest.TestCase):
    def test_files_are_live_that_were_added_and_not_removed(self):
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
            self.assertEqual(delta_log.live(Path(folder)), delta_log.Live(files=2, size_bytes=30, rows=4))
            (log / f"{0:020}.json").unlink()
            with self.assertRaises(delta_log.DeltaError):
                delta_log.live(Path(folder))


class Waits(unittest.TestCase):
    def test_a_quantile_is_the_value_of_its_rank(self):
        ordered = list(range(1, 1001))
        self.assertEqual([store.quantile(ordered, q) for q in (0.5, 0.99, 0.999)], [500, 990, 999])
        self.assertEqual(store.quantile([7], 0.999), 7)
        self.assertTrue(math.isnan(store.quantile([], 0.5)))

    def test_a_batch_waited_during_a_merge_if_any_of_its_wait_was(self):
        rows = [(1_000_000, 500_000), (1_600_000, 500_000), (2_500_000, 100), (2_900_000, 200_000), (3_500_000, 1)]
        during, apart = store.split(rows, [Merge(2.0, 3.0)])
        self.assertEqual((during, apart), ([500_000, 100, 200_000], [500_000, 1]))

    def test_lines_of_the_sender_are_when_and_how_long(self):
        self.assertEqual(store.parse("17\t200\t4\n18\t200\t5\n"), [(17, 4), (18, 5)])


class Questions(unittest.TestCase):
    def test_the_library_prints_every_question(self):
        printed = "1 million spans\n     ms   p50    p99    CPU\n" + "".join(
            f"{question.name:>24} {number + 0.5:>9.2f} {number + 1.25:>9.2f} {number + 2:>9.2f}\n"
            for number, question in enumerate(questions.QUESTIONS)
        )
        found = questions.parse_library(printed)
        self.assertEqual(found[questions.TRACE], {"p50": 0.5, "p99": 1.25})
        self.assertEqual(len(found), len(questions.QUESTIONS))
        with self.assertRaises(ValueError):
            questions.parse_library(printed.replace("trace by ID", "trace"))


if __name__ == "__main__":
    unittest.main()
