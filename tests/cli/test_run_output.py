"""`kipp run`: prompts from files, stop strings, log-probabilities, answers as JSON."""

from __future__ import annotations

import json
import math
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from kipp_process import FAILURE, INTERRUPTED, MODEL, OK, USAGE, Kipp
from terminal import Terminal

GREEDY = ("--greedy", "-q")


def answer(kipp: Kipp, *arguments: str) -> dict[str, Any]:
    text = kipp.text("run", "--json", *arguments)
    assert text.endswith("}\n") and text.count("\n") == 1
    return json.loads(text)


def test_a_prompt_from_a_file_or_standard_input_is_taken_as_it_is(twin: Kipp, tmp_path: Path) -> None:
    prompt = "Hi 世界\n"
    path = tmp_path / "prompt.txt"
    path.write_text(prompt, encoding="utf-8")
    expected = twin.text("run", *GREEDY, "--decode", "4", prompt)
    assert twin.text("run", *GREEDY, "--decode", "4", "--file", str(path)) == expected
    assert twin.text("run", *GREEDY, "--decode", "4", "-f", "-", stdin=prompt.encode()) == expected
    assert answer(twin, *GREEDY, "--decode", "1", "-f", str(path))["prompt_tokens"] == len(
        twin.lines("tokenize", [{"text": prompt}])[0]["ids"]
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"", "the prompt is empty"), (b"a\xffb", "UTF-8"), (b"word " * 5000, "context holds")],
)
def test_prompt_files_that_cannot_be_used(twin: Kipp, tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "prompt.txt"
    if content is not None:
        path.write_bytes(content)
    done = twin("run", "--file", path)
    assert done.returncode == FAILURE and words in done.stderr.decode()
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--file", "x", "Hi"), "not together with PROMPT"),
        (("--file", "x", "--jsonl"), "not together with --jsonl"),
        (("--file", ""), "expected a value"),
        (("--json", "--jsonl"), "not together with --jsonl"),
        (("--logprobs", "1", "Hi"), "needs --json or --jsonl"),
        (("--logprobs", "21", "--json", "Hi"), "from 0 to 20"),
        (("--stop", "", "Hi"), "stop[0]: expected 1 to 1024 bytes"),
        (("--chat", "--file", "-", "--tools", "-"), "standard input"),
        ((), "missing (or use --file or --jsonl)"),
    ],
)
def test_flags_that_exclude_each_other(twin: Kipp, arguments: tuple[str, ...], words: str) -> None:
    done = twin("run", *arguments)
    assert done.returncode == USAGE and words in done.stderr.decode()


def test_a_stop_string_ends_the_text_before_it(demo: Kipp) -> None:
    whole = answer(demo, *GREEDY, "--chat", "What is Kipp?")
    assert whole["finish_reason"] == "stop" and "stop_string" not in whole
    word = "language"
    assert whole["text"].count(word) == 1
    cut = answer(demo, *GREEDY, "--chat", "--stop", "no such text", "--stop", word, "What is Kipp?")
    assert cut["text"] == whole["text"][: whole["text"].index(word)]
    assert cut["finish_reason"] == "stop" and cut["stop_string"] == word
    assert cut["ids"] == whole["ids"][: len(cut["ids"])] and len(cut["ids"]) < len(whole["ids"])
    assert cut["message"]["content"] == whole["message"]["content"].split(word)[0]
    streamed = demo.text("run", *GREEDY, "--chat", "--stop", word, "What is Kipp?")
    assert streamed == cut["text"] + "\n"
    line = {"messages": [{"role": "user", "content": "What is Kipp?"}], "greedy": True}
    assert demo.lines("run", [line | {"stop": word}, line | {"stop": ["zzz", word]}]) == [cut, cut]


def test_a_stop_string_that_never_comes_changes_nothing(twin: Kipp) -> None:
    plain = answer(twin, *GREEDY, "--decode", "6", "Hi")
    stop = plain["text"][-1] + "\x01"
    assert answer(twin, *GREEDY, "--decode", "6", "--stop", stop, "Hi") == plain
    assert twin.text("run", *GREEDY, "--decode", "6", "--stop", stop, "Hi") == plain["text"] + "\n"


def test_log_probabilities_are_those_of_the_logits(twin: Kipp) -> None:
    everything = twin.lines("run", [{"prompt": "Hi", "top": 151669}])[0]["top"]
    logits = {entry["id"]: entry["logit"] for entry in everything}
    best = max(logits.values())
    log_sum = best + math.log(math.fsum(math.exp(logit - best) for logit in logits.values()))
    tokens = answer(twin, "--seed", "3", "--decode", "2", "--logprobs", "3", "Hi")["logprobs"]
    first = tokens[0]
    assert first["logprob"] == pytest.approx(logits[first["id"]] - log_sum, abs=1e-5)
    assert [entry["id"] for entry in first["top"]] == [entry["id"] for entry in everything[:3]]
    assert [entry["piece"] for entry in first["top"]] == [entry["piece"] for entry in everything[:3]]
    for entry in first["top"]:
        assert entry["logprob"] == pytest.approx(logits[entry["id"]] - log_sum, abs=1e-5)


