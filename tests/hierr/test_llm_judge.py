"""The LLM judge against a real HTTP server on loopback that answers from a script."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from verl_slca.errors import JudgeFault
from verl_slca.hierr.llm_judge import LlmJudge, LlmJudgeConfig, rating_in


@contextmanager
def server(*script):
    """A chat server; each entry of the script is a reply text or an HTTP status; the last one repeats."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            step = script[min(len(requests), len(script) - 1)]
            requests.append(body)
            status, text = (200, step) if isinstance(step, str) else (step, "")
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "judge", "choices": [choice]}
            data = json.dumps(answer if status == 200 else {"error": {"message": "no"}}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/v1", requests
    finally:
        httpd.shutdown()
        httpd.server_close()


def judge(url, **changes):
    return LlmJudge(LlmJudgeConfig(base_url=url, model="judge", **({"timeout": 10.0, "attempts": 2} | changes)))


async def test_a_verdict_is_mapped_to_its_fifth():
    with server("Clear and complete.\nRating: good") as (url, requests):
        assert await judge(url).rate("Is h1 up?", ["up"], "It is up.") == 0.75
    (request,) = requests
    assert (request["temperature"], request["model"]) == (0.0, "judge")
    shown = request["messages"][-1]["content"]
    assert all(part in shown for part in ("Is h1 up?", "up", "It is up."))


async def test_an_unreadable_verdict_is_asked_for_again():
    with server("It is not good.", "Rating: not good", "Rating: poor") as (url, requests):
        assert await judge(url).rate("q", ["r"], "reply") == 0.25
    assert len(requests) == 3
    assert len(requests[2]["messages"]) == 6


async def test_a_judge_that_never_says_a_label_is_a_fault():
    with server("I cannot say.") as (url, requests):
        with pytest.raises(JudgeFault, match="judge_unparsable"):
            await judge(url, verdicts=2).rate("q", ["r"], "reply")
        assert len(requests) == 2


async def test_passing_trouble_is_retried_and_lasting_trouble_is_a_fault():
    with server(503, "Rating: excellent") as (url, requests):
        assert await judge(url).rate("q", ["r"], "reply") == 1.0
        assert len(requests) == 2
    with server(500) as (url, _), pytest.raises(JudgeFault, match="judge_error"):
        await judge(url).rate("q", ["r"], "reply")
    with pytest.raises(JudgeFault, match="judge_unreachable"):
        await judge(url).rate("q", ["r"], "reply")


async def test_a_refused_request_is_not_repeated():
    with server(401) as (url, requests):
        with pytest.raises(JudgeFault, match="judge_error"):
            await judge(url).rate("q", ["r"], "reply")
        assert len(requests) == 1


async def test_long_responses_are_cut_in_the_middle():
    with server("Rating: good") as (url, requests):
        await judge(url, max_response_chars=10).rate("q", ["a" * 50 + "b" * 50], "reply")
    assert "aaaaa...(cut)...bbbbb" in requests[0]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Rating: very poor", "very poor"),
        ("**Rating:** Excellent.", "excellent"),
        ("Rating: good\nRating: poor", "poor"),
        ("<rating> acceptable </rating>", "acceptable"),
        ("<think>Rating: good</think>Rating: poor", "poor"),
        ("<think>Rating: good", None),
        ("good", "good"),
        ("not good", None),
        ("Rating: not good", None),
        ("Rating: 4", None),
        ("The reply is good and the tool results are excellent.", None),
        ("", None),
    ],
)
def test_only_one_of_the_five_labels_is_a_verdict(text, label):
    assert rating_in(text) == label
