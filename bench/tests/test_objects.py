"""Batches of spans, and what is found of them."""

import random
import unittest

from harness import objects, spans


class Batches(unittest.TestCase):
    def test_numbers_are_written_in_groups_of_seven_bits(self):
        self.assertEqual([spans.varint(n) for n in (0, 127, 128, 300)], [b"\0", b"\x7f", b"\x80\x01", b"\xac\x02"])

    def test_a_batch_has_one_trace_and_is_the_same_for_the_same_seed(self):
        one, same = (spans.batch(random.Random(7), b"0123456789abcdef", 1, 3) for _ in range(2))
        self.assertEqual(one, same)
        self.assertEqual(one.count(b"0123456789abcdef"), 3)

    def test_quantiles_are_by_rank(self):
        self.assertEqual([spans.quantile([3, 1, 2], q) for q in (0.0, 0.5, 0.99)], [1, 2, 3])


class Counting(unittest.TestCase):
    def found(self):
        found = objects.Found("test", 1)
        found.sent.update(("a", "b"))
        found.acknowledged.add("a")
        return found

    def test_what_is_there_once_or_was_never_acknowledged_is_well(self):
        for b in (0, spans.SPANS_OF_A_BATCH):
            objects.compare(self.found(), {"a"}, {"a": spans.SPANS_OF_A_BATCH, "b": b}, "us")

    def test_what_is_lost_doubled_or_torn_is_not(self):
        whole = spans.SPANS_OF_A_BATCH
        for counted in ({"b": whole}, {"a": 2 * whole}, {"a": whole, "b": 1}):
            with self.assertRaises(objects.Wrong):
                objects.compare(self.found(), {"a"}, counted, "us")

    def test_requests_are_told_apart(self):
        for method, path, kind in (
            ("PUT", "http://h/traces/p/spans/_delta_log/00000000000000000007.json", "PUT log of a table"),
            ("GET", "http://h/traces/p/spans/day%3D2026-11-22/w-000000000001.parquet", "GET run"),
            ("PUT", "http://h/traces/p/spans/day=2026-11-22/merged-x.parquet?partNumber=1&uploadId=y", "PUT parts of a merged run"),
            ("GET", "http://h/traces?list-type=2&prefix=p", "GET list"),
        ):
            self.assertEqual(objects.kind(method, path), kind)


class Merging(unittest.TestCase):
    class Log:
        def __init__(self, *events):
            self.of = events

        listens = 0

        def events(self, _since):
            return self.of

    def test_a_server_is_merging_between_the_first_part_and_the_word_of_it(self):
        part = {"target": objects.TARGET, "fields": {"method": "PUT", "path": "/traces/merged-1.parquet?uploadId=1"}}
        done = {"fields": {"message": "runs merged"}}
        self.assertTrue(objects.is_merging(self.Log(done, part)))
        self.assertFalse(objects.is_merging(self.Log(part, done)))


if __name__ == "__main__":
    unittest.main()
