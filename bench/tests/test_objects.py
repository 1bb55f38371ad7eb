"""Batches, and what is found of them; what servers ask of an object store."""

import random
import unittest

from harness import exactly_once, object_requests, objects, otlp, sending


class Batches(unittest.TestCase):
    def test_numbers_are_written_in_groups_of_seven_bits(self):
        self.assertEqual([otlp.varint(n) for n in (0, 127, 128, 300)], [b"\0", b"\x7f", b"\x80\x01", b"\xac\x02"])

    def test_a_batch_says_what_is_in_its_bytes(self):
        for table, make in otlp.MAKERS.items():
            batch, encoded = make(random.Random(7))
            of_id = batch.at_ns.to_bytes(8, "little") if table == "points" else bytes.fromhex(batch.id)
            self.assertEqual((batch.table, encoded.count(batch.service.encode()) > 0), (table, True))
            # Log records have their time twice, the time of a point is its ID.
            self.assertEqual(encoded.count(of_id), otlp.ROWS_OF_A_BATCH)

    def test_no_two_batches_have_one_time(self):
        moments = [otlp.moment_ns() for _ in range(1_000)]
        self.assertEqual(len(set(moments)), len(moments))

    def test_the_message_of_a_refusal_is_read(self):
        self.assertEqual(otlp.message(otlp.number(1, 14) + otlp.field(2, b"the disk is full")), "the disk is full")
        self.assertEqual(otlp.message(b""), "")

    def test_quantiles_are_by_rank(self):
        self.assertEqual([sending.quantile([3, 1, 2], q) for q in (0.0, 0.5, 0.99)], [1, 2, 3])


class Counting(unittest.TestCase):
    def found(self):
        found = exactly_once.Found("test", 1)
        found.sent.update((id, otlp.Batch("spans", id, "cart", 0, 0)) for id in ("a", "b"))
        found.acknowledged.add("a")
        return found

    def test_what_is_there_once_or_was_never_acknowledged_is_well(self):
        for b, others in ((0, 0), (otlp.ROWS_OF_A_BATCH, 1)):
            counted = {id: rows for id, rows in (("a", otlp.ROWS_OF_A_BATCH), ("b", b)) if rows}
            self.assertEqual(exactly_once.compare_table(self.found(), "spans", counted, "us"), (1, others))

    def test_what_is_lost_doubled_torn_or_unknown_is_not(self):
        whole = otlp.ROWS_OF_A_BATCH
        for counted in ({"b": whole}, {"a": 2 * whole}, {"a": whole, "b": 1}, {"a": whole, "c": whole}):
            with self.assertRaises(exactly_once.Wrong):
                exactly_once.compare_table(self.found(), "spans", counted, "us")

    def test_requests_are_told_apart(self):
        for method, path, kind in (
            ("PUT", "http://h/traces/p/spans/_delta_log/00000000000000000007.json", "PUT log of a table"),
            ("GET", "http://h/traces/p/spans/day%3D2026-11-22/w-000000000001.parquet", "GET run"),
            (
                "PUT",
                "http://h/traces/p/spans/day=2026-11-22/merged-x.parquet?partNumber=1&uploadId=y",
                "PUT parts of a merged run",
            ),
            ("GET", "http://h/traces?list-type=2&prefix=p", "GET list"),
        ):
            self.assertEqual(object_requests.kind(method, path), kind)


class Merging(unittest.TestCase):
    class Log:
        def __init__(self, *events):
            self.of = events

        listens = 0

        def events(self, _since):
            return self.of

    def test_a_server_is_merging_between_the_first_part_and_the_word_of_it(self):
        part = {"target": object_requests.TARGET, "fields": {"method": "PUT", "path": "/traces/merged-1.parquet?uploadId=1"}}
        done = {"fields": {"message": "compacted"}}
        self.assertTrue(objects.is_merging(self.Log(done, part)))
        self.assertFalse(objects.is_merging(self.Log(part, done)))


if __name__ == "__main__":
    unittest.main()
