import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics import mean, paired, proportion


def test_mean_has_the_unbiased_standard_error() -> None:
    estimate = mean([0.0, 1.0, 2.0, 5.0])  # squares around 2: 4 + 1 + 0 + 9 = 14; sqrt(14 / 3 / 4)
    assert estimate.value == 2.0
    assert estimate.stderr == pytest.approx(math.sqrt(14 / 12))
    assert (estimate.low, estimate.high) == pytest.approx(
        (2 - 1.96 * estimate.stderr, 2 + 1.96 * estimate.stderr), abs=1e-3
    )
    assert estimate.n == 4


def test_mean_of_one_value_has_no_error_and_of_none_raises() -> None:
    assert mean([3.0]).stderr == 0.0
    with pytest.raises(ValueError, match="no values"):
        mean([])


def test_proportion_has_the_binomial_error_and_the_wilson_interval() -> None:
    estimate = proportion([1.0] * 8 + [0.0] * 2)
    assert estimate.value == 0.8
    assert estimate.stderr == pytest.approx(math.sqrt(0.8 * 0.2 / 10))
    assert (estimate.low, estimate.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_proportion_of_only_ones_keeps_an_interval() -> None:
    estimate = proportion([1.0] * 10)
    assert (estimate.value, estimate.stderr, estimate.high) == pytest.approx((1.0, 0.0, 1.0))
    assert estimate.low == pytest.approx(0.7225, abs=1e-4)


def test_proportion_refuses_other_values() -> None:
    with pytest.raises(ValueError, match="zeros and ones"):
        proportion([0.5])


def test_paired_uses_only_samples_of_both_and_the_exact_mcnemar_test() -> None:
    a = {"1": 0.0, "2": 0.0, "3": 0.0, "4": 1.0, "5": 1.0, "only-a": 1.0}
    b = {"1": 1.0, "2": 1.0, "3": 1.0, "4": 0.0, "5": 1.0}
    difference = paired(a, b)  # 3 up, 1 down: two-sided binomial p of 3 in 4 = 2 * 5 / 16
    assert difference.n == 5
    assert difference.value == pytest.approx(0.4)
    assert difference.p == pytest.approx(0.625)


def test_paired_of_real_values_is_the_t_test() -> None:
    difference = paired({"a": 0.1, "b": 0.2, "c": 0.3}, {"a": 0.2, "b": 0.4, "c": 0.6})
    assert difference.value == pytest.approx(0.2)
    assert difference.p == pytest.approx(0.0742, abs=1e-4)  # t = 0.2 / (0.1 / sqrt 3) = 3.464, 2 degrees of freedom


def test_paired_of_equal_runs_is_exactly_nothing() -> None:
    same = {"a": 0.25, "b": 0.5}
    difference = paired(same, dict(same))
    assert (difference.value, difference.stderr, difference.p) == (0.0, 0.0, 1.0)


@given(st.lists(st.floats(0, 1), min_size=1), st.randoms())
def test_mean_does_not_depend_on_order(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert mean(shuffled).value == mean(values).value
