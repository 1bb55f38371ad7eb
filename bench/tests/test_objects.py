"""Tests encoded batches, the check of exactly-once storage, and the classification of requests to an object store."""

import random
import unittest

from harness import exactly_once, object_requests, objects, otlp, sending


class Batches(unittest.TestCase):
    def test_varints_have_groups_of_seven_bits(self):
        self.assertEqual([otlp.varint(n) for n in (0, 127, 128, 300)], [b"\0", b"\x7f", b"\x80\x01", b"\xac\x02"])

    def test_a_batch_describes_its_bytes(self):
        for table, make_batch in otlp.BATCH_MAKERS.items():
            batch, encoded = make_batch(random.Random(7))
            id_bytes = batch.time_ns.to_bytes(8, "little") if table == "points" else bytes.fromhex(batch.id)
            self.assertEqual((batch.table, encoded.count(batch.service.encode()) > 0), (table, True))
            self.assertEqual(encoded.count(id_bytes), otlp.BATCH_ROWS)

    def test_times_of_batches_are_unique(self):
        times = [otlp.unique_time_ns() for _ in range(1_000)]
        self.assertEqual(len(set(times)), len(times))

    def test_the_message_of_a_rejection_is_parsed(self):
        status = otlp.varint_field(1, 14) + otlp.field(2, b"the disk is full")
        self.assertEqual(otlp.parse_status_message(status), "the disk is full")
        self.assertEqual(otlp.parse_status_message(b""), "")

    def test_quantiles_are_by_rank(self):
        self.assertEqual([sending.quantile([3, 1, 2], q) for q in (0.0, 0.5, 0.99)], [1, 2, 3])


class ExactlyOnce(unittest.TestCase):
    def check_table(self, row_counts):
        """Batches a and b were sent; a was acknowledged."""
        report = exactly_once.DeliveryReport("test", 1)
        report.sent_batches.update((id, otlp.Batch("spans", id, "cart", 0, 0)) for id in ("a", "b"))
        report.acknowledged_ids.add("a")
        return exactly_once.check_table(report, "spans", row_counts, "the test")

    def test_an_unacknowledged_batch_may_be_stored(self):
        for row_counts, unacknowledged in (({}, 0), ({"b": otlp.BATCH_ROWS}, 1)):
            self.assertEqual(self.check_table({"a": otlp.BATCH_ROWS} | row_counts), (1, unacknowledged))

    def test_lost_duplicated_incomplete_or_unknown_batches_fail(self):
        full = otlp.BATCH_ROWS
        for row_counts in ({"b": full}, {"a": 2 * full}, {"a": full, "b": 1}, {"a": full, "c": full}):
            with self.assertRaises(exactly_once.CheckError):
                self.check_table(row_counts)


class Requests(unittest.TestCase):
    def test_requests_are_classified(self):
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
            self.assertEqual(object_requests.classify_request(method, path), kind)


class Merging(unittest.TestCase):
    class Server:
        log_size_when_ready = 0

        def __init__(self, *events):
            self.events = events

        def log_events(self, _offset):
            return self.events

    def test_a_server_merges_from_the_first_part_to_the_log_event(self):
        fields = {"method": "PUT", "path": "/traces/merged-1.parquet?uploadId=1"}
        part = {"target": object_requests.LOG_TARGET, "fields": fields}
        end = {"fields": {"message": "compacted"}}
        self.assertTrue(objects.is_merging(self.Server(end, part)))
        self.assertFalse(objects.is_merging(self.Server(part, end)))


if __name__ == "__main__":
    unittest.main()
