"""Loose equality and the assignment of calls to gold calls."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca.hierr.matching import argument_scores, loosely_equal, matched, name_f1
from verl_slca.rows import GoldCall
from verl_slca.trajectory import ToolCall

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (10, "10"),
        (10, 10.0),
        ("10.0", 10),
        (" 1e3 ", 1000),
        ("\uff11\uff12", 12),
        (0.1 + 0.2, 0.3),
        (-0.0, 0),
        ("  North Quay ", "north quay"),
        (True, "True"),
        ([1, "a"], [1.0, "A"]),
        (["1"], [1]),
        ({"a": 1, "b": [2]}, {"b": ["2"], "a": 1.0}),
        ({"A": "Q"}, {"a": "q"}),
        (10**400, 10**400),
        (None, None),
        ("", ""),
        ({"a": 1, "A": 2}, {"a": 1, "A": 2}),
    ],
)
def test_same_meaning(a, b):
    assert loosely_equal(a, b)
    assert loosely_equal(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (10, 11),
        (1e-10, 5e-10),
        (1e12, 1e12 + 0.001),
        (2**53, 2**53 + 1),
        ("1_000", 1000),
        ("1,000", 1000),
        ("inf", "Infinity"),
        (True, 1),
        (True, "1"),
        (False, 0),
        (True, False),
        ([True], [1]),
        (None, "None"),
        (None, "null"),
        (None, ""),
        (0, ""),
        ([], None),
        (["a"], "['a']"),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        ("Café", "cafe"),
        ("STRASSE", "straße"),
        ("North  Quay", "North Quay"),
        (10**400, 5.0),
        (10**400, 1.5e300),
    ],
)
def test_another_meaning(a, b):
    assert not loosely_equal(a, b)
    assert not loosely_equal(b, a)


@settings(deadline=None)
@given(values, values)
def test_loose_equality_is_reflexive_and_symmetric(a, b):
    assert loosely_equal(a, a)
    assert loosely_equal(a, b) == loosely_equal(b, a)


def test_name_f1_by_hand():
    assert name_f1([], []) == 1.0
    assert name_f1(["a"], []) == 0.0
    # P = {a, a}, G = {a, b}: one in common, 2 * 1 / (2 + 2)
    assert name_f1(["a", "a"], ["a", "b"]) == 0.5


def test_argument_scores_by_hand():
    gold = GoldCall("t", {"a": 1, "b": 2})
    # keys {a, c} against {a, b}: 1 of 3; one of two gold values
    assert argument_scores(gold, ToolCall("t", {"a": 1, "c": 2})) == (1 / 3, 0.5)
    assert argument_scores(GoldCall("t", {}), ToolCall("t", {"a": 1})) == (0.0, 1.0)
    assert argument_scores(GoldCall("t", {}), ToolCall("t", {})) == (1.0, 1.0)
    assert argument_scores(GoldCall("t", None), ToolCall("t", {"a": 1})) == (1.0, 1.0)


def test_the_best_assignment_is_found_where_greedy_choice_fails():
    # Greedy gives gold 1 the call {v, u: b} (0.5 value, key 1) and starves gold 2, which it fits exactly.
    gold = [GoldCall("t", {"v": 1, "u": "a"}), GoldCall("t", {"v": 1, "u": "b"})]
    calls = [ToolCall("t", {"v": 1, "u": "b"}), ToolCall("t", {"v": 1})]
    assert matched(gold, calls) == [(0.5, 0.5), (1.0, 1.0)]


def test_calls_of_another_name_and_missing_calls_leave_gold_unmatched():
    gold = [GoldCall("t", {"a": 1}), GoldCall("s", {"a": 1}), GoldCall("t", {"a": 2})]
    assert matched(gold, [ToolCall("t", {"a": 2}), ToolCall("r", {})]) == [None, None, (1.0, 1.0)]


@settings(deadline=None, max_examples=50)
@given(st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_order_of_calls_or_gold(rng: random.Random):
    def arguments():
        return {key: rng.randint(0, 2) for key in "abc" if rng.random() < 0.7}

    gold = [GoldCall(rng.choice("st"), arguments() or {"a": 0}) for _ in range(rng.randint(1, 5))]
    calls = [ToolCall(rng.choice("st"), arguments()) for _ in range(rng.randint(0, 5))]

    def sums(g, c):
        pairs = [pair or (0.0, 0.0) for pair in matched(g, c)]
        return [pytest.approx(sum(p[i] for p in pairs)) for i in (0, 1)]

    expected = [float(v.expected) for v in sums(gold, calls)]
    assert expected == sums(rng.sample(gold, len(gold)), rng.sample(calls, len(calls)))
