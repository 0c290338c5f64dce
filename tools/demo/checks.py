"""Exact checks of answers, one per kind; what each prompt of the held-out set expects is in its `check` field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

TOOL_CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)


def split_thinking(text: str, thinking: bool) -> tuple[str | None, str]:
    """Thinking text and answer. With thinking on, a text that never closes it has no answer."""
    if not thinking:
        return None, text.strip()
    head, mark, tail = text.partition("</think>")
    if not mark:
        return head, ""
    return head.removeprefix("<think>").strip(), tail.strip()


def parse_tool_calls(answer: str) -> list[Any] | None:
    """The calls in an answer, or None where one is not JSON."""
    try:
        return [json.loads(body) for body in TOOL_CALL.findall(answer)]
    except json.JSONDecodeError:
        return None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _in_order(answer: str, words: list[str]) -> bool:
    position = 0
    for word in words:
        match = re.compile(rf"\b{re.escape(word)}\b").search(answer, position)
        if match is None:
            return False
        position = match.end()
    return True


def _json_equals(answer: str, value: Any) -> bool:
    body = answer.removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    try:
        return _canonical(json.loads(body)) == _canonical(value)
    except json.JSONDecodeError:
        return False


def _numbers(answer: str) -> list[int]:
    return [int(number) for number in re.findall(r"(?<!\d)-?\d+", answer)]


CHECKS: dict[str, Callable[[str, dict[str, Any]], bool]] = {
    "number": lambda answer, check: _numbers(answer)[-1:] == [check["value"]],
    "sequence": lambda answer, check: _numbers(answer) == check["items"],
    "words": lambda answer, check: _in_order(answer, check["items"]),
    "contains": lambda answer, check: all(text in answer for text in check["all"]),
    "any": lambda answer, check: any(text in answer for text in check["any"]),
    "starts": lambda answer, check: answer.startswith(check["text"]),
    "json": lambda answer, check: _json_equals(answer, check["value"]),
}


def is_right(check: dict[str, Any], answer: str) -> bool:
    kind = check["kind"]
    if kind == "tool_calls":
        calls = parse_tool_calls(answer)
        return calls is not None and sorted(map(_canonical, calls)) == sorted(map(_canonical, check["calls"]))
    if "<tool_call>" in answer:
        return False
    return CHECKS[kind](answer, check)
