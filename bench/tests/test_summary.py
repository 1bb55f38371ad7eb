"""Tests the figures of a report (medians, ranges and ratios) on data small enough to check by hand."""

import unittest

from harness import report, summary
from harness.load import HTTP1
from harness.passthrough import divide_cost
from harness.processes import Cost
from harness.summary import Figures, Spread, Target

CPU = "cpu_ns_per_request"


def block(number, target, cpu_ns):
    """A paced HTTP/1.1 block with the fields of the tables."""
    costs = {f"{part}_ns_per_request": cpu_ns for part in ("cpu", "user", "system", "waited")}
    labels = {"round": number, "target": target, "protocol": HTTP1, "kind": "paced"}
    return {**labels, **costs, "requests_per_second": 5000.0}


def figures():
    """Three rounds; every target is slow in the second."""
    blocks = [
        block(1, "direct", 8_000), block(1, "curtail", 24_000), block(1, "haproxy", 20_000),
        block(2, "haproxy", 40_000), block(2, "curtail", 44_000), block(2, "direct", 9_000),
        block(3, "direct", 8_000), block(3, "curtail", 25_000), block(3, "haproxy", 20_000),
    ]  # fmt: skip
    peaks = {"direct": None, "curtail": 10, "haproxy": 40}
    visits = [
        {"round": number, "target": name, "peak_memory_bytes": peak, "span_bytes_per_request": 0}
        for number in (1, 2, 3)
        for name, peak in peaks.items()
        if peak
    ]
    return Figures({"blocks": blocks, "visits": visits})


class CostTest(unittest.TestCase):
    def test_divide_cost_returns_nanoseconds_per_request(self):
        divided = divide_cost(Cost(cpu_ns=2_000_000, user_s=0.0012, system_s=0.0008, waited_ns=500_000), 100)
        expected = {"cpu": 20_000, "user": 12_000, "system": 8_000, "waited": 5_000}
        for part, nanoseconds in expected.items():
            self.assertAlmostEqual(divided[f"{part}_ns_per_request"], nanoseconds)


class FiguresTest(unittest.TestCase):
    def test_targets_have_the_order_of_the_first_round(self):
        self.assertEqual(figures().targets(), ["direct", "curtail", "haproxy"])

    def test_median_and_range(self):
        self.assertEqual(figures().spread("curtail", CPU, HTTP1, "paced"), Spread(25_000, 24_000, 44_000))

    def test_a_ratio_divides_figures_of_the_same_round(self):
        ratios = figures().ratios(Target(CPU, HTTP1, "paced", "haproxy", 1.3))
        self.assertEqual(ratios, {1: 1.2, 2: 1.1, 3: 1.25})

    def test_a_target_can_be_of_curtail_with_other_settings(self):
        target = Target(CPU, HTTP1, "paced", "haproxy", 1.3, "direct")
        self.assertEqual(figures().ratios(target), {1: 0.4, 2: 0.225, 3: 0.4})

    def test_a_ratio_of_a_whole_visit(self):
        target = Target("peak_memory_bytes", "", "", "haproxy", 0.3)
        self.assertEqual(figures().ratios(target), {1: 0.25, 2: 0.25, 3: 0.25})

    def test_an_unmeasured_peer_has_no_ratio_and_no_verdict(self):
        target = Target(CPU, HTTP1, "paced", "envoy", 1.0)
        self.assertEqual(figures().ratios(target), {})
        self.assertEqual(summary.verdict(target, {}), "not measured")

    def test_a_target_is_met_at_its_bound_and_missed_above(self):
        target = Target(CPU, HTTP1, "paced", "haproxy", 1.2)
        self.assertEqual(summary.verdict(target, {1: 1.1, 2: 1.2, 3: 9.0}), "met")
        self.assertEqual(summary.verdict(target, {1: 1.1, 2: 1.201, 3: 9.0}), "MISSED")

    def test_a_target_without_a_bound_has_no_verdict(self):
        self.assertEqual(summary.verdict(Target(CPU, HTTP1, "paced", "nginx"), {1: 5.0}), "no bound")


class TableTest(unittest.TestCase):
    def test_text_table_aligns_columns(self):
        self.assertEqual(report.text_table([("", "a"), ("long", "1,000")]), "          a\nlong  1,000")

    def test_markdown_has_a_rule_under_its_heading(self):
        self.assertEqual(report.markdown_table([("x", "y"), ("1", "2")]), "| x | y |\n| --- | ---: |\n| 1 | 2 |")

    def test_target_rows_end_with_a_verdict(self):
        rows = {row[0]: row[1:] for row in report.target_rows(figures())}
        self.assertEqual(
            rows["curtail to haproxy: CPU per request, HTTP/1.1, paced"], ("1.20", "1.10-1.25", "-", "no bound")
        )
        self.assertEqual(rows["curtail to envoy: peak memory"][-1], "not measured")

    def test_a_run_without_received_spans_has_a_caveat(self):
        run = figures()
        self.assertIn("no span of curtail", " ".join(report.caveats(run)))
        for visit in run.visits:
            visit["span_bytes_per_request"] = 500
        self.assertEqual(report.caveats(run), [])


if __name__ == "__main__":
    unittest.main()
