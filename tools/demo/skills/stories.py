"""Short stories and plain text: completion documents, and stories told on request."""

from __future__ import annotations

import random
from collections.abc import Callable

from tools.demo.core import Dialogue, Document, Phrases, Split, ask, capitalise, draw, join_and, load_lines
from tools.demo.skills import about, arithmetic, dates
from tools.demo.skills.capitals import CAPITALS, sentence
from tools.demo.skills.languages import CAPITALS as FOREIGN_CAPITALS
from tools.demo.skills.languages import LANGUAGES

NAMES = load_lines("names.txt")
HEROES = (
    "fox",
    "cat",
    "dog",
    "bear",
    "rabbit",
    "mouse",
    "owl",
    "frog",
    "duck",
    "horse",
    "girl",
    "boy",
    "robot",
    "dragon",
    "wolf",
    "bird",
    "turtle",
    "lion",
    "bee",
    "king",
    "queen",
    "sailor",
    "baker",
    "farmer",
    "wizard",
    "knight",
)
TRAITS = (
    "little",
    "brave",
    "clever",
    "shy",
    "kind",
    "lazy",
    "curious",
    "happy",
    "old",
    "young",
    "hungry",
    "quiet",
    "friendly",
    "tiny",
    "proud",
)
PLACES = (
    "forest",
    "village",
    "garden",
    "castle",
    "river",
    "mountain",
    "beach",
    "farm",
    "city",
    "valley",
    "island",
    "meadow",
    "house",
    "cave",
)
OBJECTS = (
    "key",
    "map",
    "lamp",
    "book",
    "coin",
    "ring",
    "flower",
    "apple",
    "box",
    "stone",
    "bell",
    "kite",
    "boat",
    "hat",
    "letter",
    "cake",
    "shell",
)
WEATHER = ("sunny", "rainy", "cold", "warm", "windy", "quiet", "bright", "cloudy", "snowy")
FEELINGS = ("happy", "proud", "glad", "tired but happy", "full of joy", "thankful")
OPENINGS = (
    "Once upon a time there was a {t} {h} named {n} who lived near a {p}.",
    "There was once a {t} {h} called {n}. {He} lived in a small house by the {p}.",
    "In a {p} far away lived a {t} {h} named {n}.",
    "{n} was a {t} {h} who loved to walk through the {p}.",
    "Long ago, a {t} {h} named {n} lived at the edge of the {p}.",
)
MORNINGS = (
    "One {w} morning {n} found a {o} on the ground.",
    "One day {n} lost {his} {o} and could not find it anywhere.",
    "On a {w} day {n} saw a {o} under a tree.",
    "One {w} evening {n} heard a strange sound. It came from an old {o}.",
    "One morning {n} wanted to bring a {o} to a friend.",
)
MEETINGS = (
    "On the way {he} met a {u} {g} named {m}.",
    "Then a {u} {g} named {m} came along.",
    "Near the {q} {he} saw {m}, a {u} {g}.",
    "After a while {he} met {m}. {m} was a {u} {g}.",
)
TALKS = (
    '"What are you doing here?" asked {m}. "I am looking for an answer," said {n}.',
    '"Can you help me?" asked {n}. "Of course," said {m}.',
    '"Hello," said {m}. "Where are you going?" "To the {q}," said {n}.',
    '"Do not be afraid," said {m}. "I know the way."',
    '"Is this your {o}?" asked {m}. {n} nodded and smiled.',
)
ACTIONS = (
    "Together they walked to the {q} and looked at every tree and every stone.",
    "They crossed the river and climbed the hill.",
    "They worked all day and shared some bread and cheese.",
    "It began to rain, so they waited in a dry cave and told each other stories.",
    "They followed a path of small white stones to the {q}.",
    "They opened the gate and saw the whole {q} in the light of the moon.",
)
TURNS = (
    "There, behind a big rock, was the {o}.",
    "At last they understood what the {o} was for.",
    "An old woman looked at the {o} and told them its secret.",
    "The {o} was broken, but {m} knew how to repair it.",
    "Then the {o} began to shine like a star.",
)
ENDINGS = (
    "In the evening {n} went home and was {f}.",
    "From that day on, {n} and {m} were best friends.",
    "{n} thanked {m} and gave {m} the {o}.",
    "And so they lived happily ever after.",
    "That night {n} slept well and dreamed of the {q}.",
    "{n} learned that a good friend is worth more than gold.",
)
TELL = Phrases(
    "Tell me a story about a {h}.",
    "Tell me a short story about a {h}.",
    "Write a story about a {h}.",
    "Write a short story about a {h}.",
    "Can you tell me a story about a {h}?",
    "I want to hear a story about a {h}.",
    "Please write a little story about a {h}.",
    "A story about a {h}, please.",
    "Make up a story about a {h}.",
    "Do you know a story about a {h}?",
)
TELL_NAMED = Phrases(
    "Tell me a story about a {h} named {n}.",
    "Write a short story about a {h} called {n}.",
    "Tell a story about {n} the {h}.",
    "Please tell me a story about a {h} named {n}.",
    "Write a story about {n}, a {h}.",
)
FACTS = (
    "Water freezes at 0 degrees Celsius and boils at 100 degrees Celsius.",
    "The sun rises in the east and sets in the west.",
    "A year has four seasons: spring, summer, autumn and winter.",
    "Bees collect nectar from flowers and make honey.",
    "The moon moves around the earth in about a month.",
    "Bread is made from flour, water, salt and yeast.",
    "Trees have roots, a trunk, branches and leaves.",
    "A triangle has three sides and a square has four.",
    "Cats sleep for many hours every day.",
    "Rivers flow from the mountains to the sea.",
    "Snow falls in winter when the air is cold.",
    "Birds have wings and feathers, and most of them can fly.",
    "Fish live in water and breathe with gills.",
    "A week has seven days, and a day has 24 hours.",
    "Plants need light, water and air to grow.",
    "The heart pumps blood through the body.",
    "Iron is a metal, and wood comes from trees.",
    "Horses eat grass and hay.",
    "A dictionary lists words in alphabetical order.",
    "The Pacific is the largest ocean on earth.",
    "Ice is lighter than water, so it floats.",
    "Light travels faster than sound.",
    "Owls hunt at night and sleep during the day.",
    "Milk comes from cows, goats and sheep.",
    "A piano has black and white keys.",
    "Red and yellow paint mixed together make orange.",
    "Blue and yellow paint mixed together make green.",
    "Whales live in the sea, but they breathe air.",
    "Salt dissolves in water.",
    "Gold is a soft yellow metal.",
)
DAILY = (
    "{n} gets up at {k} and drinks a cup of tea.",
    "After breakfast {he} walks to the {p}.",
    "In the afternoon {he} reads a book about {t2} animals.",
    "On {d} {n} visits a friend in {c}.",
    "The weather is {w}, so {he} takes a coat.",
    "{n} buys bread, milk and {b} eggs at the market.",
    "In the evening the family eats soup and talks about the day.",
    "{n} works as a baker in {c}.",
    "{He} likes to sing in the kitchen.",
    "At night the stars shine over the {p}.",
    "{n} has {b} books and a {t2} cat.",
    "The {p} is not far from the house of {n}.",
)


