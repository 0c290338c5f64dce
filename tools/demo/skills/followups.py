"""Second questions that only make sense after the first: another country, one more added, the same word reversed."""

from __future__ import annotations

import random

from tools.demo.core import Dialogue, Phrases, Split, draw, letter_by_letter
from tools.demo.skills import arithmetic, capitals, dates, words

ANOTHER_COUNTRY = Phrases(
    "And {c}?", "What about {c}?", "And of {c}?", "How about {c}?", "And what is it for {c}?", "Now {c}."
)
ADD_MORE = Phrases(
    "Add {b} to that.", "Now add {b}.", "And plus {b}?", "Plus {b}?", "Add {b} more.", "What if you add {b}?"
)
TAKE_AWAY = Phrases("Subtract {b} from that.", "Now subtract {b}.", "And minus {b}?", "Minus {b}?", "Take away {b}.")
REVERSE_IT = Phrases(
    "Now reverse it.",
    "And backwards?",
    "Reverse it.",
    "Now spell it backwards.",
    "Can you reverse it?",
    "And in reverse?",
)
HOW_LONG = Phrases(
    "How many letters does it have?",
    "How many letters is that?",
    "And how many letters?",
    "Count its letters.",
    "How long is it?",
)
AND_THEN = Phrases("And after that?", "And then?", "What comes after that?", "And the next one?", "And the one after?")
WHY = Phrases("Are you sure?", "Is that right?", "Is that correct?", "Really?", "Are you certain?")


def followup(rng: random.Random, split: Split) -> Dialogue:
    return rng.choice((_country, _country, _sum, _sum, _reverse, _length, _day, _sure))(rng, split)


def _dialogue(
    question: str,
    reply: str,
    second: str,
    answer: str,
    reasoning: str,
    check: dict[str, object],
    direct: str | None = None,
) -> Dialogue:
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": reply},
        {"role": "user", "content": second},
    ]
    return Dialogue("follow-up", messages, answer, reasoning, check, direct=direct)


def _country(rng: random.Random, split: Split) -> Dialogue:
    first, second = draw(
        rng, split, lambda r: r.sample(capitals.CAPITALS, 2), lambda v: f"follow-up:{v[0][0]}:{v[1][0]}"
    )
    question = capitals.CAPITAL_OF.pick(rng, Split.TRAIN).format(c=first[0])
    second_question = ANOTHER_COUNTRY.pick(rng, split).format(c=second[0])
    return _dialogue(
        question,
        capitals.sentence(*first),
        second_question,
        capitals.sentence(*second),
        f"The country is {second[0]}. Its capital is {second[1]}.",
        {"kind": "contains", "all": [second[1]]},
    )


def _sum(rng: random.Random, split: Split) -> Dialogue:
    operator = rng.choice("+-")

    def sample(rng: random.Random) -> tuple[int, int, int]:
        a, b = arithmetic.draw_pair(rng, Split.TRAIN, "+")
        if a + b > 99:
            a, b = 20, 30
        return a, b, rng.randint(1, a + b if operator == "-" and a + b else 99)

    # All three at once: a small sum alone may have no second operand of the split.
    a, b, c = draw(rng, split, sample, lambda v: arithmetic.pair_key(operator, v[0] + v[1], v[2]))
    total = a + b
    question = arithmetic.ADD.pick(rng, Split.TRAIN).format(a=a, b=b)
    second = (ADD_MORE if operator == "+" else TAKE_AWAY).pick(rng, split).format(b=c)
    value = arithmetic.result_of(operator, total, c)
    return _dialogue(
        question,
        f"{a} + {b} = {total}.",
        second,
        f"{total} {operator} {c} = {value}.",
        f"The last result is {total}. {arithmetic.steps_of(operator, total, c)}",
        {"kind": "number", "value": value},
    )


def _spelled(rng: random.Random, split: Split, task: str) -> tuple[str, str, str]:
    word = draw(rng, split, lambda r: r.choice(words.WORDS), lambda w: f"{task}:{w}")
    question = words.SPELL.pick(rng, Split.TRAIN).format(w=word, q=f'"{word}"')
    return word, question, f"{word}: {'-'.join(word)}"


def _reverse(rng: random.Random, split: Split) -> Dialogue:
    word, question, reply = _spelled(rng, split, "reverse")
    backwards = word[::-1]
    return _dialogue(
        question,
        reply,
        REVERSE_IT.pick(rng, split),
        f'{word} backwards is "{letter_by_letter(backwards)}".',
        f"The letters of {word}: {' '.join(word)}. Backwards: {' '.join(backwards)}.",
        {"kind": "contains", "all": [backwards]},
        direct=f'{"-".join(word)} backwards is "{letter_by_letter(backwards)}".',
    )


def _length(rng: random.Random, split: Split) -> Dialogue:
    word, question, reply = _spelled(rng, split, "length")
    numbered = ", ".join(f"{letter} {index}" for index, letter in enumerate(word, 1))
    return _dialogue(
        question,
        reply,
        HOW_LONG.pick(rng, split),
        f"The word {word} has {len(word)} letters.",
        f"{numbered}. So {len(word)} letters.",
        {"kind": "number", "value": len(word)},
        direct=f"{numbered}: {len(word)} letters.",
    )


def _day(rng: random.Random, split: Split) -> Dialogue:
    names, kind = rng.choice(((dates.DAYS, "day"), (dates.MONTHS, "month")))
    index = rng.randrange(len(names))
    first, second, third = (names[(index + i) % len(names)] for i in range(3))
    question = dates.NEXT.pick(rng, Split.TRAIN).format(k=kind, x=first)
    return _dialogue(
        question,
        f"The {kind} after {first} is {second}.",
        AND_THEN.pick(rng, split),
        f"The {kind} after {second} is {third}.",
        f"The order is {second}, {third}.",
        {"kind": "contains", "all": [f"is {third}"]},
    )


def _sure(rng: random.Random, split: Split) -> Dialogue:
    country, capital = rng.choice(capitals.CAPITALS)
    question = capitals.CAPITAL_OF.pick(rng, Split.TRAIN).format(c=country)
    answer = f"Yes, the capital of {country} is {capital}".rstrip(".") + "."
    return _dialogue(
        question,
        capitals.sentence(country, capital),
        WHY.pick(rng, split),
        answer,
        f"The capital of {country} is {capital}.",
        {"kind": "contains", "all": ["Yes", capital]},
    )
