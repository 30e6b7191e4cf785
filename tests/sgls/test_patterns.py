import random
import re

import pytest

from verl_slca.sgls import patterns


@pytest.mark.parametrize(
    "pattern",
    [
        r"^\d{3}-\d{4}$", r"^[^a-z]$", r"^(?:a|bc)+?x*$", r"^\w+\s\S$", r"^[\w.]+@[a-z]{2,}\.com$", r"^[^\W\d]+$",
        r"^.$",        r"^[1-9A-HJ-NP-Za-km-z]{55,60}$", r"^x{2,3}$", r"^(?P<n>a)?b$", "^é+$", r"^\D\W$", "",
    ],
)  # fmt: skip
def test_samples_match(pattern):
    rng = random.Random(0)
    for _ in range(30):
        text = patterns.sample(pattern, rng)
        assert text is not None
        assert re.search(pattern, text)
        assert patterns.search(pattern, text)


def test_samples_keep_to_a_length_or_are_none():
    assert len(patterns.sample(r"^\d+$", random.Random(1), 8, 8)) == 8
    assert patterns.sample(r"^\d{3}$", random.Random(1), 5, 9) is None
    assert patterns.sample(r"\p{L}", random.Random(1)) is None


@pytest.mark.parametrize(
    "pattern", ["(", "a" * 3000, "^(a|aa)+$", "(a{999}){999}", "a{99999999999999999999}", "(" * 900]
)
def test_bad_patterns_are_refused(pattern):
    with pytest.raises(patterns.PatternError):
        patterns.compiled(pattern)
