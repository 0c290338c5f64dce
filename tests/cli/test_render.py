"""`kipp render`: chats to prompts."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from kipp_process import FAILURE, GOLDEN, INTERRUPTED, Kipp, golden

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
ADDED_TOKENS = ("<|", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def holds_control_token(case: dict[str, Any]) -> bool:
    content = json.dumps([case["messages"], case["tools"]], ensure_ascii=False)
    return any(token in content for token in ADDED_TOKENS)


def has_unknown_role(case: dict[str, Any]) -> bool:
    """The template drops such messages without a word; Kipp refuses them."""
    return any(message["role"] not in ("system", "user", "assistant", "tool") for message in case["messages"])


def test_golden_file_as_it_is(twin: Kipp) -> None:
    cases = golden("chat.jsonl")
    done = twin("render", "--jsonl", stdin=(GOLDEN / "chat.jsonl").read_bytes())
    assert done.returncode == FAILURE, done.stderr.decode()  # of the unknown roles
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    compared = 0
    for answer, case in zip(answers, cases, strict=True):
        if has_unknown_role(case):
            assert "role" in answer["error"]["message"]
            continue
        assert list(answer) == ["rendered", "ids"]
        assert answer["rendered"] == case["rendered"], case["name"]
        if not holds_control_token(case):
            assert answer["ids"] == case["ids"], case["name"]
            compared += 1
    assert compared >= len(cases) // 2
    assert sum(map(has_unknown_role, cases)) == 1


def test_flags_make_the_same_chat_as_a_line(twin: Kipp, tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    flags = ("--system", "Be brief.", "--thinking", "off", "--tools", str(tools))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    line = {"messages": messages, "enable_thinking": False, "tools": TOOLS}
    (expected,) = twin.lines("render", [line])
    assert twin.text("render", *flags, "Hello") == expected["rendered"]
    assert twin.text("render", *flags, "--ids", "Hello").split() == [str(i) for i in expected["ids"]]
    # The flags are defaults of lines that say nothing, and only of those.
    assert twin.lines("render", [{"messages": messages[1:]}, line], *flags) == [expected, expected]
    own = {"messages": [{"role": "system", "content": "Own."}, messages[1]], "enable_thinking": True, "tools": []}
    assert twin.lines("render", [own], *flags) == twin.lines("render", [own])


def test_generation_prompt_and_variant(twin: Kipp) -> None:
    assert twin.text("render", "Hello") == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert twin.text("render", "--no-generation-prompt", "Hello") == "<|im_start|>user\nHello<|im_end|>\n"
    assert twin.text("render", "--variant", "thinking-2507", "Hello").endswith("assistant\n<think>\n")


def test_control_tokens_come_from_the_renderer_alone(twin: Kipp) -> None:
    ids = twin.text("render", "--ids", "please print <|im_end|> now").split()
    assert ids.count("151645") == 1 and ids.count("151644") == 2
    content = ["30021", "1173", "82639", "318", "6213", "91", "29", "1431"]
    start = ids.index("30021")
    assert ids[start : start + len(content)] == content


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "wizard"),
        ({"messages": [{"role": "user", "content": "x"}], "variant": "gpt"}, "gpt"),
        ({"messages": [{"role": "user", "content": "x"}], "variant": "base"}, "base"),
        ({"messages": [{"role": "user", "content": "x"}], "variant": ""}, "variant"),
        ({"messages": [{"role": "user", "content": "x"}], "frobnicate": 1}, '"frobnicate"'),
        ({"prompt": "x"}, '"prompt"'),
    ],
)
def test_bad_lines(twin: Kipp, line: dict[str, Any], part: str) -> None:
    good = {"messages": [{"role": "user", "content": "x"}]}
    bad, after = twin.lines("render", [line, good], code=FAILURE)
    assert part in bad["error"]["message"] and bad["error"]["line"] == 1
    assert after["ids"]


def test_tools_files_that_cannot_be_used(twin: Kipp, tmp_path: Path) -> None:
    done = twin("render", "--tools", tmp_path / "absent.json", "Hi")
    assert done.returncode == FAILURE and "absent.json" in done.stderr.decode()
    broken = tmp_path / "broken.json"
    broken.write_text("[{]")
    done = twin("render", "--tools", broken, "Hi")
    assert done.returncode == FAILURE and "broken.json" in done.stderr.decode()
    broken.write_text('"text"')
    done = twin("render", "--tools", broken, "Hi")
    assert done.returncode == FAILURE and "tools" in done.stderr.decode()


def test_tools_from_standard_input(twin: Kipp, tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    expected = twin.text("render", "--tools", tools, "Hi")
    assert "weather" in expected
    assert twin.text("render", "--tools", "-", "Hi", stdin=tools.read_bytes()) == expected


@pytest.mark.parametrize("command", ["render", "run", "chat"])
def test_an_interrupt_after_whole_tools_is_one(twin: Kipp, command: str) -> None:
    arguments = {"render": ["--tools", "-", "Hi"], "run": ["--chat", "--decode", "1", "--tools", "-", "Hi"]}
    fifo = arguments.get(command) or ["--tools", "/dev/fd/0"]
    process = twin.popen(command, *fifo, stdin=-1, stdout=-1, stderr=-1, start_new_session=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(TOOLS).encode())
    process.stdin.flush()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout, stderr) == (INTERRUPTED, b"", b"")


def test_invalid_utf8_in_a_chat(twin: Kipp) -> None:
    done = twin("render", b"abc\xff")
    assert done.returncode == FAILURE and not done.stdout
    assert "UTF-8" in done.stderr.decode() and "3" in done.stderr.decode()
