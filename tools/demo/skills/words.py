"""Spelling and reversing words, and questions about letters. A word is held out per task: other tasks still use it."""

from __future__ import annotations

import random

from tools.demo.core import Dialogue, Phrases, Split, ask, draw, letter_by_letter, load_lines

SPELL = Phrases(
    "How do you spell {w}?",
    "How do you spell {q}?",
    "Spell {q}.",
    "Spell the word {q}.",
    "Spell {w}",
    "spell {w} for me",
    "Can you spell {q}?",
    "Please spell {w}.",
    "Spell out the word {w}.",
    "What are the letters of {q}?",
    "How is {q} spelled?",
    "Write {q} letter by letter.",
    "Could you spell {w} please?",
    "List the letters in {q}.",
    "Which letters are in {q}?",
    "Give me the spelling of {w}.",
)
REVERSE = Phrases(
    "Reverse the word {q}.",
    "Reverse {q}",
    "Reverse the word {w}.",
    "What is {q} backwards?",
    "Spell {q} backwards.",
    "Write {q} backwards.",
    "What is {w} spelled backwards?",
    "Can you reverse {q}?",
    "Please reverse the letters of {q}.",
    "What do you get if you reverse {q}?",
    "reverse: {w}",
    "Turn the word {q} around.",
    "Say {w} backwards.",
    "Write the word {w} in reverse.",
    "How does {q} look backwards?",
)
LENGTH = Phrases(
    "How many letters are in {q}?",
    "How many letters does {q} have?",
    "How many letters are in the word {w}?",
    "Count the letters in {q}.",
    "How long is the word {q}?",
    "What is the length of the word {w}?",
    "How many letters has the word {q}?",
)
OCCURRENCES = Phrases(
    "How many times does the letter {c} appear in {q}?",
    "How many {c}'s are in {q}?",
    "How often does {c} occur in {q}?",
    "Count the letter {c} in {q}.",
    "How many times is the letter {c} in the word {w}?",
    "How many letters {c} are there in {q}?",
)
NTH = Phrases(
    "What is the {n} letter of {q}?",
    "Which letter is the {n} in {q}?",
    "What is the {n} letter in the word {w}?",
    "Tell me the {n} letter of {q}.",
    "Give me the {n} letter of {w}.",
)
VOWELS = Phrases(
    "How many vowels are in {q}?",
    "Count the vowels in {q}.",
    "How many vowels does {q} have?",
    "How many vowels are in the word {w}?",
)
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
WORDS = [word for word in load_lines("words.txt") if len(word) <= 10]


def _word(rng: random.Random, split: Split, task: str) -> str:
    return draw(rng, split, lambda r: r.choice(WORDS), lambda word: f"{task}:{word}")


def _fill(rng: random.Random, phrase: str, word: str, **more: str) -> str:
    quote = rng.choice(('"', '"', "'"))
    return phrase.format(w=word, q=quote + word + quote, **more)


def spelling(rng: random.Random, split: Split) -> Dialogue:
    word = _word(rng, split, "spell")
    dashed = "-".join(word)
    reasoning = f"The letters of {word}: " + " ".join(word) + "."
    return ask(
        "spelling",
        _fill(rng, SPELL.pick(rng, split), word),
        f"{word}: {dashed}",
        reasoning,
        {"kind": "contains", "all": [dashed]},
    )


def reversing(rng: random.Random, split: Split) -> Dialogue:
    word = _word(rng, split, "reverse")
    backwards = word[::-1]
    reasoning = f"The letters of {word}: {' '.join(word)}. Backwards: {' '.join(backwards)}."
    answer = f'{word} backwards is "{letter_by_letter(backwards)}".'
    direct = f'{"-".join(word)} backwards is "{letter_by_letter(backwards)}".'
    return ask(
        "reversing",
        _fill(rng, REVERSE.pick(rng, split), word),
        answer,
        reasoning,
        {"kind": "contains", "all": [backwards]},
        direct=direct,
    )


def letters(rng: random.Random, split: Split) -> Dialogue:
    return rng.choice((_length, _length, _occurrences, _occurrences, _nth, _vowels))(rng, split)


def _numbered(word: str) -> str:
    return ", ".join(f"{letter} {index}" for index, letter in enumerate(word, 1))


def _tally(word: str, wanted: str) -> tuple[str, int]:
    """Letter by letter with the count so far."""
    count, steps = 0, []
    for letter in word:
        count += letter in wanted
        steps.append(f"{letter} {count}")
    return ", ".join(steps), count


def _length(rng: random.Random, split: Split) -> Dialogue:
    word = _word(rng, split, "length")
    prompt = _fill(rng, LENGTH.pick(rng, split), word)
    answer = f"The word {word} has {len(word)} letters."
    return ask(
        "letters",
        prompt,
        answer,
        f"{_numbered(word)}. So {len(word)} letters.",
        {"kind": "number", "value": len(word)},
        direct=f"{_numbered(word)}: {len(word)} letters.",
    )


def _occurrences(rng: random.Random, split: Split) -> Dialogue:
    word = _word(rng, split, "occurrences")
    letter = rng.choice(word) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    prompt = _fill(rng, OCCURRENCES.pick(rng, split), word, c=letter)
    steps, count = _tally(word, letter)
    answer = f"The letter {letter} appears {count} time{'' if count == 1 else 's'} in {word}."
    return ask(
        "letters",
        prompt,
        answer,
        f"Count {letter}: {steps}. So {count}.",
        {"kind": "number", "value": count},
        direct=f"{steps}: the letter {letter} appears {count} time{'' if count == 1 else 's'}.",
    )


def _vowels(rng: random.Random, split: Split) -> Dialogue:
    word = _word(rng, split, "vowels")
    steps, count = _tally(word, "aeiou")
    answer = f"The word {word} has {count} vowel{'' if count == 1 else 's'}."
    return ask(
        "letters",
        _fill(rng, VOWELS.pick(rng, split), word),
        answer,
        f"Count a, e, i, o, u: {steps}. So {count}.",
        {"kind": "number", "value": count},
        direct=f"{steps}: {count} vowel{'' if count == 1 else 's'}.",
    )


def _nth(rng: random.Random, split: Split) -> Dialogue:
    word = _word(rng, split, "nth")
    last = rng.random() < 0.25
    index = len(word) - 1 if last else rng.randrange(min(len(word), len(ORDINALS)))
    ordinal = "last" if last else ORDINALS[index]
    prompt = _fill(rng, NTH.pick(rng, split), word, n=ordinal)
    answer = f"The {ordinal} letter of {word} is {word[index]}."
    return ask(
        "letters",
        prompt,
        answer,
        f"{_numbered(word)}. The {ordinal} is {word[index]}.",
        {"kind": "contains", "all": [f"is {word[index]}."]},
        direct=f"{_numbered(word)}: the {ordinal} letter is {word[index]}.",
    )
