"""Means with their errors, and paired differences: the numbers every table of the harness is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over samples and how far to trust it.

    Attributes:
        value: the mean.
        stderr: its standard error; 0.0 for a single sample of a mean, where it is not known.
        low: lower end of the 95 % interval.
        high: upper end of the 95 % interval.
        n: samples it was taken over.
    """

    value: float
    stderr: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference, b - a, over the samples that both runs scored.

    Attributes:
        value: mean of the per-sample differences.
        stderr: its standard error.
        low: lower end of the 95 % t interval.
        high: upper end of the 95 % t interval.
        p: two-sided p-value of "no difference": exact McNemar where every value is 0 or 1, else paired t.
        n: pairs.
    """

    value: float
    stderr: float
    low: float
    high: float
    p: float
    n: int


def mean(values: Sequence[float]) -> Estimate:
    """The mean of `values` with stderr = sd / sqrt(n), sd unbiased, and the normal 95 % interval.

    Raises:
        ValueError: no values.

    Example:
        >>> mean([1.0, 2.0, 3.0]).value
        2.0
        >>> round(mean([1.0, 2.0, 3.0]).stderr, 4)  # sd 1, n 3
        0.5774
    """
    value, stderr = _mean_and_stderr(values)
    return Estimate(value, stderr, value - _Z95 * stderr, value + _Z95 * stderr, len(values))


def proportion(values: Sequence[float]) -> Estimate:
    """The share of ones among zeros and ones, with stderr = sqrt(p (1 - p) / n) and the Wilson 95 % interval.

    The Wilson interval stays honest at 0 and at 1, where the binomial stderr is 0.

    Raises:
        ValueError: no values, or one that is neither 0 nor 1.

    Example:
        >>> proportion([1, 1, 1, 0]).value
        0.75
        >>> round(proportion([0, 0, 0, 0]).high, 3)
        0.49
    """
    if any(value not in (0, 1) for value in values):
        raise ValueError("a proportion needs zeros and ones only")
    share = _mean_and_stderr(values)[0]
    n = len(values)
    z2 = _Z95 * _Z95
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return Estimate(share, math.sqrt(share * (1 - share) / n), max(0.0, centre - half), min(1.0, centre + half), n)


def paired(a: Mapping[str, float], b: Mapping[str, float]) -> Difference:
    """How much higher `b` is than `a`, sample by sample, over the ids both hold.

    A standard error of 0 (all differences equal) gives p = 1 for a difference of 0, else p = 0.

    Raises:
        ValueError: fewer than two ids in common.

    Example:
        >>> paired({"x": 0.0, "y": 1.0, "z": 0.0}, {"x": 1.0, "y": 1.0, "z": 1.0}).p  # 2 flips, both up
        0.5
    """
    from scipy import stats  # seconds to import, and only comparing needs it

    common = sorted(a.keys() & b.keys())
    if len(common) < 2:
        raise ValueError(f"a paired comparison needs two samples that both runs scored, got {len(common)}")
    differences = [b[key] - a[key] for key in common]
    value, stderr = _mean_and_stderr(differences)
    half = float(stats.t.ppf(0.975, len(common) - 1)) * stderr
    if all(side[key] in (0, 1) for side in (a, b) for key in common):
        up, down = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        p = float(stats.binomtest(up, up + down).pvalue) if up + down else 1.0
    elif stderr == 0.0:
        p = 1.0 if value == 0.0 else 0.0
    else:
        p = float(2 * stats.t.sf(abs(value / stderr), len(common) - 1))
    return Difference(value, stderr, value - half, value + half, p, len(common))


def _mean_and_stderr(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        raise ValueError("no values to take a mean of")
    n = len(values)
    value = math.fsum(values) / n
    if n == 1:
        return value, 0.0
    return value, math.sqrt(math.fsum((v - value) ** 2 for v in values) / (n - 1) / n)
