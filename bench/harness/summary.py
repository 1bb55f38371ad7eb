"""Computes figures from blocks: medians and ranges over rounds, ratios within a round, and verdicts on targets.

A ratio divides the figures of two proxies in the same round, so a slowdown of the whole round cancels out. A target is
met if the median of its ratios is within the bound. The range of a few rounds is not an error bar.
"""

from dataclasses import dataclass
from statistics import median
from typing import Optional

from harness.load import HTTP1, HTTP2

CURTAIL = "curtail"
PLAIN = "curtail-plain"


@dataclass(frozen=True)
class Spread:
    """The distribution of a figure over rounds."""

    median: float
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Target:
    """A target: the figure of `curtail` is at most `bound` times that of `peer`. Without a bound, it has no verdict."""

    metric: str
    protocol: str
    kind: str
    peer: str
    bound: Optional[float] = None
    curtail: str = CURTAIL


TARGETS = (
    Target("cpu_ns_per_request", HTTP1, "paced", "envoy", 1.0),
    Target("cpu_ns_per_request", HTTP2, "paced", "envoy", 1.0),
    Target("cpu_ns_per_request", HTTP1, "paced", "haproxy", 1.05, PLAIN),
    Target("cpu_ns_per_request", HTTP2, "paced", "haproxy", 1.2, PLAIN),
    Target("cpu_ns_per_request", HTTP1, "flat_out", "envoy", 1.0),
    Target("cpu_ns_per_request", HTTP2, "flat_out", "envoy", 1.0),
    Target("cpu_ns_per_request", HTTP1, "flat_out", "haproxy", 1.05, PLAIN),
    Target("cpu_ns_per_request", HTTP2, "flat_out", "haproxy", 1.2, PLAIN),
    Target("peak_memory_bytes", "", "", "envoy", 0.3),
    Target("cpu_ns_per_request", HTTP1, "paced", "envoy-spans"),
    Target("cpu_ns_per_request", HTTP2, "paced", "envoy-spans"),
    Target("cpu_ns_per_request", HTTP1, "paced", "haproxy"),
    Target("cpu_ns_per_request", HTTP2, "paced", "haproxy"),
    Target("cpu_ns_per_request", HTTP1, "paced", "nginx"),
    Target("cpu_ns_per_request", HTTP2, "paced", "nginx"),
)


def spread(values):
    """The median, minimum and maximum of the values of several rounds."""
    return Spread(median(values), min(values), max(values))


class Figures:
    """The measured blocks and visits, by target, protocol and kind."""

    def __init__(self, measured):
        self.blocks = measured["blocks"]
        self.visits = measured["visits"]
        self.added_latency = measured.get("added_latency", {})

    def targets(self):
        """The names of the targets, in the order of the first round."""
        return list(dict.fromkeys(block["target"] for block in self.blocks))

    def by_round(self, target, metric, protocol="", kind=""):
        """A figure of a target, by round. Without a protocol, it is a figure of the whole visit."""
        if not protocol:
            return {visit["round"]: visit[metric] for visit in self.visits if visit["target"] == target}
        key = (target, protocol, kind)
        return {
            block["round"]: block[metric]
            for block in self.blocks
            if (block["target"], block["protocol"], block["kind"]) == key
        }

    def spread(self, target, metric, protocol="", kind=""):
        """The spread of a figure of a target over all rounds."""
        return spread(self.by_round(target, metric, protocol, kind).values())

    def ratios(self, target):
        """Curtail's figure divided by the peer's, for each round that has both."""
        curtail = self.by_round(target.curtail, target.metric, target.protocol, target.kind)
        peer = self.by_round(target.peer, target.metric, target.protocol, target.kind)
        return {number: curtail[number] / peer[number] for number in curtail if number in peer}


def verdict(target, ratios):
    """The verdict on a target: met if its median ratio is at most the bound."""
    if not ratios:
        return "not measured"
    if target.bound is None:
        return "no bound"
    return "met" if median(ratios.values()) <= target.bound else "MISSED"