def test_log_probabilities_come_one_for_each_id(twin: Kipp) -> None:
    for asked in (0, 5, 20):
        result = twin.lines("run", [{"prompt": "Hi", "decode": 3, "seed": 1, "logprobs": asked}])[0]
        assert [entry["id"] for entry in result["logprobs"]] == result["ids"]
        assert all(len(entry["top"]) == asked for entry in result["logprobs"])
    assert "logprobs" not in twin.lines("run", [{"prompt": "Hi", "decode": 3}])[0]
    assert answer(twin, *GREEDY, "--decode", "0", "--logprobs", "2", "Hi")["logprobs"] == []


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"logprobs": 21}, "expected 0 to 20, found 21"),
        ({"logprobs": -1}, "expected 0 to 20"),
        ({"logprobs": True}, '"logprobs"'),
        ({"stop": 3}, "a string or an array of strings"),
        ({"stop": ["a", None]}, 'field "stop[1]": expected a string, found null'),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": ["a"] * 65}, "at most 64"),
    ],
)
def test_bad_fields(twin: Kipp, field: dict[str, Any], words: str) -> None:
    bad, good = twin.lines("run", [{"prompt": "Hi"} | field, {"prompt": "Hi", "decode": 1}], code=FAILURE)
    assert words in bad["error"]["message"] and "ids" in good


def test_a_chat_answer_is_a_message_too(demo: Kipp) -> None:
    result = answer(demo, *GREEDY, "--chat", "--thinking", "on", "7 + 15?")
    message = result["message"]
    assert message["role"] == "assistant" and message["content"] == "7 + 15 = 22."
    assert result["text"] == f"<think>\n{message['reasoning_content']}\n</think>\n\n{message['content']}"
    quiet = answer(demo, *GREEDY, "--chat", "--thinking", "off", "7 + 15?")["message"]
    assert "reasoning_content" not in quiet and quiet["content"]
    assert "message" not in answer(demo, *GREEDY, "--decode", "2", "7 + 15?")


def test_seed_and_prompt_tokens_are_reported(twin: Kipp) -> None:
    result = answer(twin, "--decode", "3", "-q", "Hi")
    again = answer(twin, "--decode", "3", "-q", "--seed", str(result["seed"]), "Hi")
    assert again == result and result["prompt_tokens"] == 1
    largest = answer(twin, "--decode", "1", "--seed", str(2**64 - 1), "Hi")
    assert largest["seed"] == 2**64 - 1


def test_top_in_json(twin: Kipp) -> None:
    result = answer(twin, "--top", "2", "Hi")
    assert len(result["top"]) == 2 and result["ids"] == []


def test_an_interrupted_answer_is_still_json(twin: Kipp) -> None:
    process = twin.popen("run", "--json", "--logit-bias", "151645=-inf", "--logit-bias", "151643=-inf", "Hi",
                         stdout=-1, stderr=-1, start_new_session=True)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED, stderr
    assert json.loads(stdout)["finish_reason"] == "cancelled"


def test_an_interrupt_while_the_prompt_is_awaited(twin: Kipp) -> None:
    process = twin.popen("run", "--file", "-", stdin=-1, stdout=-1, stderr=-1, start_new_session=True)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == INTERRUPTED
    process.communicate()


def test_two_processes_share_one_artifact(twin: Kipp) -> None:
    runs = [twin.popen("run", "--json", *GREEDY, "--decode", "6", "Hi", stdout=-1, stderr=-1) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in runs]
    assert outputs[0] == outputs[1] and json.loads(outputs[0])["ids"]
    assert [process.returncode for process in runs] == [OK, OK]


def test_a_broken_model_is_refused_before_the_prompt_is_read(bare: Kipp, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 20)
    done = bare("run", "--model", broken, "--json", "--file", tmp_path / "absent.txt")
    assert done.returncode == MODEL and str(broken) in done.stderr.decode()


ESCAPE = 215  # the token of the byte 0x1B


def test_control_characters_reach_a_pipe_and_no_terminal(twin: Kipp) -> None:
    arguments = ("--greedy", "-q", "--decode", "3", "--logit-bias", f"{ESCAPE}=100", "Hi")
    assert twin.text("run", *arguments) == "\x1b" * 3 + "\n"
    with Terminal(twin.command("run", *arguments), twin.environment) as terminal:
        assert terminal.end() == OK
        assert terminal.raw == "\\x1b" * 3 + "\r\n"


def test_a_stop_string_of_many_tokens_leaves_nothing_of_itself(demo: Kipp) -> None:
    """The first tokens of the character have no text of their own: they end nothing yet."""
    character = "🫨"
    ids = [int(i) for i in demo.text("tokenize", character).split()]
    assert len(ids) > 2
    line = {"messages": [{"role": "user", "content": "Hi"}], "enable_thinking": False, "greedy": True}
    for count in (1, len(ids)):
        drawn = demo.lines("run", [line | {"logit_bias": {str(ids[0]): 100}, "decode": count, "stop": "\ufffd"}])[0]
        assert drawn["text"] == "" and drawn["message"].get("content", "") == "", drawn
        assert drawn["stop_string"] == "\ufffd"
