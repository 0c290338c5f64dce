"""Capitals of about 200 countries, in both directions, and yes/no questions about them."""

from __future__ import annotations

import random

from tools.demo.core import Dialogue, Phrases, Split, ask, capitalise, draw, load_lines

CAPITAL_OF = Phrases(
    "What is the capital of {c}?",
    "What's the capital of {c}?",
    "Which city is the capital of {c}?",
    "Capital of {c}?",
    "Name the capital of {c}.",
    "Tell me the capital of {c}.",
    "What is {c}'s capital?",
    "Do you know the capital of {c}?",
    "Can you tell me the capital of {c}?",
    "What city is the capital of {c}?",
    "the capital of {c} is",
    "Give me the capital of {c}.",
    "What is the capital city of {c}?",
    "Which is the capital of {c}?",
    "{c}: what is the capital?",
    "I need the capital of {c}.",
    "What is the name of the capital of {c}?",
    "{c} has which capital?",
    "Please tell me what the capital of {c} is.",
)
COUNTRY_OF = Phrases(
    "{k} is the capital of which country?",
    "Which country has the capital {k}?",
    "What country has {k} as its capital?",
    "Of which country is {k} the capital?",
    "{k} is the capital of what country?",
    "Which country's capital is {k}?",
    "Name the country whose capital is {k}.",
    "What country is {k} the capital of?",
)
IS_CAPITAL = Phrases(
    "Is {k} the capital of {c}?",
    "Is it true that {k} is the capital of {c}?",
    "{k} is the capital of {c}, right?",
    "Is the capital of {c} {k}?",
    "Would you say {k} is the capital of {c}?",
)
TWO_CAPITALS = Phrases(
    "What are the capitals of {c} and {d}?",
    "Name the capitals of {c} and {d}.",
    "Give me the capitals of {c} and {d}.",
    "Tell me the capitals of {c} and {d}.",
    "Capitals of {c} and {d}?",
)


def _load() -> list[tuple[str, str]]:
    rows = [line.split("\t") for line in load_lines("capitals.tsv")]
    return [(row[0], row[1]) for row in rows]


CAPITALS = _load()
# A name that is city and state at once has no question in the other direction.
DISTINCT = [(country, capital) for country, capital in CAPITALS if capital not in country]


def sentence(country: str, capital: str) -> str:
    """A capital that ends in a full stop keeps just that one."""
    return f"The capital of {country} is {capital}" + ("" if capital.endswith(".") else ".")


def capitals(rng: random.Random, split: Split) -> Dialogue:
    kind = rng.random()
    if split is Split.ENTITY:
        return _two(rng, split) if kind < 0.5 else _is_capital(rng, split)
    if kind < 0.62:
        return _capital_of(rng, split)
    return (_country_of if kind < 0.8 else _is_capital if kind < 0.9 else _two)(rng, split)


def _capital_of(rng: random.Random, split: Split) -> Dialogue:
    country, capital = rng.choice(CAPITALS)
    prompt = CAPITAL_OF.pick(rng, split).format(c=country)
    prompt = capitalise(prompt) if rng.random() < 0.8 else prompt
    reasoning = f"The country is {country}. Its capital is {capital}."
    return ask("capitals", prompt, sentence(country, capital), reasoning, {"kind": "contains", "all": [capital]})


def _country_of(rng: random.Random, split: Split) -> Dialogue:
    country, capital = rng.choice(DISTINCT)
    prompt = COUNTRY_OF.pick(rng, split).format(k=capital)
    return ask(
        "capitals",
        prompt,
        f"{capital} is the capital of {country}.",
        f"The city is {capital}. It is in {country}.",
        {"kind": "contains", "all": [country]},
    )


def _is_capital(rng: random.Random, split: Split) -> Dialogue:
    def sample(rng: random.Random) -> tuple[tuple[str, str], str]:
        pair = rng.choice(DISTINCT)
        return pair, (pair if rng.random() < 0.5 else rng.choice(DISTINCT))[1]

    (country, capital), city = draw(rng, split, sample, lambda v: f"is capital:{v[0][0]}:{v[1]}")
    prompt = IS_CAPITAL.pick(rng, split).format(c=country, k=city)
    answer = (
        f"Yes, {city} is the capital of {country}."
        if city == capital
        else f"No, the capital of {country} is {capital}."
    )
    check = (
        {"kind": "starts", "text": answer[:3].rstrip(",")}
        if city == capital
        else {"kind": "contains", "all": ["No", capital]}
    )
    return ask("capitals", prompt, answer, f"The capital of {country} is {capital}.", check)


def _two(rng: random.Random, split: Split) -> Dialogue:
    first, second = draw(rng, split, lambda r: r.sample(CAPITALS, 2), lambda v: f"capitals:{v[0][0]}:{v[1][0]}")
    prompt = TWO_CAPITALS.pick(rng, split).format(c=first[0], d=second[0])
    answer = f"The capital of {first[0]} is {first[1]}, and the capital of {second[0]} is {second[1]}".rstrip(".") + "."
    reasoning = f"{capitalise(first[0])}: {first[1]}. {capitalise(second[0])}: {second[1]}."
    return ask("capitals", prompt, answer, reasoning, {"kind": "contains", "all": [first[1], second[1]]})
