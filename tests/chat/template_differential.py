"""Renders random conversations with the official Jinja templates and with Kipp, and compares them byte for byte.

Kipp is any command that reads JSON Lines in chat.jsonl's fields and writes {"rendered": ...} lines, such as
`kipp render --jsonl --model ARTIFACT`. Needs jinja2. The templates are the one in tokenizer_config.json and its 2507
relatives made from it; each must first reproduce the golden cases.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

REPOSITORY = Path(__file__).resolve().parents[2]
FRAGMENTS = [
    "\n", "\n\n", " ", "\t", "\r\n", "\r", "", "Hello", "世界", "é", "e\u0301", "😀", "\u2028", "\x00", "\x7f",
    "a b", "<think>", "</think>", "<think>\n", "\n</think>\n\n", "<tool_response>", "</tool_response>", "<tool_call>",
    "</tool_call>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tools>", '{"a": 1}', "{{ x }}", "{% if %}",
    '"', "\\",
]  # fmt: skip


def replace_once(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def templates() -> dict[str, str]:
    """The pinned templates: the bundled one, with the rules for non-string content that the later revisions added."""
    config = json.loads((REPOSITORY / "data/qwen3-tokenizer/tokenizer_config.json").read_text(encoding="utf-8"))
    text = config["chat_template"]
    text = replace_once(text, '== "user" and not(', '== "user" and message.content is string and not(')
    text = replace_once(
        text,
        '{%- for message in messages %}\n    {%- if (message.role == "user")',
        "{%- for message in messages %}\n"
        "    {%- set content = message.content if message.content is string else '' %}\n"
        '    {%- if (message.role == "user")',
    )
    text = replace_once(text, "message.content + '<|im_end|>' + '\\n'", "content + '<|im_end|>' + '\\n'")
    text = replace_once(text, "        {%- set content = message.content %}\n", "")
    text = replace_once(
        text,
        "message.reasoning_content is defined and message.reasoning_content is not none",
        "message.reasoning_content is string",
    )
    reasoning = "            {%- set reasoning_content = message.content.split('</think>')[0]"
    start = text.index("                {%- set content = message.content.split")
    end = text.index("            {%- endif %}", start)
    assert reasoning.strip() in text[start:end]
    text = (
        text[:start]
        + "                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n') %}\n"
        + "                {%- set reasoning_content = reasoning_content.split('<think>')[-1].lstrip('\\n') %}\n"
        + "                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"
        + text[end:]
    )
    text = replace_once(text, "'</think>' in message.content", "'</think>' in content")
    text = replace_once(text, "        {{- message.content }}", "        {{- content }}")
    for tail in (" + '\\n\\n' }}", " + '<|im_end|>\\n' }}"):
        text = replace_once(
            text, "messages[0].content" + tail, "(messages[0].content if messages[0].content is string else '')" + tail
        )
    tail = text.index("    {{- '<|im_start|>assistant\\n' }}")
    thinking = text[:tail] + "    {{- '<|im_start|>assistant\\n<think>\\n' }}\n{%- endif %}"
    body = text.index("        {%- set reasoning_content = '' %}")
    calls = text.index("        {%- if message.tool_calls %}")
    instruct = text[:body] + "        {{- '<|im_start|>' + message.role + '\\n' + content }}\n" + text[calls:tail]
    instruct += "    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}"
    return {"instruct": text, "instruct-2507": instruct, "thinking-2507": thinking}


class Reference:
    def __init__(self) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self.templates = {name: environment.from_string(text) for name, text in templates().items()}

    def render(self, case: dict[str, Any]) -> str:
        fields = {name: case[name] for name in ("messages", "tools", "add_generation_prompt") if name in case}
        if case.get("enable_thinking") is not None:
            fields["enable_thinking"] = case["enable_thinking"]
        return self.templates[case["variant"]].render(**fields)


class Generator:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def text(self) -> str:
        return "".join(self.rng.choices(FRAGMENTS, k=self.rng.randrange(7)))

    def number(self) -> int | float:
        kind = self.rng.randrange(4)
        if kind == 0:
            return self.rng.randrange(-(10**25), 10**25)
        if kind == 1:
            return self.rng.randrange(-5, 5)
        if kind == 2:
            return round(self.rng.uniform(-100, 100), self.rng.randrange(5))
        return self.rng.uniform(-1, 1) * 10.0 ** self.rng.randrange(-30, 30)

    def value(self, depth: int = 0) -> Any:
        kind = self.rng.randrange(5 if depth > 3 else 7)
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.rng.randrange(4))]
        if kind == 6:
            return {self.text(): self.value(depth + 1) for _ in range(self.rng.randrange(4))}
        return [None, self.rng.random() < 0.5, self.number(), self.text(), self.text()][kind]

    def tool_call(self) -> dict[str, Any]:
        function = {"name": self.text(), "arguments": self.rng.choice([self.value, self.text])()}
        shape = self.rng.randrange(4)
        if shape == 0:
            return function
        if shape == 1:
            return {**function, "function": self.rng.choice([None, {}])}
        return {"id": "c", "type": "function", "function": function}

    def message(self) -> dict[str, Any]:
        role = self.rng.choices(["system", "user", "assistant", "tool"], [1, 4, 6, 4])[0]
        message: dict[str, Any] = {"role": role, "content": self.text()}
        if self.rng.random() < 0.1:
            message["content"] = self.rng.choice([None, 5, [{"type": "text", "text": "x"}], {}, True])
        elif self.rng.random() < 0.1:
            message["content"] = f"<tool_response>{self.text()}</tool_response>"
        elif self.rng.random() < 0.05:
            del message["content"]
        if role == "assistant" and self.rng.random() < 0.4:
            message["reasoning_content"] = self.rng.choice([self.text(), self.text(), None, "", 7])
        if role == "assistant" and self.rng.random() < 0.4:
            message["tool_calls"] = [self.tool_call() for _ in range(self.rng.randrange(4))]
        return message

    def case(self) -> dict[str, Any]:
        case: dict[str, Any] = {
            "variant": self.rng.choice(["instruct", "instruct-2507", "thinking-2507"]),
            "messages": [self.message() for _ in range(self.rng.randrange(1, 9))],
            "add_generation_prompt": self.rng.random() < 0.5,
        }
        if self.rng.random() < 0.3:
            case["tools"] = [{"type": "function", "function": self.value()} for _ in range(self.rng.randrange(3))]
        if self.rng.random() < 0.6:
            case["enable_thinking"] = self.rng.choice([True, False, None])
        return case


def check_golden(reference: Reference) -> None:
    lines = (REPOSITORY / "tests/golden/chat.jsonl").read_text(encoding="ascii").splitlines()
    wrong = [case["name"] for case in map(json.loads, lines) if reference.render(case) != case["rendered"]]
    if wrong:
        sys.exit(f"the reference templates do not reproduce the golden cases {wrong}")
    print(f"reference templates reproduce {len(lines)} golden cases")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("command", nargs="+", help="after --: Kipp's command")
    args = parser.parse_args()
    reference = Reference()
    check_golden(reference)
    generator = Generator(args.seed)
    cases = [generator.case() for _ in range(args.count)]
    source = "".join(json.dumps(case, ensure_ascii=generator.rng.random() < 0.5) + "\n" for case in cases)
    done = subprocess.run(args.command, input=source.encode(), stdout=subprocess.PIPE, check=False)
    results = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    wrong = 0
    for case, result in zip(cases, results, strict=True):
        expected = reference.render(case)
        if result.get("rendered") != expected:
            wrong += 1
            if wrong <= 3:
                print(f"differs: {json.dumps(case)}\n expected {expected!r}\n found    {result!r}")
    print(f"{len(cases)} conversations, {wrong} differ")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
