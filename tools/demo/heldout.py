"""Writes the held-out prompts: `python -m tools.demo.heldout`. The file is committed; a test compares it."""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

from tools.atomic_file import write_file
from tools.command import run_command
from tools.demo.core import Dialogue, Split, without_marks
from tools.demo.mixture import SKILLS

PROMPTS = Path(__file__).resolve().parent / "heldout.jsonl"
SEED = 20260
PER_SPLIT = 9
DECODE = 400
# Their answers are facts about one subject: nothing can be held out but the phrasing.
TEMPLATE_ONLY = ("greetings", "kipp")


def draw_prompts(skill: Any, split: Split, count: int, rng: random.Random) -> list[Dialogue]:
    """Distinct prompts; fewer where the held-out part has no more."""
    found: dict[str, Dialogue] = {}
    for _ in range(count * 60):
        dialogue = skill(rng, split)
        found.setdefault(json.dumps(dialogue.messages), dialogue)
        if len(found) == count:
            break
    return list(found.values())


def lines() -> list[str]:
    rng = random.Random(SEED)
    out: list[str] = []
    for skill, _ in SKILLS:
        for split in (Split.ENTITY, Split.TEMPLATE):
            name = skill(random.Random(0), Split.TRAIN).skill
            count = PER_SPLIT
            if name in TEMPLATE_ONLY:
                count = 0 if split is Split.ENTITY else 2 * PER_SPLIT
            for dialogue in draw_prompts(skill, split, count, rng):
                for thinking in (True, False):
                    out.append(_line(len(out), dialogue, split, thinking))
    return out


def _line(number: int, dialogue: Dialogue, split: Split, thinking: bool) -> str:
    record: dict[str, Any] = {
        "id": f"{number:04}",
        "skill": dialogue.skill,
        "split": split.value,
        "messages": dialogue.messages,
    }
    if dialogue.tools is not None:
        record["tools"] = dialogue.tools
    record |= {"enable_thinking": thinking, "decode": DECODE, "temperature": 0, "check": dialogue.check}
    record["reference"] = without_marks(dialogue.text(thinking))
    return json.dumps(record)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PROMPTS)
    arguments = parser.parse_args()
    text = "".join(line + "\n" for line in lines())
    write_file(arguments.output, text.encode())
    print(f"{arguments.output}: {text.count(chr(10))} prompts")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
