"""Formats figures: tables for the terminal (at most 100 columns), and a Markdown page with every round."""

from dataclasses import asdict

from harness import load, processes
from harness.load import HTTP1, HTTP2
from harness.passthrough import DIRECT, LOAD_CORE, PROXY_CORE
from harness.summary import CURTAIL, TARGETS, spread, verdict

TITLES = {HTTP1: "HTTP/1.1", HTTP2: "HTTP/2"}
MIB = 1024 * 1024
ADDED_LATENCY_ARMS = "A is HAProxy, B is Curtail"
HEADINGS = ("", "CPU us", "range", "waited", "max rps", "CPU us", "range", "busy")


def text_table(rows):
    """Formats rows of strings as columns: the first is aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(rows):
    """Formats rows of strings as a Markdown table, whose heading is the first row."""
    rule = ["---"] + ["---:"] * (len(rows[0]) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def machine_table(description):
    """Formats the description of the machine as a Markdown table."""
    return markdown_table([("machine", ""), *((name, str(value)) for name, value in description.items())])


def format_us(nanoseconds):
    """Formats nanoseconds as microseconds with one decimal."""
    return f"{nanoseconds / 1000:.1f}"


def format_us_range(figure):
    """Formats the range of a figure in nanoseconds as microseconds."""
    return f"{format_us(figure.minimum)}-{format_us(figure.maximum)}"


def protocol_rows(figures, protocol):
    """One row per target: CPU time and wait of a paced request, then rate and CPU time of the flat-out block."""
    rows = [HEADINGS]
    for target in figures.targets():
        cpu = figures.spread(target, "cpu_ns_per_request", protocol, "paced")
        waited = figures.spread(target, "waited_ns_per_request", protocol, "paced")
        row = [target, format_us(cpu.median), format_us_range(cpu), format_us(waited.median)]
        if target == DIRECT:
            row += ["", "", "", ""]
        else:
            flat_out = figures.spread(target, "cpu_ns_per_request", protocol, "flat_out")
            rate = figures.spread(target, "requests_per_second", protocol, "flat_out")
            busy = figures.spread(target, "busy_ratio", protocol, "flat_out")
            row += [f"{rate.median:,.0f}", format_us(flat_out.median), format_us_range(flat_out), f"{busy.median:.2f}"]
        rows.append(row)
    return rows


def memory_rows(figures):
    """One row per proxy: peak memory, and the bytes of exported spans per request."""
    rows = [("", "peak MiB", "range", "span bytes/request")]
    for target in figures.targets():
        if target == DIRECT:
            continue
        peak = figures.spread(target, "peak_memory_bytes")
        spans = figures.spread(target, "span_bytes_per_request")
        peak_range = f"{peak.minimum / MIB:.1f}-{peak.maximum / MIB:.1f}"
        rows.append((target, f"{peak.median / MIB:.1f}", peak_range, f"{spans.median:.0f}"))
    return rows


def target_rows(figures):
    """One row per target: the median ratio, its range over rounds, the bound, and the verdict."""
    rows = [("relative to", "median", "range", "bound", "verdict")]
    for target in TARGETS:
        metric = "peak memory"
        if target.protocol:
            metric = f"CPU per request, {TITLES[target.protocol]}, {target.kind.replace('_', ' ')}"
        ratios = figures.ratios(target)
        cells = ("-", "-")
        if ratios:
            ratio = spread(ratios.values())
            cells = (f"{ratio.median:.2f}", f"{ratio.minimum:.2f}-{ratio.maximum:.2f}")
        bound = "-" if target.bound is None else f"<= {target.bound}"
        rows.append((f"{target.curtail} to {target.peer}: {metric}", *cells, bound, verdict(target, ratios)))
    return rows


def protocol_title(protocol, plan):
    """The title of the table of a protocol."""
    return (
        f"{TITLES[protocol]}: left: paced at {plan.rate:,} requests/s (all on core {LOAD_CORE}); "
        f"right: flat out (proxy alone on core {PROXY_CORE})"
    )


def terminal(figures, plan):
    """The tables for the terminal."""
    parts = []
    for protocol in load.PROTOCOLS:
        parts += [protocol_title(protocol, plan), text_table(protocol_rows(figures, protocol)), ""]
    parts += [text_table(memory_rows(figures)), "", text_table(target_rows(figures)), *caveats(figures)]
    for title, result in figures.added_latency.items():
        parts += ["", f"Added latency, {title}: {ADDED_LATENCY_ARMS}", result["printed"]]
    return "\n".join(parts)


def caveats(figures):
    """Reasons why the verdicts of this run are not valid."""
    span_bytes = figures.by_round(CURTAIL, "span_bytes_per_request").values()
    if span_bytes and min(span_bytes) == 0:
        return ["", "CAVEAT: in some round the sink received no span of curtail: figures lack the cost of the export."]
    return []


LEGEND = f"""\
CPU: user and system time per request, of all threads and processes of the proxy (`direct`: of the
replicas). waited: time per request in which the proxy was ready but another process had the core.
The proxy shares the core with generator and replicas, so `waited` is never zero; compare rows. busy:
share of the flat-out block in which the proxy ran or was ready. If it is well below 1, the generator
or the replicas limit max rps. Figures are medians over rounds; ranges are minimum-maximum. Nice value
of all measured processes: {processes.nice_value()}."""


def page(measured, figures, plan, peers):
    """The Markdown page of a run: machine, settings, tables, and every round."""
    parts = [f"# Pass-through, {measured['date']}", "", "Written by `bench/run`; see docs/concepts/benchmarks.md.", ""]
    parts += [machine_table(measured["machine"]), ""]
    parts += [markdown_table([("peer", "version", "settings")] + [(p.name, p.version, p.note) for p in peers]), ""]
    parts += [f"Plan: {asdict(plan)}", "", "Commands:", "", "```", *measured["commands"], "```", ""]
    for protocol in load.PROTOCOLS:
        parts += [f"## {protocol_title(protocol, plan)}", "", markdown_table(protocol_rows(figures, protocol)), ""]
    parts += [LEGEND, "", "## Memory and spans", "", markdown_table(memory_rows(figures)), ""]
    parts += ["## Targets", "", markdown_table(target_rows(figures)), *caveats(figures), ""]
    for title, result in figures.added_latency.items():
        heading = f"## Added latency, {title}: {ADDED_LATENCY_ARMS}"
        parts += [heading, "", "```", result["printed"], "```", ""]
    parts += ["## Every round", "", markdown_table(round_rows(figures)), ""]
    parts += ["## Ratios, every round", "", markdown_table(ratio_rows(figures)), ""]
    return "\n".join(parts)


def round_rows(figures):
    """One row per block."""
    rows = [("round, target", "protocol", "kind", "CPU us", "user", "system", "waited", "rps")]
    for block in figures.blocks:
        costs = [format_us(block[f"{part}_ns_per_request"]) for part in ("cpu", "user", "system", "waited")]
        labels = (f"{block['round']} {block['target']}", TITLES[block["protocol"]], block["kind"].replace("_", " "))
        rows.append((*labels, *costs, f"{block['requests_per_second']:,.0f}"))
    return rows


def ratio_rows(figures):
    """One row per target: its ratio in each round."""
    numbers = sorted({block["round"] for block in figures.blocks})
    rows = [("relative to", *map(str, numbers))]
    for target, row in zip(TARGETS, target_rows(figures)[1:]):
        ratios = figures.ratios(target)
        rows.append((row[0], *(f"{ratios[number]:.2f}" if number in ratios else "-" for number in numbers)))
    return rows
