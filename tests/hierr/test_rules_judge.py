"""The rules judge: right facts pay, made-up ones cost, and the known ways to cheat do not pay."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_slca.hierr.facts import data_in, facts_in
from verl_slca.hierr.rules_judge import rating

QUESTION = "Please get the current weather in Paris and show the balance of account 12."
RESPONSES = ['{"city": "Paris", "sky": "clear", "degrees": 21}', '{"account": 12, "balance": 74.5}']
GOOD = "The weather in Paris is clear with 21 degrees. The balance of account 12 is 74.5."


def rate(reply, responses=RESPONSES, question=QUESTION):
    return rating(question, responses, reply)


def test_a_reply_that_states_every_fact_is_excellent():
    assert rate(GOOD) == 1.0
    assert rate("It's clear in Paris, 21 degrees, and account 12 holds 74.50.") == 1.0


def test_each_further_fact_pays():
    replies = ["It is nice.", "It is clear.", "It is clear, 21 degrees.", GOOD]
    ratings = [rate(reply) for reply in replies]
    assert ratings == sorted(set(ratings))


def test_a_fact_that_was_asked_for_weighs_double():
    # sky and degrees weigh 1 each, balance 2: 2 / 4
    assert rate("The balance of account 12 is 74.5.") == 0.5


def test_what_the_question_already_said_is_no_news():
    assert [fact.text for fact in facts_in(data_in(RESPONSES[1]), QUESTION)] == ["74.5"]


@pytest.mark.parametrize(
    "reply",
    [
        GOOD.replace("21", "22"),
        GOOD + " The humidity is 40.",
        GOOD.replace("in Paris", "in Rome"),
        GOOD + ' The bank says "no fees".',
        GOOD.replace("clear", "clear or cloudy"),
        GOOD.replace("clear", "clear, cloudy, rainy, windy"),
        GOOD.replace("clear", "clear/rainy"),
        "clear cloudy rainy windy 21 74.5",
        " ".join(map(str, range(10, 100))) + " clear 74.5",
        " ".join(["clear 21 74.5"] * 10),
    ],
)
def test_making_things_up_listing_and_repeating_cost(reply):
    assert rate(reply) < 0.9


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "   ",
        RESPONSES[0],
        "Here you are: " + RESPONSES[0],
        '"sky": "clear", "degrees": 21',
        f"<tool_response>{RESPONSES[0]}</tool_response>",
        "<think>clear, 21",
        '[{"sky": "clear"}]',
    ],
)
def test_empty_replies_tags_and_raw_json_are_worth_nothing(reply):
    assert rate(reply) == 0.0


def test_numbers_may_be_rounded_but_not_bent():
    responses = ['{"mean": 71.2571, "distance": 1234.5}']
    assert rate("The mean is 71.26 over 1,234.5 km.", responses, "q") == 1.0
    assert rate("The mean is 71.3 over 1235 km.", responses, "q") == 1.0
    assert rate("The mean is 71.9 over 2000 km.", responses, "q") == 0.0


def test_dates_may_be_written_out():
    assert rate("It is 08:07:38 on August 29, 2025.", ['{"now": "2025-08-29 08:07:38"}'], "What time is it?") == 1.0


def test_running_text_and_python_repr_have_facts_too():
    text = "**Temperature:** 69.8°F\n**Conditions:** Partly Cloudy\n**Wind:** 41 mph"
    assert rate("In Boston it is 69.8 degrees with wind of 41 mph.", [text], "Weather in Boston?") == 1.0
    assert rate("It is in state 'idle'.", ["{'state': 'idle', 'ok': True}"], "q") == 1.0
    assert rate("潮汐时间是 04:12。", ['{"潮": "04:12"}'], "潮汐?") == 1.0


def test_failures_have_to_be_admitted():
    failed = ['{"error": "HTTP 400"}']
    assert rate("I could not get the weather, the service returned an error.", failed) == 1.0
    assert rate("The weather is fine.", failed) == 0.0
    assert rate("The weather in Paris is clear with 21 degrees.", [*failed, RESPONSES[0]]) == 1.0


def test_a_response_without_facts_asks_for_none():
    assert rate("That is noted.", ["Great thinking."]) == 1.0


def test_abstentions_are_judged_by_what_they_make_up():
    assert rate("You are welcome.", [], "Thank you.") == 1.0
    assert rate("The weather is 17 degrees.", [], "Thank you.") == 0.5
    assert rate('{"name": "ping"}', [], "Thank you.") == 0.0


def test_context_supports_what_the_reply_repeats():
    assert rate("The weather in Oslo was 3 degrees.", [], "The weather in Oslo is 3 degrees.\nSay that again.") == 1.0


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=3), st.text(max_size=60))
def test_any_text_gets_a_rating_and_always_the_same(question, responses, reply):
    value = rating(question, responses, reply)
    assert 0.0 <= value <= 1.0
    assert rating(question, responses, reply) == value


@pytest.mark.parametrize(
    ("response", "reply"),
    [
        ('{"a":"x","b":[1,2,3]}' * 3000, "1 2 3 " * 10_000),
        ('{"a": [' + ",".join(map(str, range(3000))) + "]}", " ".join(map(str, range(5000)))),
        ('{"a": "aa"}', "aa or " * 5000),
        ("[" * 20_000, '"' * 20_000),
        ('{"a":' * 3000 + "1" + "}" * 3000, "1." * 10_000),
    ],
)
def test_hostile_text_ends_in_bounded_time(response, reply):
    start = time.perf_counter()
    rating("q " * 5000, [response] * 5, reply)
    assert time.perf_counter() - start < 5.0
