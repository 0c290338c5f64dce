"""Prints the fixed text on which docs/MODELS.md compares the weight schemes: `python -m tools.demo.ppl_text`.

The first held-out cases with one question, no tools and no thinking, each a chat with the answer that it expects.
"""

from __future__ import annotations

import json
import sys

from tools.command import run_command
from tools.demo.heldout import PROMPTS

NUM_CASES = 80


def text() -> str:
    cases = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    plain = [case for case in cases
             if len(case["messages"]) == 1 and "tools" not in case and not case["enable_thinking"]]
    return "".join(f"<|im_start|>user\n{case['messages'][0]['content']}<|im_end|>\n<|im_start|>assistant\n"
                   f"<think>\n\n</think>\n\n{case['reference']}<|im_end|>\n" for case in plain[:NUM_CASES])


def main() -> int:
    sys.stdout.write(text())
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
