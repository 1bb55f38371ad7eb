"""Tests `curtail server` with its tables in an object store on loopback: performance, failed starts, kills, outages.

All parts use the same tables, in this order:

- **failed starts**: the store does not respond, the bucket does not exist, the key is wrong;
- **load**: senders for a while; latency of acknowledgements and number of requests to the store; then queries: traces
  by ID, searches, percentiles and values;
- **kills**: the server is killed (SIGKILL) at random times, every second time during a merge of runs;
- **outages**: the store is frozen for a while, then stopped for a while (not moto); the senders continue;
- **check**, after kills and after outages: every acknowledged batch must be stored exactly once, every other batch once
  or not at all, according to Curtail's API and to an independent reader of Delta tables.
"""

import collections
import dataclasses
import http.client
import random
import subprocess
import time
from dataclasses import dataclass
from functools import partial

from harness import object_queries
from harness.exactly_once import CheckError, DeliveryReport, check_batches, check_table
from harness.kills import kill_repeatedly
from harness.live_server import START_LIMIT_S, Server, ServerConfig, count_spans
from harness.object_requests import LOG_TARGET, classify_request, count_log_events
from harness.object_servers import BUCKET, PYTHON, tables_url
from harness.otlp import BATCH_ROWS
from harness.sending import Senders, quantile
from harness.table_counts import run_delta_reader

# The error of a failed start ends with the message of the store, which is long.
SHOWN_MAX = 320


@dataclass(frozen=True)
class Plan:
    load_s: float = 30.0
    kills: int = 12
    frozen_s: float = 20.0
    stopped_s: float = 20.0
    queries: int = 300


QUICK = Plan(load_s=5.0, kills=3, frozen_s=5.0, stopped_s=5.0, queries=50)


def measure(plan, program, store, scratch, seed):
    """Runs all parts on one store."""
    report, rng = DeliveryReport(store.name, seed), random.Random(seed)
    logs_requests = {"CURTAIL_LOG": "info,curtail_objects=debug"}
    config = ServerConfig(program, scratch, tables_url(store, f"seed-{seed}"), store.environment | logs_requests)
    store.start()
    try:
        run_delta_reader(PYTHON, store.environment, "make", BUCKET)
        check_failed_starts(report, store, config)
        measure_load(plan, report, rng, config)
        kill_server(plan, report, rng, config)
        check_delivery(plan, report, rng, config)
        run_outages(plan, report, rng, (config, store))
        check_delivery(plan, report, rng, config)
    finally:
        store.kill_if_alive()
    return report