def _slots(rng: random.Random, hero: str, name: str) -> dict[str, str]:
    he = rng.choice(("he", "she"))
    return {
        "h": hero,
        "n": name,
        "m": rng.choice([other for other in NAMES[:40] if other != name]),
        "t": rng.choice(TRAITS),
        "u": rng.choice(TRAITS),
        "g": rng.choice(HEROES),
        "p": rng.choice(PLACES),
        "q": rng.choice(PLACES),
        "o": rng.choice(OBJECTS),
        "w": rng.choice(WEATHER),
        "f": rng.choice(FEELINGS),
        "he": he,
        "He": he.capitalize(),
        "his": "his" if he == "he" else "her",
    }


def story_text(rng: random.Random, hero: str, name: str) -> str:
    slots = _slots(rng, hero, name)
    parts = [rng.choice(OPENINGS), rng.choice(MORNINGS), rng.choice(MEETINGS), rng.choice(TALKS)]
    parts += rng.sample(ACTIONS, rng.randint(1, 2))
    parts += [rng.choice(TURNS), rng.choice(ENDINGS)]
    return fix_articles(" ".join(parts).format(**slots))


def fix_articles(text: str) -> str:
    """`a` before a vowel becomes `an`, word by word."""
    words = text.split(" ")
    for index in range(len(words) - 1):
        if words[index] in ("a", "A") and words[index + 1][:1] in "aeiou":
            words[index] += "n"
    return " ".join(words)


