"""kipp serve on the demo: answers are those of `kipp run`, whole or streamed, alone or in company."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kipp_process import INTERRUPTED, MODEL, OK, Kipp
from served import Served, chat_body, serving

STORY = "Once upon a time"


@pytest.fixture(scope="module")
def served(demo: Kipp) -> Iterator[Served]:
    with serving(demo, "--max-sequences", "8") as server:
        yield server
        code, said = server.end()
        assert code == OK
        assert "every answer was finished" in said


def joined(events: list[Any], key: str) -> str:
    return "".join(event["choices"][0]["delta"].get(key) or "" for event in events if event["choices"])


def test_a_completion_is_that_of_run(served: Served, demo: Kipp) -> None:
    answer = served.complete(STORY, max_tokens=24)
    expected = demo.text("run", "--greedy", "--decode", "24", "-q", STORY).removesuffix("\n")
    assert answer["choices"][0]["text"] == expected
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 24
    assert answer["object"] == "text_completion"


def test_a_chat_is_that_of_run(served: Served, demo: Kipp) -> None:
    expected = json.loads(demo.text("run", "--chat", "--greedy", "--json", "-q", "What is Kipp?"))["message"]
    message = served.chat("What is Kipp?")["choices"][0]["message"]
    assert message["content"] == expected["content"]
    assert message["reasoning_content"] == expected["reasoning_content"]


def test_a_stream_has_the_shape_that_clients_expect_and_the_text_of_the_whole(served: Served) -> None:
    whole = served.chat("What is Kipp?")
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    events = served.post("/v1/chat/completions", chat_body("What is Kipp?", **usage)).events
    message = whole["choices"][0]["message"]
    assert joined(events, "content") == message["content"]
    assert joined(events, "reasoning_content") == message["reasoning_content"]
    assert {(event["id"], event["created"], event["model"], event["object"]) for event in events} == {
        (events[0]["id"], events[0]["created"], "kipp-demo", "chat.completion.chunk")
    }
    assert [event["choices"][0]["delta"].get("role") for event in events[:-1]] == ["assistant"] + [None] * (
        len(events) - 2
    )
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    without = served.post("/v1/chat/completions", chat_body("Hi", stream=True, max_tokens=2)).events
    assert all("usage" not in event for event in without)


def test_thinking_can_be_turned_off(served: Served) -> None:
    answer = served.chat("Hi", chat_template_kwargs={"enable_thinking": False}, max_tokens=8)
    assert answer["usage"]["prompt_tokens"] == 13
    assert not answer["choices"][0]["message"].get("reasoning_content")
    assert served.chat("Hi", max_tokens=8)["usage"]["prompt_tokens"] == 9


def test_a_stop_string_is_never_shown(served: Served) -> None:
    text = served.complete(STORY, max_tokens=24)["choices"][0]["text"]
    stop = text[10:14]
    whole = served.complete(STORY, max_tokens=24, stop=stop)["choices"][0]
    assert whole["text"] == text[: text.index(stop)]
    assert whole["finish_reason"] == "stop"
    body = {"prompt": STORY, "temperature": 0, "max_tokens": 24, "stop": [stop], "stream": True}
    pieces = [event["choices"][0]["text"] for event in served.post("/v1/completions", body).events]
    assert "".join(pieces) == whole["text"]


def test_seeds_repeat_in_company_and_choices_differ(served: Served) -> None:
    ask = {"temperature": 1.0, "seed": 77, "n": 3, "max_tokens": 12}
    alone = [choice["text"] for choice in served.complete(STORY, **ask)["choices"]]
    assert len(set(alone)) == 3
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        others = [pool.submit(served.complete, f"{STORY} {i}", max_tokens=30, ignore_eos=True) for i in range(11)]
        together = pool.submit(served.complete, STORY, **ask).result()
        assert [choice["text"] for choice in together["choices"]] == alone
        assert all(other.result()["usage"]["completion_tokens"] == 30 for other in others)
    assert together["usage"]["completion_tokens"] == 36
    drawn = {served.complete(STORY, temperature=1.0, max_tokens=16)["choices"][0]["text"] for _ in range(4)}
    assert len(drawn) > 1, "no seed, and yet the same"
    assert served.complete(STORY, seed=-9, max_tokens=1)["usage"]["completion_tokens"] == 1


def test_a_prompt_that_was_evaluated_is_not_evaluated_again(served: Served) -> None:
    prompt = " ".join(f"word{i}" for i in range(120))
    first = served.complete(prompt, max_tokens=8)
    again = served.complete(prompt, max_tokens=8)
    assert again["choices"] == first["choices"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first["usage"]["prompt_tokens"] - 64 < cached < first["usage"]["prompt_tokens"]
    salted = served.complete(prompt, max_tokens=8, cache_salt="mine")
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert salted["choices"] == first["choices"]


def test_echo_gives_the_prompts_log_probabilities(served: Served) -> None:
    answer = served.complete("Once upon a time", max_tokens=2, logprobs=2, echo=True)["choices"][0]
    logprobs = answer["logprobs"]
    assert answer["text"].startswith("Once upon a time")
    assert logprobs["tokens"][:4] == ["Once", " upon", " a", " time"]
    assert logprobs["token_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
    assert logprobs["text_offset"][:5] == [0, 4, 9, 11, 16]
    assert {len(logprobs[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")} == {6}
    scored = served.complete("Once upon a time", max_tokens=0, logprobs=1, echo=True)["choices"][0]
    assert scored["text"] == "Once upon a time"
    assert scored["logprobs"]["token_logprobs"] == logprobs["token_logprobs"][:4]


def test_several_prompts_are_answered_in_their_order(served: Served) -> None:
    ids = served.post("/tokenize", {"prompt": STORY}).json["tokens"]
    answer = served.complete([ids, ids[:2]], max_tokens=6, n=1)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["choices"][0]["text"] == served.complete(STORY, max_tokens=6)["choices"][0]["text"]
    assert served.post("/detokenize", {"tokens": ids}).json["prompt"] == STORY


REFUSALS: list[tuple[str, bytes | dict[str, Any], str]] = [
    ("/v1/completions", b'{"prompt":"Hi"', "JSON"),
    ("/v1/completions", b'{"prompt":"A"} x', "JSON"),
    ("/v1/completions", b'{"prompt":"A","prompt":"B"}', "prompt"),
    ("/v1/completions", {"prompt": ""}, "prompt"),
    ("/v1/completions", {"prompt": []}, "prompt"),
    ("/v1/completions", {"prompt": "Hi", "temperature": "hot"}, "temperature"),
    ("/v1/completions", {"prompt": "Hi", "max_token": 3}, "max_token"),
    ("/v1/completions", {"prompt": "Hi", "logit_bias": {"151800": 5}}, "151800"),
    ("/v1/completions", {"prompt": [1, 999999]}, "999999"),
    ("/v1/completions", {"prompt": "x " * 3000}, "2048"),
    ("/v1/chat/completions", {"messages": []}, "messages"),
    ("/v1/chat/completions", {"messages": "hi"}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": 7, "content": "a"}]}, "role"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2.5}, "max_tokens"),
    ("/detokenize", {"tokens": [-5]}, "-5"),
]


@pytest.mark.parametrize(("path", "body", "named"), REFUSALS)
def test_what_is_wrong_is_named(served: Served, path: str, body: bytes | dict[str, Any], named: str) -> None:
    answer = served.post(path, body)
    assert answer.status == 400
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert named in answer.error["message"]


def test_paths_and_methods(served: Served) -> None:
    assert served.get("/health").json == {"status": "ok"}
    assert served.get("/v1/models").json["data"][0]["id"] == "kipp-demo"
    assert served.get("/v1/models/kipp-demo").json["id"] == "kipp-demo"
    assert served.get("/v1/models/gpt-4o").status == 404
    assert served.get("/no/such/path").status == 404
    wrong = served.get("/v1/completions")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    assert served.get("/openapi.json").json["openapi"].startswith("3.1")
    assert served.get("/props").json["default_generation_settings"]["temperature"] == pytest.approx(0.6)
    assert served.post("/v1/completions", {"prompt": "Hi", "model": "gpt-4o"}).status == 404


def test_control_tokens_in_messages_are_text(served: Served) -> None:
    body = {"messages": [{"role": "user", "content": "please print <|im_end|> now"}]}
    rendered = served.post("/tokenize", body).json["tokens"]
    assert rendered.count(151645) == 1
    content = [30021, 1173, 82639, 318, 6213, 91, 29, 1431]
    assert any(rendered[i : i + len(content)] == content for i in range(len(rendered)))


def test_a_client_that_leaves_ends_its_generation(served: Served) -> None:
    served.begin_and_leave({"prompt": STORY, "max_tokens": 1900, "ignore_eos": True, "stream": True})
    start = time.monotonic()
    assert served.complete(STORY, max_tokens=4)["usage"]["completion_tokens"] == 4
    assert time.monotonic() - start < 10


def test_keys_are_asked_for(demo: Kipp) -> None:
    with serving(demo, "--api-key", "sesame", "--name", "mine") as served:
        refused = served.get("/v1/models")
        assert refused.status == 401
        assert "www-authenticate" in refused.headers
        assert served.get("/health").status == 200
        assert served.get("/v1/models", Authorization="Bearer sesame").json["data"][0]["id"] == "mine"
        assert served.end()[0] == OK


def test_the_end_waits_for_what_runs(demo: Kipp) -> None:
    with serving(demo) as served, concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(served.complete, STORY, max_tokens=200, ignore_eos=True)
        time.sleep(0.3)  # it runs by then
        code, said = served.end()
        assert code == OK
        assert "every answer was finished" in said
        assert running.result()["usage"]["completion_tokens"] == 200


def test_the_deadline_cuts_what_runs(demo: Kipp) -> None:
    flags = ("--drain-seconds", "0", "--max-sequences", "1")
    with serving(demo, *flags) as served, concurrent.futures.ThreadPoolExecutor(2) as pool:
        body = {"prompt": STORY, "max_tokens": 1900, "ignore_eos": True}
        running = pool.submit(served.post, "/v1/completions", body)
        time.sleep(0.5)
        waiting = pool.submit(served.post, "/v1/completions", body | {"stream": True})
        time.sleep(0.3)
        code, said = served.end()
        assert code == OK
        assert "cut at the deadline" in said
        assert running.result().json["choices"][0]["finish_reason"] == "abort"
        assert waiting.result().status == 503
        assert waiting.result().error["code"] == "shutting_down"


def test_a_second_signal_ends_it_at_once(demo: Kipp) -> None:
    with serving(demo) as served, concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = {"prompt": STORY, "max_tokens": 1900, "ignore_eos": True}
        running = pool.submit(served.post, "/v1/completions", body)
        time.sleep(0.5)
        served.process.terminate()
        served.process.terminate()  # of a group, say: still the first
        time.sleep(0.6)
        assert served.process.poll() is None
        assert served.end()[0] == INTERRUPTED
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            running.result()


def test_an_address_that_nobody_can_read_ends_it(demo: Kipp) -> None:
    with open("/dev/full", "wb") as full:
        process = demo.popen("serve", "--port", "0", stdout=full, stderr=subprocess.PIPE)
        assert process.wait(timeout=60) == MODEL
        assert process.stderr is not None
        process.stderr.close()
