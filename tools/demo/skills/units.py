"""Unit conversion with whole numbers: lengths, weights, volumes, times, temperatures and dozens."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tools.demo.core import Dialogue, Phrases, Split, ask, draw
from tools.demo.skills.arithmetic import direct_equation, multiplication_steps

CONVERT = Phrases(
    "How many {u} are in {n} {v}?",
    "How many {u} is {n} {v}?",
    "Convert {n} {v} to {u}.",
    "Convert {n} {v} into {u}",
    "What is {n} {v} in {u}?",
    "{n} {v} in {u}",
    "How many {u} are {n} {v}?",
    "Please convert {n} {v} to {u}.",
    "Express {n} {v} in {u}.",
    "{n} {v} is how many {u}?",
    "How many {u} do {n} {v} make?",
    "Can you convert {n} {v} to {u}?",
    "Change {n} {v} to {u}.",
    "{n} {v} to {u}",
    "What are {n} {v} in {u}?",
    "Tell me how many {u} there are in {n} {v}.",
)
CELSIUS = Phrases(
    "What is {n} degrees Celsius in Fahrenheit?",
    "Convert {n} °C to °F.",
    "Convert {n} degrees Celsius to Fahrenheit.",
    "{n} °C in Fahrenheit?",
    "How much is {n} degrees Celsius in Fahrenheit?",
    "What is {n} °C in °F?",
)
FAHRENHEIT = Phrases(
    "What is {n} degrees Fahrenheit in Celsius?",
    "Convert {n} °F to °C.",
    "Convert {n} degrees Fahrenheit to Celsius.",
    "{n} °F in Celsius?",
    "How much is {n} degrees Fahrenheit in Celsius?",
    "What is {n} °F in °C?",
)


@dataclass(frozen=True)
class Unit:
    """One large unit is `factor` small ones; each has its names in the singular and the plural, and a symbol or ''."""

    large: tuple[str, str, str]
    small: tuple[str, str, str]
    factor: int
    limit: int = 99


UNITS = (
    Unit(("kilometer", "kilometers", "km"), ("meter", "meters", "m"), 1000),
    Unit(("meter", "meters", "m"), ("centimeter", "centimeters", "cm"), 100),
    Unit(("centimeter", "centimeters", "cm"), ("millimeter", "millimeters", "mm"), 10),
    Unit(("kilogram", "kilograms", "kg"), ("gram", "grams", "g"), 1000),
    Unit(("liter", "liters", "l"), ("milliliter", "milliliters", "ml"), 1000),
    Unit(("ton", "tons", "t"), ("kilogram", "kilograms", "kg"), 1000),
    Unit(("kilobyte", "kilobytes", ""), ("byte", "bytes", ""), 1000),
    Unit(("hour", "hours", "h"), ("minute", "minutes", "min"), 60, 48),
    Unit(("minute", "minutes", "min"), ("second", "seconds", "s"), 60, 60),
    Unit(("day", "days", ""), ("hour", "hours", "h"), 24, 30),
    Unit(("week", "weeks", ""), ("day", "days", ""), 7, 52),
    Unit(("year", "years", ""), ("month", "months", ""), 12, 50),
    Unit(("foot", "feet", "ft"), ("inch", "inches", "in"), 12, 50),
    Unit(("yard", "yards", "yd"), ("foot", "feet", "ft"), 3, 99),
    Unit(("dozen", "dozen", ""), ("piece", "pieces", ""), 12, 40),
    Unit(("pound", "pounds", "lb"), ("ounce", "ounces", "oz"), 16, 40),
    Unit(("euro", "euros", ""), ("cent", "cents", ""), 100, 99),
    Unit(("dollar", "dollars", ""), ("cent", "cents", ""), 100, 99),
)


def units(rng: random.Random, split: Split) -> Dialogue:
    if rng.random() < 0.14:
        return _temperature(rng, split)

    def sample(rng: random.Random) -> tuple[Unit, bool, int]:
        unit = rng.choice(UNITS)
        number = rng.randint(1, 12) if rng.random() < 0.4 else rng.randint(1, unit.limit)
        return unit, rng.random() < 0.6, number

    unit, down, number = draw(rng, split, sample, lambda v: f"units:{v[0].large[0]}:{v[0].small[0]}:{v[1]}:{v[2]}")
    return _to_small(rng, split, unit, number) if down else _to_large(rng, split, unit, number * unit.factor)


def _name(rng: random.Random, names: tuple[str, str, str], number: int) -> str:
    if names[2] and rng.random() < 0.25:
        return names[2]
    return names[0] if number == 1 else names[1]


def _prompt(
    rng: random.Random, split: Split, source: tuple[str, str, str], target: tuple[str, str, str], number: int
) -> str:
    return CONVERT.pick(rng, split).format(n=number, v=_name(rng, source, number), u=_name(rng, target, 2))


def _to_small(rng: random.Random, split: Split, unit: Unit, number: int) -> Dialogue:
    prompt = _prompt(rng, split, unit.large, unit.small, number)
    value = number * unit.factor
    product = f"{number} × {unit.factor} = {value}"
    steps = f"{product}." if unit.factor in (10, 100, 1000) else multiplication_steps(number, unit.factor)
    large = unit.large[0] if number == 1 else unit.large[1]
    answer = f"{number} {large} = {value} {unit.small[1]}."
    long_product = number > 12 and unit.factor in (12, 16, 24)
    working = direct_equation("×", number, unit.factor)[:-1] if long_product else product
    direct = f"{working}, so {answer}"
    return ask(
        "units",
        prompt,
        answer,
        f"1 {unit.large[0]} = {unit.factor} {unit.small[1]}. {steps}",
        {"kind": "number", "value": value},
        direct=direct,
    )


def _to_large(rng: random.Random, split: Split, unit: Unit, number: int) -> Dialogue:
    prompt = _prompt(rng, split, unit.small, unit.large, number)
    value = number // unit.factor
    large = unit.large[0] if value == 1 else unit.large[1]
    answer = f"{number} {unit.small[1]} = {value} {large}."
    return ask(
        "units",
        prompt,
        answer,
        f"1 {unit.large[0]} = {unit.factor} {unit.small[1]}. {number} ÷ {unit.factor} = {value}.",
        {"kind": "number", "value": value},
        direct=f"{number} ÷ {unit.factor} = {value}, so {answer}",
    )


def _temperature(rng: random.Random, split: Split) -> Dialogue:
    celsius = draw(rng, split, lambda r: 5 * r.randint(0, 24), lambda c: f"celsius:{c}")
    fahrenheit = celsius * 9 // 5 + 32
    if rng.random() < 0.6:
        prompt = CELSIUS.pick(rng, split).format(n=celsius)
        fifth, product = celsius // 5, celsius * 9 // 5
        steps = f"{celsius} ÷ 5 = {fifth}, {fifth} × 9 = {product}, {product} + 32 = {fahrenheit}."
        return ask(
            "units",
            prompt,
            f"{celsius} °C = {fahrenheit} °F.",
            steps,
            {"kind": "contains", "all": [f"{fahrenheit} °F"]},
            direct=f"{celsius} × 1.8 = {celsius * 9 // 5}, plus 32: {celsius} °C = {fahrenheit} °F.",
        )
    prompt = FAHRENHEIT.pick(rng, split).format(n=fahrenheit)
    rest = fahrenheit - 32
    steps = f"{fahrenheit} - 32 = {rest}, {rest} ÷ 9 = {rest // 9}, {rest // 9} × 5 = {celsius}."
    return ask(
        "units",
        prompt,
        f"{fahrenheit} °F = {celsius} °C.",
        steps,
        {"kind": "contains", "all": [f"{celsius} °C"]},
        direct=f"{fahrenheit} - 32 = {rest}, divided by 1.8: {fahrenheit} °F = {celsius} °C.",
    )
