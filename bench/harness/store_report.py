"""Formats the figures of the trace store: tables for the terminal, and the result page."""

import re

from harness import queries
from harness.report import machine_table, markdown_table, text_table

MIB = 1024 * 1024
# The server limits the batches in transit, and the number of full memtables that wait for a flush.
IN_TRANSIT_MIB = 256
WAITING_MEMTABLES_MAX = 4
KINDS = {"all": "all", "outside": "without a compaction", "during": "during a compaction"}


def ingest_rows(measured, plan):
    """One column per protocol: processor time, throughput, bytes and memory."""
    columns = measured["ingest"]
    memory_max_mib = plan.memory_mib * (1 + WAITING_MEMTABLES_MAX) + IN_TRANSIT_MIB
    lines = {
        "spans": lambda c: f"{c['spans']:,}",
        "read back": lambda c: f"{c['rows']:,}",
        "server's CPU, us/span": lambda c: f"{c['cpu_us_per_span']:.2f}",
        "spans/s per core": lambda c: f"{c['spans_per_second_per_core']:,.0f}",
        "acknowledged, spans/s": lambda c: f"{c['spans_per_second']:,.0f}",
        "flush and compaction after the last span, s": lambda c: f"{c['rest_s']:.1f}",
        "compactions": lambda c: f"{c['compactions']} in {c['compaction_s']:.1f} s",
        "bytes/span at rest": lambda c: f"{c['bytes_per_span']:.1f} in {c['files']} files",
        f"peak memory, MiB (at most {memory_max_mib})": lambda c: f"{c['peak_memory_bytes'] / MIB:.0f}",
    }
    rows = [("", *columns)]
    rows += [(name, *(cell(column) for column in columns.values())) for name, cell in lines.items()]
    return rows


def paced_rows(measured):
    """The waits for acknowledgements, in milliseconds."""
    rows = [("wait for acknowledgement, ms", "p50", "p99", "p99.9", "batches")]
    for kind, name in KINDS.items():
        waits = measured["paced"][kind]
        rows.append((name, *(f"{waits[share]:.1f}" for share in ("p50", "p99", "p999")), f"{waits['count']:,}"))
    return rows


def query_rows(measured):
    """The durations of each query in ms, and the ratio of Curtail's median to ClickHouse's."""
    durations = measured["queries"]
    rows = [("query, ms", *(f"{engine} {share}" for engine in durations for share in ("p50", "p99")), "ratio of p50")]
    for query in queries.QUERIES:
        row = [query.name]
        for by_query in durations.values():
            duration = by_query.get(query.name)
            row += [f"{duration['p50']:.2f}", f"{duration['p99']:.2f}"] if duration else ["-", "-"]
        clickhouse_ms = durations["clickhouse"][query.name]["p50"]
        row.append(f"{curtail_duration(durations, query)['p50'] / clickhouse_ms:.3f}")
        rows.append(tuple(row))
    return rows


def curtail_duration(durations, query):
    """Curtail's duration of a query: over HTTP if measured, else in the library."""
    return durations["curtail, HTTP"].get(query.name) or durations["curtail, library"][query.name]


def decode_ns(output):
    """The median time to decode a span in ns, from the output of `cargo bench -p curtail-otlp`."""
    return float(re.search(r"^ *decode +([\d.]+)", output, re.MULTILINE).group(1))


def target_rows(measured):
    """The targets for ten million spans, and whether each is met. Of two protocols, the worse counts."""
    columns = measured["ingest"].values()
    durations = measured["queries"]
    figures = [
        ("spans/s per core, at least", min(c["spans_per_second_per_core"] for c in columns), 300_000, "{:,.0f}"),
        ("bytes/span at rest, at most", max(c["bytes_per_span"] for c in columns), 45, "{:.1f}"),
        ("decoding, ns/span, at most", decode_ns(measured["otlp"]), 250, "{:.0f}"),
    ]
    for query in queries.QUERIES:
        duration = curtail_duration(durations, query)
        bounds = (("p50", query.p50_max_ms), ("p99", query.p99_max_ms))
        figures += [(f"{query.name}, {share}, ms, at most", duration[share], b, "{:.2f}") for share, b in bounds if b]
    rows = [("target", "bound", "measured", "verdict")]
    for name, value, bound, form in figures:
        is_met = value >= bound if name.endswith("at least") else value <= bound
        rows.append((name, f"{bound:,}", form.format(value), "met" if is_met else "MISSED"))
    return rows


def titles(measured, plan):
    """The title of each table."""
    paced = measured["paced"]
    share = paced["compaction_s"] * paced["rate"] / (plan.paced_distinct * plan.paced_repeats)
    return {
        "ingest": f"Ingestion at full speed: {plan.senders} senders, memtables of {plan.memory_mib} MiB",
        "paced": (
            f"Ingestion at {paced['rate']:,.0f} spans/s over HTTP, memtables of {plan.paced_memory_mib} MiB: "
            f"{paced['compactions']} compactions, {100 * share:.0f} % of the time; waits count from the planned time"
        ),
        "queries": (
            f"Queries over {plan.spans:,} spans (library: {plan.library_millions} million in memory, one core; "
            f"ClickHouse {measured['queries']['clickhouse']['version']}: in process, all cores)"
        ),
    }


def tables(measured, plan):
    """The title and rows of every table."""
    title = titles(measured, plan)
    return [
        (title["ingest"], ingest_rows(measured, plan)),
        (title["paced"], paced_rows(measured)),
        (title["queries"], query_rows(measured)),
        ("Targets, for ten million spans", target_rows(measured)),
    ]


def terminal(measured, plan):
    """The tables for the terminal."""
    return "\n\n".join(f"{title}\n{text_table(rows)}" for title, rows in tables(measured, plan))


def page(measured, plan, date, machine_description):
    """The Markdown page of a run: machine, commands, tables, and the output of the library's benchmarks."""
    parts = [f"# Store, {date}", "", "Written by `bench/run --only store`; see docs/concepts/benchmarks.md.", ""]
    parts += [machine_table(machine_description), ""]
    parts += [f"Plan: {plan}", "", "Commands:", "", "```", *measured["commands"], "```", ""]
    for title, rows in tables(measured, plan):
        parts += [f"## {title}", "", markdown_table(rows), ""]
    for crate in ("store", "otlp"):
        parts += [f"## cargo bench -p curtail-{crate}", "", "```", measured[crate].rstrip("\n"), "```", ""]
    return "\n".join(parts)
