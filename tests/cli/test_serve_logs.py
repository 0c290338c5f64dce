"""The log of kipp serve: one line an event, with what became of each request and without what was in it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from kipp_process import MODEL, OK, Kipp
from served import Served, chat_body, serving
from server_log import ServerLog

STORY = "Once upon a time"
SECRET = "xyzzyplugh"


@contextlib.contextmanager
def logging(kipp: Kipp, *flags: str) -> Iterator[tuple[Served, ServerLog]]:
    with serving(kipp, "--log-format", "json", *flags) as served:
        assert served.process.stderr is not None
        yield served, ServerLog(served.process.stderr)


def end(served: Served, log: ServerLog) -> list[dict[str, Any]]:
    served.process.terminate()
    assert served.process.wait(timeout=60) == OK
    return log.rest()


def test_a_life_from_start_to_end(demo: Kipp) -> None:
    with logging(demo) as (served, log):
        started = log.next("started")
        assert started["address"] == f"http://{served.host}:{served.port}"
        loaded = log.next("model_loaded")
        assert (loaded["backend"], loaded["block_positions"]) == ("cpu", 32)
        answer = served.post("/v1/completions", {"prompt": STORY, "max_tokens": 5, "temperature": 0},
                             **{"X-Request-Id": "mine-1"})
        assert answer.headers["x-request-id"] == "mine-1"
        line = log.next("request_finished")
        assert line | {
            "level": "info",
            "request_id": "mine-1",
            "method": "POST",
            "path": "/v1/completions",
            "status": 200,
            "id": answer.json["id"],
            "stream": False,
            "prompt_tokens": 4,
            "cached_tokens": 0,
            "generated_tokens": 5,
            "finish_reasons": ["length"],
        } == line
        assert 0 <= line["queue_ms"] <= line["first_token_ms"] <= line["total_ms"]
        assert "key" not in line
        assert line["peer"].startswith("127.0.0.1:")
        entries = end(served, log)
    assert [entry["event"] for entry in entries] == ["started", "model_loaded", "request_finished", "ending", "ended"]
    assert [entry["time"] for entry in entries] == sorted(entry["time"] for entry in entries)


def test_streams_choices_and_cached_prompts(demo: Kipp) -> None:
    prompt = " ".join(f"word{i}" for i in range(120))
    with logging(demo) as (served, log):
        served.complete(prompt, max_tokens=2, ignore_eos=True)
        first = log.next("request_finished")
        body = {"prompt": [prompt, STORY], "n": 2, "max_tokens": 3, "stream": True, "ignore_eos": True}
        assert len(served.post("/v1/completions", body).events) > 4
        line = log.next("request_finished")
        assert line["stream"] is True
        assert line["prompt_tokens"] == first["prompt_tokens"] + 4
        assert line["cached_tokens"] > 0
        assert line["generated_tokens"] == 12
        assert line["finish_reasons"] == ["length"] * 4
        end(served, log)


def test_every_answer_has_a_request_id_and_the_log_has_the_same(demo: Kipp) -> None:
    with logging(demo, "--log-level", "debug") as (served, log):
        made = served.get("/health").headers["x-request-id"]
        assert log.next("request_finished", path="/health")["request_id"] == made
        refused = served.post("/v1/completions", b"{", **{"X-Request-Id": "bad\tid"})
        assert refused.headers["x-request-id"] != "bad\tid"
        assert log.next("request_refused")["request_id"] == refused.headers["x-request-id"]
        end(served, log)


def test_no_prompt_and_no_key_is_in_it(demo: Kipp) -> None:
    """Not in what is refused with a message that quotes it, either."""
    with logging(demo, "--api-key", "sesame", "--log-level", "debug") as (served, log):
        key = {"Authorization": "Bearer sesame"}
        for body in (
            {"prompt": SECRET, "max_tokens": 1},
            {"prompt": "Hi", "temperature": SECRET},
            {"prompt": "Hi", SECRET: 1},
            {"prompt": "Hi", "model": SECRET},
            {"prompt": "Hi", "logit_bias": {SECRET: 1}},
            {"prompt": "Hi", "metadata": {SECRET: SECRET}, "user": SECRET, "stop": SECRET, "max_tokens": 1},
            {"prompt": "x " * 3000 + SECRET},
        ):
            served.post("/v1/completions", body, **key)
        served.post("/v1/chat/completions", chat_body(SECRET, max_tokens=1), **key)
        served.post("/tokenize", {"prompt": SECRET}, **key)
        served.post("/v1/completions", {"prompt": SECRET}, Authorization=f"Bearer {SECRET}")
        served.get(f"/health?{SECRET}")
        entries = end(served, log)
    text = "".join(log.lines)
    assert SECRET not in text
    assert "sesame" not in text
    keys = {entry.get("key") for entry in entries if entry["event"].startswith("request_")}
    assert keys == {None, "key-" + hashlib.sha256(b"sesame").hexdigest()[:8]}
    assert sum(entry.get("error") == "invalid_api_key" for entry in entries) == 1


def test_prompts_are_there_where_they_are_asked_for(demo: Kipp) -> None:
    with logging(demo, "--log-prompts") as (served, log):
        body = {"prompt": SECRET, "max_tokens": 1}
        served.post("/v1/completions", body)
        assert json.loads(log.next("request_finished")["body"]) == body
        served.post("/v1/completions", {"prompt": "Hi", "temperature": SECRET})
        assert SECRET in log.next("request_refused")["error_message"]
        served.post("/v1/completions", b'{"prompt":"\xff"}')
        assert "\N{REPLACEMENT CHARACTER}" in log.next("request_refused")["body"]
        end(served, log)


def test_refusals_cancellations_and_cuts(demo: Kipp) -> None:
    flags = ("--max-sequences", "1", "--drain-seconds", "0")
    with logging(demo, *flags) as (served, log), concurrent.futures.ThreadPoolExecutor(1) as pool:
        served.post("/v1/completions", {"prompt": "Hi", "max_token": 1})
        assert log.next("request_refused")["error"] == "unknown_parameter"
        served.request("POST", "/v1/completions", b"x" * 10, {"Transfer-Encoding": "gzip"})
        assert log.next("request_refused")["status"] in {400, 501}
        long = {"prompt": STORY, "max_tokens": 1900, "ignore_eos": True}
        for stream in (True, False):
            connection = served.connect()
            connection.request("POST", "/v1/completions", json.dumps(long | {"stream": stream}).encode())
            time.sleep(0.3)
            connection.close()
            line = log.next("request_cancelled", stream=stream)
            assert line["finish_reasons"] == ["abort"]
            assert line["level"] == "info"
            assert 0 < line["generated_tokens"] < 1900
        cut = pool.submit(served.post, "/v1/completions", long)
        time.sleep(0.5)
        end(served, log)
        assert cut.result().json["choices"][0]["finish_reason"] == "abort"
    finished = [json.loads(line) for line in log.lines if '"request_finished"' in line]
    assert finished[-1]["finish_reasons"] == ["abort"]
    assert any("cut at the deadline" in line for line in log.lines)


def test_levels_leave_out_what_is_less(demo: Kipp) -> None:
    with logging(demo, "--log-level", "error") as (served, log):
        served.complete(STORY, max_tokens=1)
        served.post("/v1/completions", b"{")
        assert end(served, log) == []


def test_text_is_for_people(demo: Kipp) -> None:
    with serving(demo) as served:
        served.complete(STORY, max_tokens=2, ignore_eos=True)
        served.get("/health")
        code, said = served.end()
    assert code == OK
    lines = said.splitlines()
    assert [line.split()[2] for line in lines] == ["started", "model_loaded", "request_finished", "ending", "ended"]
    assert " finish_reasons=length " in lines[2]
    assert " generated_tokens=2 " in lines[2]


def test_a_log_that_nobody_reads_holds_nobody_up(demo: Kipp) -> None:
    """Far more lines than a pipe holds, with prompts in them, and the end comes all the same."""
    with serving(demo, "--log-format", "json", "--log-prompts") as served:
        body = {"prompt": "x " * 2000, "max_tokens": 1, "temperature": SECRET}
        connection = served.connect()
        start = time.monotonic()
        for _ in range(400):
            connection.request("POST", "/v1/completions", json.dumps(body).encode())
            assert connection.getresponse().read()
        served.complete(STORY, max_tokens=8)
        assert time.monotonic() - start < 30
        connection.close()
        served.process.terminate()
        assert served.process.wait(timeout=30) == OK


def test_a_failure_to_start_is_a_line_too(bare: Kipp) -> None:
    arguments = ("serve", "--log-format", "json", "--port", "0", "--model", "nowhere.gguf")
    process = bare.popen(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == MODEL
    entry = json.loads(errors.decode().splitlines()[-1])
    assert (entry["event"], entry["level"]) == ("failed", "error")
    assert "nowhere.gguf" in entry["message"]
