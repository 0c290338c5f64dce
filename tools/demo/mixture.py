"""The training mixture: which skill how often, with histories, system prompts, unneeded tools and sloppy typing."""

from __future__ import annotations

import random
from collections.abc import Callable

from tools.demo.core import Dialogue, Document, Split, without_marks
from tools.demo.skills import (
    about,
    arithmetic,
    capitals,
    dates,
    followups,
    json_objects,
    languages,
    ordering,
    stories,
    toolcalls,
    units,
    unknown,
    words,
)

Skill = Callable[[random.Random, Split], Dialogue]

# Share of dialogues. Skills that need computing get more than skills that need recall.
SKILLS: tuple[tuple[Skill, float], ...] = (
    (about.greetings, 4.0),
    (about.kipp, 7.0),
    (arithmetic.addition, 4.5),
    (arithmetic.subtraction, 5.0),
    (arithmetic.multiplication, 7.5),
    (arithmetic.division, 4.0),
    (arithmetic.word_problem, 4.5),
    (ordering.counting, 4.5),
    (ordering.sorting, 6.0),
    (ordering.comparing, 5.0),
    (words.spelling, 4.5),
    (words.reversing, 5.5),
    (words.letters, 7.0),
    (dates.days, 3.0),
    (dates.months, 3.5),
    (capitals.capitals, 7.0),
    (units.units, 6.0),
    (json_objects.json_objects, 5.5),
    (toolcalls.tool_call, 4.0),
    (toolcalls.parallel_calls, 2.5),
    (toolcalls.tool_answer, 3.0),
    (languages.languages, 6.0),
    (unknown.unknown, 4.0),
    (stories.told_story, 2.0),
    (followups.followup, 4.0),
)
DOCUMENT_SHARE = 0.07
FOREIGN_SHARE = 0.02
THINKING_SHARE = 0.5
SYSTEM_SHARE = 0.12
HISTORY_SHARE = 0.15
SLOPPY_SHARE = 0.25
UNUSED_TOOLS_SHARE = 0.04

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are Kipp's demo model.",
    "You are a friendly assistant.",
    "Answer briefly.",
    "You are a helpful AI assistant. Answer in one sentence.",
    "Be polite.",
    "You are an assistant that answers questions.",
    "Keep your answers short.",
    "You are a careful assistant. Do not guess.",
    "You are a small language model.",
    "Answer the user's question.",
    "You help people with small tasks.",
    "You are an expert assistant.",
    "Answer truthfully and briefly.",
    "You are a chatbot.",
    "The user is a beginner.",
    "Be concise.",
)
TYPOS = (("What is", "what is"), ("the ", "teh "), ("please", "pls"), ("Please", "Pls"), ("you", "u"), ("How", "how"))
PREFIXES = (
    "Please tell me: ",
    "Hey, ",
    "Hi! ",
    "Kipp, ",
    "Question: ",
    "Ok, ",
    "One more: ",
    "Hello. ",
    "Now: ",
    "So, ",
)
SUFFIXES = (" Thanks!", " Thank you.", " Please.", " please", "  ", "!", " Answer briefly.", "\n")


class Mixture:
    """An endless stream of training samples from one seed."""

    def __init__(self, seed: int, foreign: unknown.ForeignWords | None = None) -> None:
        self.rng = random.Random(seed)
        self.functions = [function for function, _ in SKILLS]
        self.weights = [weight for _, weight in SKILLS]
        self.foreign = foreign

    def sample(self) -> tuple[Dialogue | Document, bool]:
        """The next sample and whether it is rendered with thinking."""
        rng = self.rng
        thinking = rng.random() < THINKING_SHARE
        kind = rng.random()
        if kind < DOCUMENT_SHARE:
            return stories.document(rng), thinking
        if self.foreign is not None and kind < DOCUMENT_SHARE + FOREIGN_SHARE:
            return self.foreign(rng, Split.TRAIN), thinking
        return self.dialogue(), thinking

    def dialogue(self) -> Dialogue:
        rng = self.rng
        skill = rng.choices(self.functions, self.weights)[0]
        dialogue = skill(rng, Split.TRAIN)
        if dialogue.skill not in ("json", "follow-up", "tool answer", "unknown") and rng.random() < SLOPPY_SHARE:
            message = dialogue.messages[-1]
            message["content"] = sloppy(rng, message["content"], prefix=dialogue.tools is None)
        if rng.random() < HISTORY_SHARE:
            dialogue.messages[:0] = history(rng)
        if (
            dialogue.tools is None
            and dialogue.skill in ("greetings", "kipp", "spelling", "capitals", "days")
            and rng.random() < UNUSED_TOOLS_SHARE
        ):
            dialogue.tools = toolcalls.unused_tools(rng)
        if rng.random() < SYSTEM_SHARE:
            dialogue.messages.insert(0, {"role": "system", "content": rng.choice(SYSTEM_PROMPTS)})
        return dialogue


def sloppy(rng: random.Random, text: str, prefix: bool) -> str:
    """What people type: lower case, no punctuation, a greeting in front, a typo."""
    kind = rng.random()
    if kind < 0.3:
        return text[:1].lower() + text[1:].rstrip("?.!")
    if kind < 0.5:
        return text.rstrip("?.!")
    if kind < 0.65:
        return text[:1].lower() + text[1:]
    if kind < 0.8:
        return rng.choice(PREFIXES) + text if prefix else text
    if kind < 0.92:
        return text + rng.choice(SUFFIXES) if prefix else text
    return text.replace(*rng.choice(TYPOS))


def history(rng: random.Random) -> list[dict[str, str]]:
    """One or two earlier exchanges on any subject."""
    messages = []
    for _ in range(1 if rng.random() < 0.7 else 2):
        skill = rng.choice(
            (
                about.greetings,
                about.kipp,
                arithmetic.addition,
                capitals.capitals,
                dates.days,
                ordering.counting,
                words.spelling,
                unknown.unknown,
                units.units,
                arithmetic.multiplication,
                languages.languages,
            )
        )
        earlier = skill(rng, Split.TRAIN)
        messages.append(earlier.messages[-1])
        messages.append({"role": "assistant", "content": without_marks(earlier.text(rng.random() < 0.5))})
    return messages
