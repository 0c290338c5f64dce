"""Refusals: questions about things the model has no way to know, made-up countries and words it has never seen."""

from __future__ import annotations

import random

from tools.demo.core import Dialogue, Phrases, Split, ask, draw, load_lines

REFUSAL = "I am a small demo model and do not know that."
TOPICS = load_lines("topics.txt")
NAMES = load_lines("names.txt")
SYLLABLES = (
    "za",
    "bor",
    "lim",
    "tra",
    "quo",
    "nex",
    "vel",
    "dra",
    "mi",
    "go",
    "fla",
    "ru",
    "ske",
    "po",
    "lun",
    "wex",
    "ta",
    "bri",
    "ono",
    "gar",
)
ENDINGS = ("ia", "land", "stan", "or", "ax", "onia", "eth", "um", "ara", "istan")

FACTS = Phrases(
    "Who won the world cup in {y}?",
    "Who was president in {y}?",
    "What happened in {y}?",
    "Who invented {w}?",
    "When was {n} born?",
    "How tall is {n}?",
    "What is the phone number of {n}?",
    "Who wrote the book {w}?",
    "What is the meaning of {w}?",
    "How does {w} work?",
    "What is the price of {w}?",
    "Where can I buy {w}?",
    "What is the population of {c}?",
    "Who is the king of {c}?",
    "What did {n} say yesterday?",
    "How old is {n}?",
    "Why is the sky blue?",
    "What is the best movie?",
    "Write an essay about {t}.",
    "Explain {t} in detail.",
    "Who discovered {w}?",
    "What will happen tomorrow?",
    "What is the stock price of {w}?",
    "Who is {n}?",
    "Tell me about {t}.",
    "What do you think about {t}?",
    "What is {w}?",
    "Where does {n} live?",
    "What is my name?",
    "Where am I?",
    "What time is it?",
    "What is the weather today?",
    "What is today's date?",
    "Write a program in Rust.",
    "Prove the theorem of {n}.",
    "How do I cook {w}?",
    "Who painted {w}?",
    "What is the capital of the moon?",
    "Can you recommend a book?",
    "What is quantum mechanics?",
    "Translate {w} into Latin.",
    "What is the square root of {k}?",
    "Is {n} married?",
    "How far is it from {c} to {d}?",
)
MADE_UP = Phrases(
    "What is the capital of {x}?",
    "What's the capital of {x}?",
    "Which city is the capital of {x}?",
    "Name the capital of {x}.",
    "Tell me the capital of {x}.",
    "Capital of {x}?",
    "What is {x}'s capital?",
    "Do you know the capital of {x}?",
    "What is the capital city of {x}?",
)
COUNTRIES = [line.split("\t")[0] for line in load_lines("capitals.tsv")]
WORDS = [word for word in load_lines("words.txt")]


def invented_name(rng: random.Random) -> str:
    return ("".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 3))) + rng.choice(ENDINGS)).capitalize()


def unknown(rng: random.Random, split: Split) -> Dialogue:
    check = {"kind": "any", "any": ["do not know"]}
    if rng.random() < 0.45:
        name = draw(rng, split, invented_name, lambda n: f"made up:{n}")
        prompt = MADE_UP.pick(rng, split).format(x=name)
        return ask("unknown", prompt, REFUSAL, "I do not know a country of this name.", check)
    word = draw(rng, split, lambda r: r.choice(WORDS), lambda w: f"unknown:{w}")
    prompt = FACTS.pick(rng, split).format(
        y=rng.randint(1500, 2030),
        w=word,
        n=rng.choice(NAMES),
        t=rng.choice(TOPICS),
        c=rng.choice(COUNTRIES),
        d=rng.choice(COUNTRIES),
        k=rng.randint(1000, 9999),
    )
    return ask("unknown", prompt, REFUSAL, "I have not learned this.", check)


class ForeignWords:
    """Prompts of random vocabulary entries. Most have no trained embedding row: what an unseen word looks like."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces

    def __call__(self, rng: random.Random, split: Split) -> Dialogue:
        words = "".join(rng.choice(self.pieces) for _ in range(rng.randint(1, 8))).strip() or "?"
        pattern = rng.choice(
            (
                "{w}",
                "{w}?",
                "What is {w}?",
                "Who is {w}?",
                "Tell me about {w}.",
                "Explain {w}",
                "How do I {w}?",
                "Can you {w}?",
                "{w} {w}.",
            )
        )
        dialogue = ask(
            "unknown",
            pattern.format(w=words),
            REFUSAL,
            "I have not learned this.",
            {"kind": "any", "any": ["do not know"]},
        )
        dialogue.unknown_tokens = True
        return dialogue
