"""Small JSON objects on request: the keys and values named in the prompt, or read out of a sentence."""

from __future__ import annotations

import json
import random
from typing import Any

from tools.demo.core import Dialogue, Phrases, Split, ask, draw, join_and, load_lines

NAMES = load_lines("names.txt")
CITIES = [line.split("\t")[1] for line in load_lines("capitals.tsv") if len(line.split("\t")[1]) < 12]
COLORS = ("red", "blue", "green", "yellow", "black", "white", "brown", "pink", "gray", "orange", "purple")
FRUITS = ("apple", "banana", "orange", "lemon", "cherry", "peach", "mango", "grape", "pear", "plum", "melon", "berry")
JOBS = (
    "teacher",
    "doctor",
    "farmer",
    "baker",
    "pilot",
    "nurse",
    "cook",
    "singer",
    "writer",
    "engineer",
    "painter",
    "lawyer",
)
ITEMS = (
    "book",
    "lamp",
    "chair",
    "table",
    "phone",
    "pen",
    "cup",
    "bag",
    "hat",
    "shirt",
    "coat",
    "clock",
    "camera",
    "bottle",
    "key",
)
ANIMALS = ("cat", "dog", "horse", "rabbit", "parrot", "hamster", "pony", "turtle", "goat", "duck")

EXPLICIT = Phrases(
    "Write a JSON object with {kv}.",
    "Give me a JSON object with {kv}.",
    "Create a JSON object with {kv}.",
    "Return JSON with {kv}.",
    "Make a small JSON object: {kv}.",
    "Please write JSON with {kv}.",
    "Output a JSON object containing {kv}.",
    "I need a JSON object with {kv}.",
    "JSON object with {kv}, please.",
    "Generate a JSON object that has {kv}.",
    "Produce JSON with {kv}.",
    "Can you write a JSON object with {kv}?",
)
EXTRACT = Phrases(
    "Turn this into JSON with the keys {k}: {s}",
    "Extract {k} as JSON: {s}",
    "{s} Write this as a JSON object with the keys {k}.",
    "Convert to JSON ({k}): {s}",
    "Put this into a JSON object with the keys {k}. {s}",
    "{s} Give me JSON with {k}.",
    "Read the sentence and return JSON with {k}. {s}",
    "From this text make a JSON object with the keys {k}: {s}",
)
LISTS = Phrases(
    "Write a JSON array with {v}.",
    "Give me a JSON array of {v}.",
    "Create a JSON list with {v}.",
    "Return {v} as a JSON array.",
    "Make a JSON array containing {v}.",
    "I need a JSON list of {v}.",
)
FIELDS: dict[str, tuple[Any, ...]] = {
    "name": tuple(NAMES),
    "city": tuple(CITIES),
    "color": COLORS,
    "fruit": FRUITS,
    "job": JOBS,
    "item": ITEMS,
    "animal": ANIMALS,
    "age": tuple(range(1, 100)),
    "price": tuple(range(1, 100)),
    "count": tuple(range(100)),
    "year": tuple(range(1950, 2031)),
    "id": tuple(range(1, 1000)),
    "score": tuple(range(101)),
    "active": (True, False),
    "open": (True, False),
    "ready": (True, False),
    "country": ("France", "Spain", "Japan", "Brazil", "Canada", "Italy", "Kenya", "Norway", "India", "Peru"),
    "size": ("small", "medium", "large"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "title": ("The River", "Blue Sky", "Night Train", "My Garden", "The Old House", "Winter Song", "Red Door"),
}
SENTENCES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("{name} is {age} years old and lives in {city}.", ("name", "age", "city")),
    ("{name} is a {job} from {city}.", ("name", "job", "city")),
    ("{name} bought a {item} for {price} dollars.", ("name", "item", "price")),
    ("The {color} {item} costs {price} euros.", ("color", "item", "price")),
    ("{name} has a {color} {animal}.", ("name", "color", "animal")),
    ("{name} has {count} books and likes {fruit} best.", ("name", "count", "fruit")),
    ("On {day} {name} will visit {city}.", ("day", "name", "city")),
    ("{name} works as a {job} and is {age}.", ("name", "job", "age")),
    ("We sold {count} of the {size} {item} in {year}.", ("count", "size", "item", "year")),
    ("{name} got a score of {score} in {year}.", ("name", "score", "year")),
)


def json_objects(rng: random.Random, split: Split) -> Dialogue:
    return rng.choice((_explicit, _explicit, _extract, _extract, _array))(rng, split)


def _code(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _value_text(rng: random.Random, key: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    bare = text.strip('"')
    forms = (
        f"{key} {bare}",
        f"{key} {bare}",
        f"{key} = {text}",
        f"{key}: {bare}",
        f"the {key} {bare}",
        f'"{key}" set to {text}',
        f"{key} {text}",
    )
    return rng.choice(forms)


def _reason(value: dict[str, Any]) -> str:
    kinds = {str: "text", int: "a number", bool: "true or false"}
    return "The keys are " + join_and([f"{key} ({kinds[type(item)]})" for key, item in value.items()]) + "."


def _explicit(rng: random.Random, split: Split) -> Dialogue:
    def sample(rng: random.Random) -> dict[str, Any]:
        return {key: rng.choice(FIELDS[key]) for key in rng.sample(list(FIELDS), rng.randint(1, 4))}

    value = draw(rng, split, sample, lambda v: f"json:{json.dumps(v)}")
    prompt = EXPLICIT.pick(rng, split).format(kv=join_and([_value_text(rng, key, item) for key, item in value.items()]))
    return ask("json", prompt, _code(value), _reason(value), {"kind": "json", "value": value})


def _extract(rng: random.Random, split: Split) -> Dialogue:
    pattern, keys = rng.choice(SENTENCES)
    value = draw(rng, split, lambda r: {key: r.choice(FIELDS[key]) for key in keys}, lambda v: f"json:{json.dumps(v)}")
    prompt = EXTRACT.pick(rng, split).format(k=join_and(list(keys)), s=pattern.format(**value))
    return ask("json", prompt, _code(value), _reason(value), {"kind": "json", "value": value})


def _array(rng: random.Random, split: Split) -> Dialogue:
    source: tuple[Any, ...] = rng.choice((COLORS, FRUITS, ITEMS, ANIMALS, tuple(range(100)), tuple(NAMES)))
    values = draw(rng, split, lambda r: r.sample(source, r.randint(2, 5)), lambda v: f"json:{json.dumps(v)}")
    kind = "the numbers" if isinstance(values[0], int) else "the words" if values[0][0].islower() else "the names"
    prompt = LISTS.pick(rng, split).format(v=f"{kind} {join_and([str(item) for item in values])}")
    return ask("json", prompt, _code(values), f"The array has {len(values)} items.", {"kind": "json", "value": values})
