"""Percentiles and units of what was measured. Pure."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: a value that was really seen."""
    if not values:
        raise ValueError("no values")
    rank = max(math.ceil(percent / 100 * len(values)), 1)
    return sorted(values)[rank - 1]


def median(values: Sequence[float]) -> float:
    """The 50th percentile."""
    return percentile(values, 50)


def short(value: float) -> str:
    """A figure with three digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
