"""Tests the pacing of the generators and the parsers of their output."""

import unittest

from harness import load

WRK = """\
Running 2s test @ http://127.0.0.1:21011/http1
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   712.10us  140.22us   4.31ms   91.03%
    Req/Sec    90.11k     2.02k   93.40k    75.00%
  179446 requests in 2.00s, 53.90MB read
Requests/sec:  89682.41
Transfer/sec:     26.94MB
"""

H2LOAD = """\
finished in 2.00s, 107150.00 req/s, 11.65MB/s
requests: 214300 total, 214428 started, 214300 done, {succeeded} succeeded, {failed} failed, 0 errored, 0 timeout
status codes: 214301 2xx, 0 3xx, 0 4xx, 0 5xx
"""


class PacingTest(unittest.TestCase):
    def test_a_connection_sends_at_most_once_per_tick_of_10_ms(self):
        for rate in (1, 99, 100, 101, 5000, 12_345):
            connections = load.connection_count(rate)
            self.assertLess(rate / connections, 100, f"{rate} over {connections} connections")
            self.assertGreaterEqual(rate / connections, 100 * rate / (rate + 100) * 0.999, "not far below 100")

    def test_the_rates_of_the_connections_add_up(self):
        command = load.paced_command(load.HTTP1, 80, 5000, 100, "log")
        rate = float(command[command.index("--rps") + 1])
        self.assertAlmostEqual(rate * command[command.index("-c") + 1], 5000, delta=0.01)

    def test_the_protocol_is_in_the_flag_and_in_the_path(self):
        http1, http2 = (load.paced_command(protocol, 80, 10, 1, "log") for protocol in load.PROTOCOLS)
        self.assertIn("--h1", http1)
        self.assertNotIn("--h1", http2)
        self.assertEqual((http1[-1], http2[-1]), ("http://127.0.0.1:80/http1", "http://127.0.0.1:80/http2"))


class RequestLogTest(unittest.TestCase):
    def test_latencies_are_sorted_and_the_rate_counts_starts(self):
        # Three requests, 250 us apart, logged in the order of their ends.
        paced = load.parse_log("1000250\t200\t30\n1000000\t200\t900\n1000500\t200\t40\n", 3)
        self.assertEqual(paced.latencies_us, [30, 40, 900])
        self.assertAlmostEqual(paced.rate, 4000)

    def test_a_response_other_than_200_is_an_error_that_names_the_status(self):
        with self.assertRaisesRegex(load.LoadError, "503"):
            load.parse_log("1\t200\t30\n2\t503\t10\n", 2)

    def test_a_missing_response_is_an_error(self):
        with self.assertRaisesRegex(load.LoadError, "2 of 3"):
            load.parse_log("1\t200\t30\n2\t200\t10\n", 3)


class SummaryParserTest(unittest.TestCase):
    def test_wrk(self):
        self.assertEqual(load.parse_wrk(WRK), 179_446)

    def test_wrk_with_errors(self):
        for error in ("  Non-2xx or 3xx responses: 12\n", "  Socket errors: connect 0, read 3, write 0, timeout 0\n"):
            with self.assertRaisesRegex(load.LoadError, error.strip()[:8]):
                load.parse_wrk(WRK + error)

    def test_h2load(self):
        self.assertEqual(load.parse_h2load(H2LOAD.format(succeeded=214_300, failed=0)), 214_300)

    def test_h2load_with_failures_or_without_a_success(self):
        for succeeded, failed in ((214_299, 1), (0, 0)):
            with self.assertRaises(load.LoadError):
                load.parse_h2load(H2LOAD.format(succeeded=succeeded, failed=failed))

    def test_the_error_shows_output_without_a_summary(self):
        with self.assertRaisesRegex(load.LoadError, "unable to connect"):
            load.parse_wrk("unable to connect to 127.0.0.1:1")


class RunGeneratorTest(unittest.TestCase):
    def test_the_error_of_a_failed_generator_shows_its_output(self):
        with self.assertRaisesRegex(load.LoadError, "exit code 3:\noh no"):
            load.run_generator(["sh", "-c", "echo oh no; exit 3"], 0, 1)


if __name__ == "__main__":
    unittest.main()
