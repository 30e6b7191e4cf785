import math

import pytest

from harness.benchmarks.bfcl.categories import GROUPS, LIVE, MULTI_TURN, NON_LIVE, overalls, selected
from harness.records import Record
from verl_slca.errors import ConfigError

SIZES = dict.fromkeys(NON_LIVE, 2) | {
    "live_simple": 2,
    "live_multiple": 6,
    "live_parallel": 2,
    "live_parallel_multiple": 2,
}


def records(right: dict[str, int], sizes: dict[str, int] = SIZES) -> list[Record]:
    return [
        Record(f"{kind}_{i}", "bfcl", kind, "ok", scores={"accuracy": float(i < right.get(kind, 0))})
        for kind, size in sizes.items()
        for i in range(size)
    ]


def test_overalls_by_hand() -> None:
    # non-live: ((2/2 + 0 + 0)/3 + 1/2 + 0 + 0)/4 = 5/24; live: 6/12; all: 2 + 1 + 6 of 24
    got = overalls(records({"simple_python": 2, "multiple": 1, "live_multiple": 6}), SIZES)
    assert {name: value["value"] for name, value in got.items()} == pytest.approx(
        {
            "non_live": 5 / 24,
            "live": 1 / 2,
            "overall A: mean(non_live, live)": (5 / 24 + 1 / 2) / 2,
            "overall B: share of single turn": 9 / 24,
        }
    )
    assert got["live"]["n"] == 12
    assert not math.isnan(got["live"]["stderr"])


def test_a_missing_category_makes_an_overall_absent_and_is_never_a_zero() -> None:
    live = {kind: SIZES[kind] for kind in LIVE}
    assert set(overalls(records({}, live), live)) == {"live"}
    assert set(overalls(records({}, {"multi_turn_base": 1}), {"multi_turn_base": 1})) == set()


def test_a_sample_without_a_score_makes_its_overalls_absent() -> None:
    unscored = Record("live_simple_0", "bfcl", "live_simple", "infrastructure_error", fault="policy_server_timeout")
    rest = [record for record in records({}) if record.id != "live_simple_0"]
    assert set(overalls([unscored, *rest], SIZES)) == {"non_live"}


def test_multi_turn_is_a_plain_mean() -> None:
    sizes = dict(zip(MULTI_TURN, (1, 2, 3, 4), strict=True))
    got = overalls(records({"multi_turn_base": 1}, sizes), sizes)
    assert got["multi_turn"]["value"] == pytest.approx(1 / 4)


def test_selected_categories() -> None:
    assert selected(()) == GROUPS["single_turn"] + GROUPS["relevance"]
    assert selected(("live", "simple_python")) == ("simple_python", *LIVE)
    assert len(selected(("all",))) == 17
    with pytest.raises(ConfigError, match=r"'agentic' is no category or group\. Allowed: non_live"):
        selected(("agentic",))
