"""Faults that users of other engines reported, each as a kind, on the demo behind HTTP (docs/reported-faults.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kipp_process import OK, Kipp
from served import Served, chat_body, serving

STORY = "Once upon a time"
REPEATING = "one two three one two three one two three one two"


@pytest.fixture(scope="module")
def served(demo: Kipp) -> Iterator[Served]:
    with serving(demo, "--max-sequences", "8") as server:
        yield server
        assert server.end()[0] == OK


def refusal(served: Served, path: str, body: Any) -> dict[str, Any]:
    answer = served.post(path, body)
    assert answer.status == 400, (body, answer.body)
    assert served.get("/health").status == 200
    return answer.error


def test_every_greedy_request_takes_the_best_token(served: Served, demo: Kipp) -> None:
    expected = demo.text("run", "--greedy", "--decode", "16", "-q", STORY).removesuffix("\n")
    for fields in ({}, {"top_k": 40, "seed": 1}, {"top_k": 0, "top_p": 0.1, "seed": 2}, {"top_p": 0}, {"min_p": 0},
                   {"frequency_penalty": 0}, {"presence_penalty": 0}, {"min_p": 1}):
        answer = served.complete(STORY, max_tokens=16, **fields)
        assert answer["choices"][0]["text"] == expected, fields
    assert served.complete(STORY, max_tokens=16, temperature=1e-6)["choices"][0]["text"] == expected
    warm = served.complete(STORY, max_tokens=16, temperature=1, top_p=0, seed=3)
    assert warm["choices"][0]["text"] == expected, "top_p 0 keeps one token"
    assert "temperature" in refusal(served, "/v1/completions", {"prompt": "Hi", "temperature": -1})["message"]


def test_there_is_no_hidden_penalty(served: Served, demo: Kipp) -> None:
    settings = served.get("/props").json["default_generation_settings"]
    assert settings["repetition_penalty"] == 1
    assert settings["presence_penalty"] == settings["frequency_penalty"] == 0
    expected = demo.text("run", "--greedy", "--decode", "24", "-q", REPEATING).removesuffix("\n")
    assert served.complete(REPEATING, max_tokens=24)["choices"][0]["text"] == expected


@pytest.mark.parametrize("body", [
    {"prompt": ""}, {"prompt": []}, {"prompt": [""]}, {"prompt": [[]]}, {"prompt": ["a", ""]}, {"prompt": None}, {},
])
def test_a_completion_of_nothing_is_refused(served: Served, body: dict[str, Any]) -> None:
    assert refusal(served, "/v1/completions", body)["param"].startswith("prompt")


@pytest.mark.parametrize("messages", [[], [{"role": "wizard", "content": "a"}], [{"content": "a"}], [{}], ["a"], None])
def test_a_chat_of_nothing_is_refused(served: Served, messages: Any) -> None:
    assert refusal(served, "/v1/chat/completions", {"messages": messages})["param"].startswith("messages")


def test_a_lone_system_message_is_answered(served: Served) -> None:
    body = {"messages": [{"role": "system", "content": "You are kind."}], "max_tokens": 4, "temperature": 0}
    assert served.post("/v1/chat/completions", body).json["usage"]["completion_tokens"] >= 1


@pytest.mark.parametrize("seed", [-9, 0, 2**40 + 7, 2**63 - 1, 2**64 - 1, -(2**63)])
def test_seeds_of_64_bits_repeat(served: Served, seed: int) -> None:
    texts = {served.complete(STORY, temperature=1, seed=seed, max_tokens=8)["choices"][0]["text"] for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.parametrize("seed", [1.5, "7", True, 2**64, -(2**63) - 1])
def test_other_seeds_are_refused(served: Served, seed: Any) -> None:
    assert refusal(served, "/v1/completions", {"prompt": "Hi", "seed": seed})["param"] == "seed"


@pytest.mark.parametrize(("key", "bias"), [("999999", 5), ("-1", 5), ("abc", 5), ("42", 1e9), ("42", None),
                                           ("151800", 100), ("151936", 0), ("042", 1), ("", 1)])
def test_biases_on_what_is_no_token_are_refused(served: Served, key: str, bias: Any) -> None:
    error = refusal(served, "/v1/completions", {"prompt": "Hi", "logit_bias": {key: bias}})
    assert error["param"] == f"logit_bias.{key}"


def test_ids_without_a_token_have_no_text(served: Served) -> None:
    for ids in ([151800], [-5], [999999], [151936]):
        assert str(ids[0]) in refusal(served, "/detokenize", {"tokens": ids})["message"]
        assert str(ids[0]) in refusal(served, "/v1/completions", {"prompt": ids})["message"]


def test_a_hit_and_a_miss_give_the_same_text_and_log_probabilities(served: Served, demo: Kipp) -> None:
    prompt = " ".join(f"{word} story" for word in ("a", "an", "the") * 30)
    ask = {"max_tokens": 32, "logprobs": 2, "ignore_eos": True}
    runs = [served.complete(prompt, **ask) for _ in range(3)]
    assert runs[0]["choices"] == runs[1]["choices"] == runs[2]["choices"]
    cached = [run["usage"]["prompt_tokens_details"]["cached_tokens"] for run in runs]
    assert cached[0] == 0 < cached[1] == cached[2] < runs[0]["usage"]["prompt_tokens"]
    with serving(demo, "--no-prefix-cache") as uncached:
        assert uncached.complete(prompt, **ask)["choices"] == runs[0]["choices"]
        other = prompt.removesuffix("story") + "tale"
        assert uncached.complete(other, **ask)["choices"] == served.complete(other, **ask)["choices"]


def test_chunks_of_a_stream_have_one_shape(served: Served) -> None:
    answer = served.post("/v1/chat/completions", chat_body("What is Kipp?", stream=True, n=2, max_tokens=12))
    assert answer.headers["content-type"] == "text/event-stream"
    assert len({(event["id"], event["created"], event["model"], event["object"]) for event in answer.events}) == 1
    for index in range(2):
        deltas = [c["delta"] for event in answer.events for c in event["choices"] if c["index"] == index]
        assert [delta.get("role") for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
        assert all(value is not None for delta in deltas for value in delta.values())
