"""From blocks to figures: medians and ranges over rounds, ratios inside a round, and whether targets are met.

A ratio divides two proxies' figures
of the same round; rounds are never mixed, so what slows a whole round cancels. A target is met when the median of
its ratios is within the bound; the range stands beside it, and with a handful of rounds it is no error bar.
"""

from dataclasses import dataclass
from statistics import median
from typing import Optional

from harness.load import HTTP1, HTTP2

OURS = "curtail"


@dataclass(frozen=True)
class Spread:
    """A figure over rounds."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Target:
    """What must hold: our figure is at most `bound` times that of `peer`. Without a bound: worth knowing."""

    metric: str
    protocol: str
    kind: str
    peer: str
    bound: Optional[float] = None


TARGETS = (
    Target("cpu_ns_per_request", HTTP1, "paced", "envoy", 1.0),
    Target("cpu_ns_per_request", HTTP2, "paced", "envoy", 1.0),
    Target("cpu_ns_per_request", HTTP1, "paced", "haproxy", 1.3),
    Target("cpu_ns_per_request", HTTP1, "flat_out", "envoy", 1.0),
    Target("cpu_ns_per_request", HTTP2, "flat_out", "envoy", 1.0),
    Target("cpu_ns_per_request", HTTP1, "flat_out", "haproxy", 1.3),
    Target("peak_memory_bytes", "", "", "envoy", 0.3),
    Target("cpu_ns_per_request", HTTP1, "paced", "envoy-spans"),
    Target("cpu_ns_per_request", HTTP2, "paced", "envoy-spans"),
    Target("cpu_ns_per_request", HTTP2, "paced", "haproxy"),
    Target("cpu_ns_per_request", HTTP1, "paced", "nginx"),
    Target("cpu_ns_per_request", HTTP2, "paced", "nginx"),
)


def spread(values):
    """The median, the least and the most of some rounds."""
    return Spread(median(values), min(values), max(values))


class Figures:
    """The measured blocks and visits, asked by target, protocol and kind."""

    def __init__(self, measured):
        self.blocks = measured["blocks"]
        self.visits = measured["visits"]
        self.added_latency = measured.get("added_latency", {})

    def targets(self):
        """The names of what was measured, in the order of the first round."""
        return list(dict.fromkeys(block["target"] for block in self.blocks))

    def by_round(self, target, metric, protocol="", kind=""):
        """One figure of one target for each round. Without a protocol it is a figure of the whole visit."""
        if not protocol:
            return {visit["round"]: visit[metric] for visit in self.visits if visit["target"] == target}
        wanted = (target, protocol, kind)
        return {
            block["round"]: block[metric]
            for block in self.blocks
            if (block["target"], block["protocol"], block["kind"]) == wanted
        }

    def spread(self, target, metric, protocol="", kind=""):
        """One figure of one target over all rounds."""
        return spread(self.by_round(target, metric, protocol, kind).values())

    def ratios(self, target):
        """Our figure over the peer's for every round, or nothing when one of them was not measured."""
        ours = self.by_round(OURS, target.metric, target.protocol, target.kind)
        theirs = self.by_round(target.peer, target.metric, target.protocol, target.kind)
        return {number: ours[number] / theirs[number] for number in ours if number in theirs}


def verdict(target, ratios):
    """One word on a target: its median ratio within the bound is met, above is missed."""
    if not ratios:
        return "not measured"
    if target.bound is None:
        return "no bound"
    return "met" if median(ratios.values()) <= target.bound else "MISSED"
