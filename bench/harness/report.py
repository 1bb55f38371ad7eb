"""Figures as text: a table for the terminal (at most 100 columns) and a page of Markdown with every round."""

from dataclasses import asdict

from harness import load, processes
from harness.load import HTTP1, HTTP2
from harness.passthrough import DIRECT, LOAD_CORE, PROXY_CORE
from harness.summary import OURS, TARGETS, spread, verdict

TITLES = {HTTP1: "HTTP/1.1", HTTP2: "HTTP/2"}
MIB = 1024 * 1024
ADDED = "HAProxy is A, Curtail is B"
HEADINGS = ("", "CPU us", "range", "waited", "max rps", "CPU us", "range", "busy")


def text_table(rows):
    """Rows of strings as aligned columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(rows):
    """The same rows as a Markdown table, the first row its heading."""
    rule = ["---"] + ["---:"] * (len(rows[0]) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def us(nanoseconds):
    """Nanoseconds as microseconds with one digit."""
    return f"{nanoseconds / 1000:.1f}"


def us_range(figure):
    """The least and most of a figure in nanoseconds, as microseconds."""
    return f"{us(figure.least)}-{us(figure.most)}"


def protocol_rows(figures, protocol):
    """One row per target: CPU time and wait of a paced request, and the same at maximum throughput."""
    rows = [HEADINGS]
    for target in figures.targets():
        cpu = figures.spread(target, "cpu_ns_per_request", protocol, "paced")
        waited = figures.spread(target, "waited_ns_per_request", protocol, "paced")
        row = [target, us(cpu.median), us_range(cpu), us(waited.median)]
        if target == DIRECT:
            row += ["", "", "", ""]
        else:
            flat = figures.spread(target, "cpu_ns_per_request", protocol, "flat_out")
            rate = figures.spread(target, "requests_per_second", protocol, "flat_out")
            busy = figures.spread(target, "busy_ratio", protocol, "flat_out")
            row += [f"{rate.median:,.0f}", us(flat.median), us_range(flat), f"{busy.median:.2f}"]
        rows.append(row)
    return rows


def memory_rows(figures):
    """One row per proxy: peak memory, and the bytes of spans it exported for each request."""
    rows = [("", "peak MiB", "range", "span bytes/request")]
    for target in figures.targets():
        if target == DIRECT:
            continue
        peak = figures.spread(target, "peak_memory_bytes")
        spans = figures.spread(target, "span_bytes_per_request")
        extent = f"{peak.least / MIB:.1f}-{peak.most / MIB:.1f}"
        rows.append((target, f"{peak.median / MIB:.1f}", extent, f"{spans.median:.0f}"))
    return rows


def target_rows(figures):
    """One row per target: the ratio reached, its range over rounds, the bound, and whether it is met."""
    rows = [("curtail against", "median", "range", "bound", "")]
    for target in TARGETS:
        what = "peak memory"
        if target.protocol:
            what = f"CPU per request, {TITLES[target.protocol]}, {target.kind.replace('_', ' ')}"
        ratios = figures.ratios(target)
        reached = ("-", "-")
        if ratios:
            ratio = spread(ratios.values())
            reached = (f"{ratio.median:.2f}", f"{ratio.least:.2f}-{ratio.most:.2f}")
        bound = "-" if target.bound is None else f"<= {target.bound}"
        rows.append((f"{target.peer}: {what}", *reached, bound, verdict(target, ratios)))
    return rows


def protocol_title(protocol, plan):
    """The line above a protocol's table."""
    return (
        f"{TITLES[protocol]}: left at {plan.rate:,} requests/s (all on core {LOAD_CORE}), "
        f"right flat out (proxy alone on core {PROXY_CORE})"
    )


def terminal(figures, plan):
    """Everything worth reading at once."""
    parts = []
    for protocol in load.PROTOCOLS:
        parts += [protocol_title(protocol, plan), text_table(protocol_rows(figures, protocol)), ""]
    parts += [text_table(memory_rows(figures)), "", text_table(target_rows(figures)), *caveats(figures)]
    for protocol, compared in figures.added_latency.items():
        parts += ["", f"Latency, {TITLES[protocol]}: {ADDED}", compared["printed"]]
    return "\n".join(parts)


def caveats(figures):
    """What makes this run less than a comparison; a target met under a caveat is not met."""
    ours = figures.by_round(OURS, "span_bytes_per_request").values()
    if ours and min(ours) == 0:
        return ["", "CAVEAT: in some round no span of curtail reached the sink: its figures lack their export."]
    return []


LEGEND = f"""\
CPU: user and system time per request of the proxy, all its threads and processes; of the server for
`direct`. waited: time per request in which the proxy was ready but another process had the core; it
shares the core with generator and replicas, so it is never zero: compare it between rows. busy: share of
the time in which the proxy ran or was ready to, flat out; well below 1, the limit was the generator
or the replicas, and max rps is theirs. Figures are medians over rounds, ranges least to most. Nice
value of everything measured: {processes.priority()}."""


def page(measured, figures, plan, peers):
    """The whole run as Markdown: machine, settings, tables, and every round."""
    machine = measured["machine"]
    parts = [f"# Pass-through, {measured['date']}", "", "Written by `bench/run`; see docs/concepts/benchmarks.md.", ""]
    parts += [markdown_table([("machine", "")] + [(name, str(value)) for name, value in machine.items()]), ""]
    parts += [markdown_table([("peer", "version", "settings")] + [(p.name, p.version, p.note) for p in peers]), ""]
    parts += [f"Plan: {asdict(plan)}", "", "Commands:", "", "```", *measured["commands"], "```", ""]
    for protocol in load.PROTOCOLS:
        parts += [f"## {protocol_title(protocol, plan)}", "", markdown_table(protocol_rows(figures, protocol)), ""]
    parts += [LEGEND, "", "## Memory and spans", "", markdown_table(memory_rows(figures)), ""]
    parts += ["## Targets", "", markdown_table(target_rows(figures)), *caveats(figures), ""]
    for protocol, compared in figures.added_latency.items():
        parts += [f"## Latency, {TITLES[protocol]}: {ADDED}", "", "```", compared["printed"], "```", ""]
    parts += ["## Every round", "", markdown_table(round_rows(figures)), ""]
    parts += ["## Ratios, every round", "", markdown_table(ratio_rows(figures)), ""]
    return "\n".join(parts)


def round_rows(figures):
    """Every block as a row."""
    rows = [("round, target", "protocol", "kind", "CPU us", "user", "system", "waited", "rps")]
    for block in figures.blocks:
        costs = [us(block[f"{part}_ns_per_request"]) for part in ("cpu", "user", "system", "waited")]
        what = (f"{block['round']} {block['target']}", TITLES[block["protocol"]], block["kind"].replace("_", " "))
        rows.append((*what, *costs, f"{block['requests_per_second']:,.0f}"))
    return rows


def ratio_rows(figures):
    """Every target's ratio in every round."""
    numbers = sorted({block["round"] for block in figures.blocks})
    rows = [("curtail against", *map(str, numbers))]
    for target, row in zip(TARGETS, target_rows(figures)[1:]):
        ratios = figures.ratios(target)
        rows.append((row[0], *(f"{ratios[number]:.2f}" if number in ratios else "-" for number in numbers)))
    return rows
