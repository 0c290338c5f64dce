"""The Qwen3 chat template as plain Python: the same text as the Jinja template (a test compares them), but fast."""

from __future__ import annotations

import json
from typing import Any

from tools.demo.core import Dialogue

TOOLS_OPEN = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
TOOLS_CLOSE = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n'
)
NO_THINKING = "<think>\n\n</think>\n\n"


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def render_calls(calls: list[dict[str, Any]], content: str) -> str:
    texts = [
        f'<tool_call>\n{{"name": "{c["name"]}", "arguments": {dump(c["arguments"])}}}\n</tool_call>' for c in calls
    ]
    return ("\n" if content and calls else "") + "\n".join(texts)


def _render_system(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
    system = messages[0]["content"] if messages[0]["role"] == "system" else None
    if tools:
        head = "<|im_start|>system\n" + (system + "\n\n" if system is not None else "")
        return head + TOOLS_OPEN + "".join("\n" + dump(tool) for tool in tools) + TOOLS_CLOSE
    return f"<|im_start|>system\n{system}<|im_end|>\n" if system is not None else ""


def render_prompt(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, thinking: bool) -> str:
    """The prompt that the final assistant turn continues. Earlier assistant turns carry no reasoning."""
    parts = [_render_system(messages, tools)]
    for index, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "user":
            parts.append(f"<|im_start|>user\n{content}<|im_end|>\n")
        elif role == "assistant":
            calls = render_calls([c["function"] for c in message.get("tool_calls", [])], content)
            parts.append(f"<|im_start|>assistant\n{content}{calls}<|im_end|>\n")
        elif role == "tool":
            first = messages[index - 1]["role"] != "tool"
            last = index + 1 == len(messages) or messages[index + 1]["role"] != "tool"
            parts.append("<|im_start|>user" if first else "")
            parts.append(f"\n<tool_response>\n{content}\n</tool_response>" + ("<|im_end|>\n" if last else ""))
    parts.append("<|im_start|>assistant\n" + ("" if thinking else NO_THINKING))
    return "".join(parts)


def render_completion(dialogue: Dialogue, thinking: bool) -> str:
    """What the model has to write, stop token included."""
    content = dialogue.text(thinking)
    head = f"<think>\n{dialogue.reasoning}\n</think>\n\n" if thinking else ""
    return head + content + render_calls(dialogue.tool_calls, content) + "<|im_end|>"
