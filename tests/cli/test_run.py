"""`kipp run`: completion, chat, sampling, candidates, summary."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from kipp_process import FAILURE, INTERRUPTED, OK, OUTPUT_CLOSED, Kipp

IM_END, END_OF_TEXT = 151645, 151643
NEVER_STOP = ("--logit-bias", f"{IM_END}=-inf", "--logit-bias", f"{END_OF_TEXT}=-inf")
NEVER_STOP_FIELD = {"logit_bias": {str(IM_END): "-inf", str(END_OF_TEXT): "-inf"}}


def one(kipp: Kipp, **fields: Any) -> dict[str, Any]:
    return kipp.lines("run", [fields])[0]


def summary(stderr: bytes) -> str:
    return stderr.decode()


def test_greedy_text_is_that_of_its_ids(twin: Kipp) -> None:
    answer = one(twin, prompt="Hi 世界", decode=8, greedy=True, **NEVER_STOP_FIELD)
    assert list(answer) == ["text", "ids", "finish_reason", "prompt_tokens"]
    assert len(answer["ids"]) == 8 and answer["finish_reason"] == "length"
    assert twin.lines("detokenize", [{"ids": answer["ids"]}], "--skip-special")[0]["text"] == answer["text"]
    streamed = twin.text("run", "--greedy", "--decode", "8", *NEVER_STOP, "Hi 世界")
    assert streamed == answer["text"] + "\n"
    assert twin.text("run", "--temperature", "0", "--decode", "8", *NEVER_STOP, "Hi 世界") == streamed
    assert one(twin, prompt="Hi 世界", decode=8, temperature=0, **NEVER_STOP_FIELD) == answer


def test_greedy_is_the_best_candidate_each_time(twin: Kipp) -> None:
    prompt = "Hi"
    answer = one(twin, prompt=prompt, decode=1, greedy=True, top=3)
    assert answer["ids"] == [answer["top"][0]["id"]]
    assert [c["logit"] for c in answer["top"]] == sorted((c["logit"] for c in answer["top"]), reverse=True)


def test_stop_token_ends_and_is_not_shown(twin: Kipp) -> None:
    for stop in (IM_END, END_OF_TEXT):
        done = twin("run", "--greedy", "--logit-bias", f"{stop}=100", "--decode", "5", "Hi")
        assert done.returncode == OK and done.stdout == b"\n"
        assert "finish: stop" in summary(done.stderr)
        answer = one(twin, prompt="Hi", greedy=True, logit_bias={str(stop): 100}, decode=5)
        assert answer == {"text": "", "ids": [], "finish_reason": "stop", "prompt_tokens": 1}


def test_length_ends_at_the_limit(twin: Kipp) -> None:
    done = twin("run", "--seed", "1", "--decode", "3", *NEVER_STOP, "Hi")
    assert "finish: length," in summary(done.stderr) and "decode: 3 tokens" in summary(done.stderr)
    done = twin("run", "--decode", "0", "Hi")
    assert done.returncode == OK and done.stdout == b"\n" and "decode: 0 tokens" in summary(done.stderr)


def test_context_ends_a_generation(twin: Kipp) -> None:
    done = twin("run", "--seed", "1", "--context", "40", *NEVER_STOP, "Hi 世界")
    assert done.returncode == OK
    assert "decode: 37 tokens" in summary(done.stderr) and "the context is full" in summary(done.stderr)


def test_prompt_longer_than_the_context_names_both_numbers(twin: Kipp) -> None:
    prompt = "a b " * 50
    num_tokens = len(twin.text("tokenize", prompt).split())
    done = twin("run", "--context", "64", prompt)
    assert done.returncode == FAILURE and not done.stdout
    assert f" {num_tokens} " in done.stderr.decode() and " 64" in done.stderr.decode()
    answers = twin.lines("run", [{"prompt": prompt}, {"prompt": "Hi", "decode": 1}], "--context", "64", code=FAILURE)
    assert answers[0]["error"]["code"] == "capacity" and "ids" in answers[1]


def test_empty_prompt(twin: Kipp) -> None:
    done = twin("run", "")
    assert done.returncode == FAILURE and "nothing to predict from" in done.stderr.decode()
    answer = twin.lines("run", [{"prompt": ""}], code=FAILURE)[0]
    assert "nothing to predict from" in answer["error"]["message"]


def test_invalid_utf8_prompt(twin: Kipp) -> None:
    done = twin("run", b"abc\xffd")
    assert done.returncode == FAILURE and not done.stdout
    assert "offset 3" in done.stderr.decode() or "byte 3" in done.stderr.decode()


def test_special_tokens_in_a_raw_prompt(twin: Kipp) -> None:
    done = twin("run", "--decode", "0", "<|im_end|>")
    assert "prompt: 1 tokens" in summary(done.stderr)
    done = twin("run", "--decode", "0", "--plain", "<|im_end|>")
    assert "prompt: 6 tokens" in summary(done.stderr)
    parsed, plain = twin.lines(
        "run", [{"prompt": "<|im_end|>", "top": 1}, {"prompt": "<|im_end|>", "plain": True, "top": 1}]
    )
    assert parsed["top"] != plain["top"]


def test_seed_decides(twin: Kipp) -> None:
    first = twin("run", "--seed", "7", "--decode", "6", *NEVER_STOP, "Hi")
    again = twin("run", "--seed", "7", "--decode", "6", *NEVER_STOP, "--threads", "1", "Hi")
    other = twin("run", "--seed", "8", "--decode", "6", *NEVER_STOP, "Hi")
    assert first.stdout == again.stdout != other.stdout
    assert "seed: 7\n" in summary(first.stderr)


def test_a_drawn_seed_reproduces_its_run(twin: Kipp) -> None:
    first = twin("run", "--decode", "6", *NEVER_STOP, "Hi")
    seed = re.search(r"seed: (\d+)\n", summary(first.stderr))
    assert seed
    assert twin("run", "--seed", seed[1], "--decode", "6", *NEVER_STOP, "Hi").stdout == first.stdout
    second = twin("run", "--decode", "6", *NEVER_STOP, "Hi")
    assert second.stdout != first.stdout


def test_a_line_does_not_depend_on_its_neighbours(twin: Kipp) -> None:
    line = {"prompt": "Hi 世界", "decode": 5, "seed": 3, **NEVER_STOP_FIELD}
    other = {"prompt": "x y z " * 20, "decode": 3, "seed": 4}
    alone = one(twin, **line)
    assert twin.lines("run", [other, line, {"prompt": ""}, line], code=FAILURE)[1::2] == [alone, alone]
    assert twin.text("run", "--seed", "3", "--decode", "5", *NEVER_STOP, "Hi 世界") == alone["text"] + "\n"
    unseeded = {"prompt": "Hi", "decode": 6}
    assert len({json.dumps(a) for a in twin.lines("run", [unseeded] * 3)}) == 3
    assert len({json.dumps(a) for a in twin.lines("run", [unseeded] * 3, "--seed", "5")}) == 1


def test_bias_and_ban(twin: Kipp) -> None:
    assert one(twin, prompt="Hi", greedy=True, decode=2, logit_bias={"9707": 100})["ids"] == [9707, 9707]
    best, second = one(twin, prompt="Hi", greedy=True, decode=1, top=2)["top"]
    banned = one(twin, prompt="Hi", greedy=True, decode=1, logit_bias={str(best["id"]): "-inf"})
    assert banned["ids"] == [second["id"]]
    text = twin.text("run", "--greedy", "--decode", "2", "--logit-bias", "9707=100", "--logit-bias", "1=-3", "Hi")
    assert text == "HelloHello\n"


def test_top_k_1_is_greedy_and_penalties_change_the_choice(twin: Kipp) -> None:
    greedy = one(twin, prompt="Hi", greedy=True, decode=4, **NEVER_STOP_FIELD)
    for only_the_best in ({"top_k": 1}, {"top_p": 0}, {"min_p": 1}):
        answer = one(twin, prompt="Hi", seed=9, decode=4, **only_the_best, **NEVER_STOP_FIELD)
        assert answer == greedy | {"seed": 9}
    bias = {"logit_bias": {"9707": 100, "1879": 99}}
    assert one(twin, prompt="Hi", top_k=1, decode=2, **bias)["ids"] == [9707, 9707]
    for penalty in ({"presence_penalty": 2}, {"frequency_penalty": 2}, {"repetition_penalty": 100}):
        assert one(twin, prompt="Hi", top_k=1, decode=2, **bias, **penalty)["ids"] == [9707, 1879], penalty


TOP_LINE = re.compile(r"^ *(\d+) +(\d+) +(-?[0-9.]+(?:e[-+]\d+)?) (\".*\")$")


def test_top_prints_rank_id_logit_piece(twin: Kipp) -> None:
    done = twin("run", "--top", "10", "Hi 世界")
    assert done.returncode == OK
    rows = [TOP_LINE.match(line) for line in done.stdout.decode().splitlines()]
    assert len(rows) == 10 and all(rows)
    matched = [row.groups() for row in rows if row]
    assert [int(rank) for rank, *_ in matched] == list(range(1, 11))
    logits = [float(logit) for _, _, logit, _ in matched]
    assert logits == sorted(logits, reverse=True)
    for text, value in zip((row[2] for row in matched), logits, strict=True):
        single = struct.unpack("f", struct.pack("f", value))[0]
        assert f"{single:.9g}" == text
    pieces = twin.text("tokenize", "--pieces", twin.text("detokenize", matched[0][1])[:-1]).splitlines()
    assert pieces[0].endswith(f" {matched[0][3]}")
    assert "decode: 0 tokens" in summary(done.stderr)


def test_top_goes_on_only_with_decode(twin: Kipp) -> None:
    text = twin.text("run", "--top", "1", "--decode", "2", "--greedy", "--logit-bias", "9707=100", "Hi")
    assert TOP_LINE.match(text.splitlines()[0]) and text.splitlines()[1:] == ["HelloHello"]
    answer = one(twin, prompt="Hi", top=2)
    assert answer["ids"] == [] and len(answer["top"]) == 2
    assert set(answer["top"][0]) == {"id", "logit", "piece"}


def test_quiet_and_summary(twin: Kipp) -> None:
    done = twin("run", "--decode", "2", "--seed", "1", *NEVER_STOP, "Hi")
    assert re.fullmatch(
        r"prompt: 1 tokens in \d+\.\d\d s( \([\d.]+ tok/s\))?\ndecode: 2 tokens in \d+\.\d\d s( \([\d.]+ tok/s\))?\n"
        r"finish: length, backend: cpu, seed: 1\n",
        summary(done.stderr),
    )
    done = twin("run", "-q", "--decode", "2", "Hi")
    assert done.returncode == OK and done.stderr == b""


def test_chat_flags_and_lines_make_the_same_prompt(twin: Kipp, tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "search", "parameters": {}}}]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(tools))
    sampling = ("--greedy", "--decode", "4", *NEVER_STOP)
    flags = ("--system", "Be brief.", "--thinking", "off", "--tools", str(path))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    line = {"messages": messages, "tools": tools, "enable_thinking": False}
    (answer,) = twin.lines("run", [line], *sampling)
    assert twin.text("run", "--chat", *flags, *sampling, "Hi") == answer["text"] + "\n"
    assert twin.lines("run", [{"prompt": "Hi"}], "--chat", *flags, *sampling) == [answer]
    done = twin("run", "--chat", *flags, "--decode", "0", "Hi")
    num_tokens = len(twin.text("render", *flags, "--ids", "Hi").split())
    assert f"prompt: {num_tokens} tokens" in summary(done.stderr)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, '"prompt"'),
        ({"prompt": ["Hi"]}, '"prompt"'),
        ({"prompt": "Hi", "messages": [{"role": "user", "content": "x"}]}, "found both"),
        ({"prompt": "Hi", "logit_bias": {"5": -1e300}}, 'expected -100 to 100 or "-inf", found -1e+300'),
        ({"prompt": "Hi", "logprobs": 21}, "expected 0 to 20, found 21"),
        ({"prompt": "Hi", "stop": 5}, 'field "stop": expected a string or an array of strings, found 5'),
        ({"prompt": "Hi", "stop": ["a", None]}, '"stop[1]"'),
        ({"prompt": "Hi", "frobnicate": 1}, '"frobnicate"'),
        ({"prompt": "Hi", "max_tokens": 1}, '"max_tokens"'),
        ({"prompt": "Hi", "tools": []}, '"tools"'),
        ({"prompt": "Hi", "decode": -1}, '"decode"'),
        ({"prompt": "Hi", "decode": 1.5}, '"decode"'),
        ({"prompt": "Hi", "decode": "1"}, '"decode"'),
        ({"prompt": "Hi", "top": -1}, '"top"'),
        ({"prompt": "Hi", "temperature": "hot"}, '"temperature"'),
        ({"prompt": "Hi", "temperature": -1}, "temperature"),
        ({"prompt": "Hi", "temperature": 1e300}, "temperature"),
        ({"prompt": "Hi", "top_p": 2}, "top_p"),
        ({"prompt": "Hi", "seed": -1}, '"seed"'),
        ({"prompt": "Hi", "seed": 1.0}, '"seed"'),
        ({"prompt": "Hi", "greedy": 1}, '"greedy"'),
        ({"prompt": "Hi", "logit_bias": [1]}, '"logit_bias"'),
        ({"prompt": "Hi", "logit_bias": {"x": 1}}, '"logit_bias"'),
        ({"prompt": "Hi", "logit_bias": {"5": "high"}}, '"logit_bias.5"'),
        ({"prompt": "Hi", "logit_bias": {"151800": 100}}, "151800"),
        ({"messages": [], "decode": 1}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}], "plain": True}, '"plain"'),
    ],
)
def test_bad_lines(twin: Kipp, line: dict[str, Any], part: str) -> None:
    bad, good = twin.lines("run", [line, {"prompt": "Hi", "decode": 1}], code=FAILURE)
    assert list(bad) == ["error"] and bad["error"]["line"] == 1
    assert part in bad["error"]["message"] and "found " in bad["error"]["message"]
    assert "ids" in good


def test_null_fields_count_as_absent(twin: Kipp) -> None:
    nulls = dict.fromkeys(("temperature", "top_k", "logit_bias", "plain", "top", "seed", "messages", "tools"))
    assert one(twin, prompt="Hi", decode=2, greedy=True, **nulls) == one(twin, prompt="Hi", decode=2, greedy=True)


def test_a_line_can_undo_the_greedy_flag(twin: Kipp) -> None:
    lines = [{"prompt": "Hi", "decode": 6, "seed": seed, "greedy": False, **NEVER_STOP_FIELD} for seed in range(5)]
    answers = twin.lines("run", lines, "--greedy", "--temperature", "1")
    assert len({tuple(answer["ids"]) for answer in answers}) > 1


def test_streams_may_be_non_blocking(twin: Kipp) -> None:
    ends = os.pipe2(os.O_NONBLOCK)
    process = twin.popen("run", "--jsonl", "--greedy", "--decode", "1", "-q", stdin=ends[0], stdout=-1, stderr=-1)
    os.close(ends[0])
    time.sleep(0.3)  # nothing to read yet
    os.write(ends[1], b'{"prompt": "Hi", "top": 3000}\n')
    os.close(ends[1])
    output, errors = process.communicate(timeout=60)
    assert process.returncode == OK, errors
    whole = json.loads(output)
    read, write = os.pipe2(os.O_NONBLOCK)
    process = twin.popen("run", "--jsonl", "--greedy", "--decode", "1", "-q", stdin=-1, stdout=write, stderr=-1)
    os.close(write)
    assert process.stdin is not None
    process.stdin.write(b'{"prompt": "Hi", "top": 3000}\n')  # an answer larger than a pipe
    process.stdin.close()
    time.sleep(1.0)  # the pipe is full
    os.set_blocking(read, True)
    with os.fdopen(read, "rb") as pipe:
        assert json.loads(pipe.read()) == whole
    assert process.wait(timeout=60) == OK


def endless(kipp: Kipp, *arguments: str) -> subprocess.Popen[bytes]:
    """A run that goes on for thousands of tokens."""
    process = kipp.popen(
        "run", *NEVER_STOP, "--seed", "1", *arguments, stdin=-1, stdout=-1, stderr=-1, start_new_session=True
    )
    return process


def test_interrupt_ends_with_a_summary(twin: Kipp) -> None:
    process = endless(twin, "Hi")
    assert process.stdout is not None
    assert process.stdout.read(1)  # streaming: the first characters come long before the end
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED
    assert "finish: interrupted" in summary(stderr) and stdout.endswith(b"\n")


def test_interrupt_of_json_lines(twin: Kipp) -> None:
    process = endless(twin, "--jsonl")
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b'{"prompt": "Hi", "decode": 1}\n{"prompt": "Hi"}\n')
    process.stdin.flush()
    assert process.stdout.readline()
    time.sleep(0.5)  # the second line is at work: it lasts much longer
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == INTERRUPTED
    assert stdout == b"" and "lines: 2" in summary(stderr)


def test_interrupt_while_waiting_for_a_line(twin: Kipp) -> None:
    process = endless(twin, "--jsonl")
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b'{"prompt": "Hi", "decode": 1}\n')
    process.stdin.flush()
    assert process.stdout.readline()
    time.sleep(0.2)  # let it block in read
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == INTERRUPTED
    process.communicate()


def test_closed_output_ends_quietly(twin: Kipp) -> None:
    process = endless(twin, "-q", "Hi")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=30) == OUTPUT_CLOSED
    assert process.stderr.read() == b""


def test_standard_error_may_be_closed(twin: Kipp) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        twin.command("run", "--decode", "1", "Hi"),
        stdout=subprocess.PIPE,
        stderr=writer,
        env=twin.environment,
        check=False,
    )
    os.close(writer)
    assert done.returncode == OK


def test_the_demo_answers(demo: Kipp) -> None:
    answer = demo.text("run", "-q", "--chat", "--thinking", "off", "--greedy", "What is the capital of France?")
    assert "Paris" in answer
