"""The figures of the trace store as text: tables for the terminal, and the page that is kept."""

import re

from harness import questions
from harness.report import markdown_table, text_table

MIB = 1024 * 1024
# What may be received at once, and full memtables that may wait beside the one that is filled.
RECEIVING_MIB = 256
WAITING = 4
KINDS = {"all": "all", "apart": "while nothing was merged", "during": "while runs were merged"}


def ingest_rows(measured, plan):
    """One column a protocol: what a span costs, and what it takes."""
    columns = measured["ingest"]
    bound = plan.memory_mib * (1 + WAITING) + RECEIVING_MIB
    lines = {
        "spans": lambda c: f"{c['spans']:,}",
        "read back": lambda c: f"{c['rows']:,}",
        "server's CPU, us a span": lambda c: f"{c['cpu_us_per_span']:.2f}",
        "spans/s a core": lambda c: f"{c['spans_per_second_per_core']:,.0f}",
        "acknowledged, spans/s": lambda c: f"{c['spans_per_second']:,.0f}",
        "all written and merged after, s": lambda c: f"{c['rest_s']:.1f}",
        "merges": lambda c: f"{c['merges']} in {c['merging_s']:.1f} s",
        "bytes a span at rest": lambda c: f"{c['bytes_per_span']:.1f} in {c['files']} files",
        f"peak memory, MiB (allowed: {bound})": lambda c: f"{c['peak_memory_bytes'] / MIB:.0f}",
    }
    rows = [("", *columns)]
    rows += [(name, *(cell(column) for column in columns.values())) for name, cell in lines.items()]
    return rows


def paced_rows(measured):
    """How long acknowledgements took, in milliseconds."""
    rows = [("acknowledged after, ms", "p50", "p99", "p99.9", "batches")]
    for kind, name in KINDS.items():
        waits = measured["paced"][kind]
        rows.append((name, *(f"{waits[share]:.1f}" for share in ("p50", "p99", "p999")), f"{waits['count']:,}"))
    return rows


def question_rows(measured):
    """Everybody's milliseconds, and Curtail's as a share of ClickHouse's."""
    by = measured["questions"]["by"]
    rows = [("ms", *(f"{who} {share}" for who in by for share in ("p50", "p99")), "ratio of p50")]
    for question in questions.QUESTIONS:
        row = [question.name]
        for responses in by.values():
            took = responses.get(question.name)
            row += [f"{took['p50']:.2f}", f"{took['p99']:.2f}"] if took else ["-", "-"]
        theirs = by["clickhouse"][question.name]["p50"]
        row.append(f"{ours(by, question)['p50'] / theirs:.3f}")
        rows.append(tuple(row))
    return rows


def ours(by, question):
    """What we need for a question: over HTTP where it can be asked so."""
    return by["curtail, HTTP"].get(question.name) or by["curtail, library"][question.name]


def decode_ns(printed):
    """Nanoseconds to decode a span, of what `cargo bench -p curtail-otlp` printed: the median."""
    return float(re.search(r"^ *decode +([\d.]+)", printed, re.MULTILINE).group(1))


def target_rows(measured):
    """What must hold over ten million spans, and whether it does."""
    worst = measured["ingest"].values()
    by = measured["questions"]["by"]
    figures = [
        ("spans/s a core, at least", min(c["spans_per_second_per_core"] for c in worst), 300_000, "{:,.0f}"),
        ("bytes a span at rest, at most", max(c["bytes_per_span"] for c in worst), 45, "{:.1f}"),
        ("decoding, ns a span, at most", decode_ns(measured["otlp"]), 250, "{:.0f}"),
    ]
    for question in questions.QUESTIONS:
        took = ours(by, question)
        bounds = (("p50", question.p50_max_ms), ("p99", question.p99_max_ms))
        figures += [(f"{question.name}, {share}, ms, at most", took[share], b, "{:.2f}") for share, b in bounds if b]
    rows = [("target", "bound", "reached", "")]
    for name, reached, bound, shown in figures:
        is_met = reached >= bound if name.endswith("at least") else reached <= bound
        rows.append((name, f"{bound:,}", shown.format(reached), "met" if is_met else "MISSED"))
    return rows


def titles(measured, plan):
    """A line above each table."""
    paced = measured["paced"]
    share = paced["merging_s"] * paced["rate"] / (plan.paced_different * plan.paced_times)
    return {
        "ingest": f"As fast as it acknowledges: {plan.senders} senders, memtables of {plan.memory_mib} MiB",
        "paced": (
            f"At {paced['rate']:,.0f} spans/s over HTTP, memtables of {plan.paced_memory_mib} MiB: {paced['merges']} merges, "
            f"{100 * share:.0f} % of the time; counted from when a batch was due"
        ),
        "questions": (
            f"Questions over {plan.spans:,} spans (library: {plan.library_millions} million in memory, one core; "
            f"ClickHouse {measured['questions']['by']['clickhouse']['version']}: in process, all cores)"
        ),
    }


def tables(measured, plan):
    """Title and rows of every table."""
    title = titles(measured, plan)
    return [
        (title["ingest"], ingest_rows(measured, plan)),
        (title["paced"], paced_rows(measured)),
        (title["questions"], question_rows(measured)),
        ("Targets, for ten million spans", target_rows(measured)),
    ]


def terminal(measured, plan):
    """Everything worth reading at once."""
    return "\n\n".join(f"{title}\n{text_table(rows)}" for title, rows in tables(measured, plan))


def page(measured, plan, date, machine):
    """The run as Markdown: machine, commands, tables, and what the library's benchmarks printed."""
    parts = [f"# Store, {date}", "", "Written by `bench/run --only store`; see docs/concepts/benchmarks.md.", ""]
    parts += [markdown_table([("machine", "")] + [(name, str(value)) for name, value in machine.items()]), ""]
    parts += [f"Plan: {plan}", "", "Commands:", "", "```", *measured["commands"], "```", ""]
    for title, rows in tables(measured, plan):
        parts += [f"## {title}", "", markdown_table(rows), ""]
    for crate in ("store", "otlp"):
        parts += [f"## cargo bench -p curtail-{crate}", "", "```", measured[crate].rstrip("\n"), "```", ""]
    return "\n".join(parts)