def measure_load(plan, report, rng, config):
    server = Server(config).wait_until_ready()
    senders = Senders(report, server.otlp, rng)
    time.sleep(plan.load_s)
    senders.stop()
    latencies_ms = senders.latencies_ms()
    spans = len(latencies_ms) * BATCH_ROWS
    p50, p99 = quantile(latencies_ms, 0.5), quantile(latencies_ms, 0.99)
    report.add_line(
        f"{len(senders.threads)} senders, {plan.load_s:.0f} s: {len(latencies_ms)} batches of {BATCH_ROWS} spans "
        f"acknowledged ({spans / plan.load_s:.0f} spans/s): p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    )
    server.stop()
    runs, merges, requests = count_log_events(server.log_events())
    report.add_line(f"{runs} runs flushed, {merges} merges, requests to the store:")
    for kind, count in sorted(requests.items()):
        report.add_line(f"  {kind}: {count}")
    object_queries.measure_queries(plan, report, rng, config)


def kill_server(plan, report, rng, config):
    count = kill_repeatedly(plan.kills, report, rng, config, lambda server: partial(is_merging, server))
    batches = len(report.acknowledged_ids)
    report.add_line(f"killed {plan.kills} times, {count} times during a merge; {batches} acknowledged batches so far")


def is_merging(server):
    """Whether a server has read runs or sent parts of a merged run, and has not logged the end of the merge. Without
    queries, a server that is ready reads runs only to merge them."""
    merging = False
    for event in server.log_events(server.log_size_when_ready):
        fields = event.get("fields", {})
        if fields.get("message") == "compacted":
            merging = False
        elif event.get("target") == LOG_TARGET:
            merging |= classify_request(fields["method"], fields["path"]) in ("GET run", "PUT parts of a merged run")
    return merging


def run_outages(plan, report, rng, context):
    """Freezes the store for a while; then stops it for a while, unless it keeps its data only in memory."""
    config, store = context
    server = Server(config).wait_until_ready()
    senders = Senders(report, server.otlp, rng)
    time.sleep(2.0)
    run_outage(report, senders, plan.frozen_s, "frozen", (store.freeze, store.thaw))
    if store.name != "moto":
        time.sleep(5.0)
        # Azurite keeps the latest writes in memory; a kill loses them.
        stop_store = store.terminate if store.name == "azurite" else store.kill
        run_outage(report, senders, plan.stopped_s, "stopped", (stop_store, store.start))
    time.sleep(5.0)
    store.freeze()
    time.sleep(3.0)
    senders.stop()
    message_counts = collections.Counter(fields["message"] for fields in server.warnings())
    report.add_line(f"  warnings during the outages: {dict(message_counts)}; rejections: {dict(senders.rejections())}")
    begin = time.monotonic()
    code = server.stop()
    report.add_line(f"server stopped with a frozen store: exits with {code} after {time.monotonic() - begin:.0f} s")
    store.thaw()


def run_outage(report, senders, seconds, state, actions):
    begin_outage, end_outage = actions
    since = time.monotonic()
    begin_outage()
    time.sleep(seconds)
    end_outage()
    until = time.monotonic()
    time.sleep(3.0)
    latencies_ms = senders.latencies_ms(since, until)
    report.add_line(
        f"store {state} for {until - since:.0f} s: {len(latencies_ms)} batches sent in this time were acknowledged, "
        f"p50 {quantile(latencies_ms, 0.5):.1f} ms, maximum {max(latencies_ms, default=0.0):.0f} ms"
    )


def check_failed_starts(report, store, config):
    """Checks that a server that cannot use its tables exits with an error that names them."""
    wrong_key = {"AWS_SECRET_ACCESS_KEY": "wrong", "AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="}
    closed_port = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AZURITE_BLOB_STORAGE_URL": "http://127.0.0.1:9"}
    no_bucket = dataclasses.replace(config, tables_url=config.tables_url.replace(BUCKET, "nowhere"))
    cases = [("a bucket that does not exist", no_bucket, {}), ("a port without a listener", config, closed_port)]
    if store.name != "moto":
        cases.append(("a wrong key", config, wrong_key))
    for case, case_config, environment in cases:
        check_failed_start(report, case, Server(case_config, environment), case_config.tables_url)
    store.freeze()
    try:
        check_failed_start(report, "a store that does not respond", Server(config), config.tables_url)
    finally:
        store.thaw()


def check_failed_start(report, case, server, url):
    begin = time.monotonic()
    try:
        code = server.process.wait(START_LIMIT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        raise CheckError(f"{case}: curtail server does not exit") from None
    lines = [line for line in server.read_log().splitlines() if not line.startswith("{")]
    if code not in (2, 3) or not any(url in line for line in lines):
        raise CheckError(f"{case}: curtail server exited with {code} and printed {lines}")
    message = " ".join(lines)
    shown = message if len(message) <= SHOWN_MAX else f"{message[:SHOWN_MAX]} …"
    report.add_line(f"start with {case}: exits with {code} after {time.monotonic() - begin:.1f} s: {shown}")


def check_delivery(plan, report, rng, config):
    """Checks all batches with deltalake; and with the API the unacknowledged batches and a sample of the others."""
    server = Server(config).wait_until_ready()
    connection = http.client.HTTPConnection(server.api, timeout=60)
    sample = set(rng.sample(sorted(report.acknowledged_ids), min(plan.queries, len(report.acknowledged_ids))))
    unacknowledged = set(report.sent_batches) - report.acknowledged_ids
    span_counts = {trace_id: count_spans(trace_id, connection) for trace_id in sorted(sample | unacknowledged)}
    server.stop()
    check_batches(report, sample, span_counts, "the API")
    result = run_delta_reader(PYTHON, config.environment, "count", f"{config.tables_url}/spans", "trace_id")
    check_table(report, "spans", result["rows"], "deltalake")
    acknowledged, sent = len(report.acknowledged_ids), len(report.sent_batches)
    report.add_line(
        f"{acknowledged} acknowledged batches of {sent} are stored exactly once, read by deltalake; "
        f"by the API also {len(sample)} of them, and {len(unacknowledged)} unacknowledged batches at most once; "
        f"commits {result['operations']}, files {result['files']}"
    )
