"""Shares of runs with their intervals."""

import math


def wilson(count, n, z=1.96):
    """Returns the 95 % interval of a share (Wilson, JASA 22, 1927)."""
    p = count / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def print_share(name, count, n):
    """Prints how many of `n` runs have a property."""
    low, high = wilson(count, n)
    print(f"{name:36} {count:4} of {n}: {count / n:6.1%} ({low:.1%} to {high:.1%})", flush=True)
