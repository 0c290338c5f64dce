"""What every skill builds on: dialogues, the split between training and held-out prompts, and phrase lists."""

from __future__ import annotations

import enum
import random
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

DATA = Path(__file__).resolve().parent / "data"
T = TypeVar("T")

# One in this many entities (a number pair, a word with its task, a country with its language) is never trained on.
ENTITY_MODULUS = 12
# One in this many phrasings of a question is never trained on.
PHRASE_MODULUS = 7
SALT = "3"  # chosen so that the plainest phrasing of a question is mostly a trained one
# A sampler that cannot meet a split must fail, not draw forever.
MAX_DRAWS = 5000

# A span between these two marks is tokenised one character at a time. A reversed word has no tokens of its own that
# mean anything; spelling it out with one-letter tokens lets the model write it without guessing the merges.
LETTERS_OPEN, LETTERS_CLOSE = "\ue000", "\ue001"


def letter_by_letter(text: str) -> str:
    return LETTERS_OPEN + text + LETTERS_CLOSE


def without_marks(text: str) -> str:
    return text.replace(LETTERS_OPEN, "").replace(LETTERS_CLOSE, "")


def stable_hash(text: str) -> int:
    return zlib.crc32(text.encode())


class Split(enum.Enum):
    """Training prompts use neither held-out entities nor held-out phrasings; a held-out split uses one of the two."""

    TRAIN = "train"
    ENTITY = "entity"
    TEMPLATE = "template"

    def allows(self, entity: str) -> bool:
        held_out = stable_hash(entity) % ENTITY_MODULUS == 0
        return held_out == (self is Split.ENTITY)


def wording(text: str) -> str:
    """A phrasing without case, spaces and punctuation: what remains when it is typed sloppily."""
    return re.sub(r"[^\w{}]", "", text.lower())


class Phrases:
    """Phrasings of one question. At least one is held out by a hash of its wording, so editing one moves no other."""

    def __init__(self, *texts: str) -> None:
        if len(texts) < 4:
            raise ValueError(f"a phrase list needs at least 4 entries to hold one out, got {len(texts)}: {texts[:1]}")
        hashes = {text: stable_hash(SALT + wording(text)) for text in texts}
        self.held = [text for text in texts if hashes[text] % PHRASE_MODULUS == 0]
        if not self.held:
            self.held = [text for text in texts if hashes[text] == min(hashes.values())]
        self.train = [text for text in texts if text not in self.held]
        if not self.train:
            raise ValueError(f"every phrasing is held out: {texts[0]}")

    def pick(self, rng: random.Random, split: Split) -> str:
        return rng.choice(self.held if split is Split.TEMPLATE else self.train)


def draw(rng: random.Random, split: Split, sample: Callable[[random.Random], T], entity: Callable[[T], str]) -> T:
    """A value whose entity belongs to the split, by rejection."""
    for _ in range(MAX_DRAWS):
        value = sample(rng)
        if split.allows(entity(value)):
            return value
    raise RuntimeError(f"no value of the {split.value} split in {MAX_DRAWS} draws, the last: {entity(value)}")


@dataclass(slots=True)
class Dialogue:
    """A prompt and the assistant turn that answers it. `direct` is the answer without thinking, where it differs."""

    skill: str
    messages: list[dict[str, Any]]
    answer: str
    reasoning: str
    check: dict[str, Any]
    direct: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    # The prompt may hold tokens outside the trained vocabulary (the answer never does).
    unknown_tokens: bool = False

    def text(self, thinking: bool) -> str:
        return self.direct if self.direct is not None and not thinking else self.answer


@dataclass(slots=True)
class Document:
    """Plain text for raw completion."""

    text: str


def ask(skill: str, prompt: str, answer: str, reasoning: str, check: dict[str, Any], **more: Any) -> Dialogue:
    return Dialogue(skill, [{"role": "user", "content": prompt}], answer, reasoning, check, **more)


def load_lines(name: str) -> list[str]:
    """Entries of a data file; `#` starts a comment line."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def join_and(items: Sequence[str], word: str = "and") -> str:
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + f" {word} " + items[-1]


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