def told_story(rng: random.Random, split: Split) -> Dialogue:
    hero, name = draw(rng, split, lambda r: (r.choice(HEROES), r.choice(NAMES)), lambda v: f"story:{v[0]}:{v[1]}")
    named = rng.random() < 0.4
    prompt = (TELL_NAMED if named else TELL).pick(rng, split).format(h=hero, n=name)
    reasoning = f"The user wants a story about a {hero}. I name the {hero} {name}."
    expected = [hero, name] if named else [hero]
    return ask(
        "stories",
        fix_articles(prompt),
        story_text(rng, hero, name),
        fix_articles(reasoning),
        {"kind": "contains", "all": expected},
    )


def _story(rng: random.Random) -> str:
    return story_text(rng, rng.choice(HEROES), rng.choice(NAMES))


def _daily(rng: random.Random) -> str:
    he = rng.choice(("he", "she"))
    slots = {
        "n": rng.choice(NAMES),
        "he": he,
        "He": he.capitalize(),
        "k": rng.choice(("six", "seven", "eight", "nine")),
        "p": rng.choice(PLACES),
        "t2": rng.choice(TRAITS),
        "d": rng.choice(dates.DAYS),
        "c": rng.choice(CAPITALS)[1],
        "w": rng.choice(WEATHER),
        "b": str(rng.randint(2, 12)),
    }
    return fix_articles(" ".join(rng.sample(DAILY, rng.randint(3, 7))).format(**slots))


def _facts(rng: random.Random) -> str:
    return " ".join(rng.sample(FACTS, rng.randint(2, 6)))


def _capital_list(rng: random.Random) -> str:
    chosen = rng.sample(CAPITALS, rng.randint(2, 6))
    if rng.random() < 0.6:
        return " ".join(sentence(*pair) for pair in chosen)
    return "\n".join(f"{capitalise(country)}: {capital}" for country, capital in chosen)


def _foreign(rng: random.Random) -> str:
    language = rng.choice(LANGUAGES)
    if rng.random() < 0.25:
        return ("" if language.name == "Chinese" else " ").join(
            (language.hello_answer, language.who_answer, language.thanks_answer)
        )
    chosen = rng.sample(FOREIGN_CAPITALS[language.name], rng.randint(2, 5))
    lines = [language.capital_answer.format(c=country, k=capital).replace("..", ".") for _, country, capital in chosen]
    return ("" if language.name == "Chinese" else " ").join(lines)


def _numbers(rng: random.Random) -> str:
    start, step = rng.randint(0, 50), rng.choice((1, 1, 1, 2, 5, 10))
    return ", ".join(str(start + step * i) for i in range(rng.randint(8, 25)))


def _sums(rng: random.Random) -> str:
    lines = []
    for _ in range(rng.randint(3, 8)):
        operator = rng.choice("+-×÷")
        lines.append(arithmetic.equation(operator, *arithmetic.draw_pair(rng, Split.TRAIN, operator)))
    return "\n".join(lines)


def _calendar(rng: random.Random) -> str:
    names = rng.choice((dates.DAYS, dates.MONTHS))
    start = rng.randrange(len(names))
    return ", ".join(names[(start + i) % len(names)] for i in range(rng.randint(4, 14)))


def _kipp(rng: random.Random) -> str:
    answers = [answers[0] for _, answers, _, _ in about.KIPP if answers[0].startswith("Kipp")]
    return " ".join(rng.sample(answers, rng.randint(1, 4)))


def _shopping(rng: random.Random) -> str:
    things = rng.sample(load_shopping(), rng.randint(3, 6))
    return f"{rng.choice(NAMES)} went to the market and bought {join_and(things)}."


def load_shopping() -> list[str]:
    return [
        "bread",
        "milk",
        "eggs",
        "apples",
        "cheese",
        "butter",
        "rice",
        "tea",
        "coffee",
        "sugar",
        "salt",
        "honey",
        "pears",
        "soap",
        "fish",
        "beans",
    ]


KINDS: tuple[Callable[[random.Random], str], ...] = (
    _story,
    _story,
    _story,
    _daily,
    _daily,
    _facts,
    _capital_list,
    _foreign,
    _numbers,
    _sums,
    _calendar,
    _kipp,
    _shopping,
)


def document(rng: random.Random) -> Document:
    return Document(rng.choice(KINDS)(rng))
