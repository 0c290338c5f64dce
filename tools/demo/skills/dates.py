"""Days of the week and months of the year."""

from __future__ import annotations

import random

from tools.demo.core import Dialogue, Phrases, Split, ask, capitalise, draw

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
ORDINALS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
)
SEASONS = (
    "winter",
    "winter",
    "spring",
    "spring",
    "spring",
    "summer",
    "summer",
    "summer",
    "autumn",
    "autumn",
    "autumn",
    "winter",
)

NEXT = Phrases(
    "What {k} comes after {x}?",
    "Which {k} comes after {x}?",
    "What comes after {x}?",
    "Which {k} follows {x}?",
    "What is the next {k} after {x}?",
    "What is the {k} after {x}?",
    "Tell me the {k} after {x}.",
    "After {x} comes which {k}?",
    "{x} is followed by which {k}?",
    "Name the {k} that follows {x}.",
)
PREVIOUS = Phrases(
    "What {k} comes before {x}?",
    "Which {k} comes before {x}?",
    "What comes before {x}?",
    "What is the {k} before {x}?",
    "Which {k} is right before {x}?",
    "Tell me the {k} before {x}.",
    "Name the {k} that comes just before {x}.",
    "Before {x} comes which {k}?",
)
TODAY = Phrases(
    "If today is {x}, what day is tomorrow?",
    "Today is {x}. What day is tomorrow?",
    "Today is {x}. What day will it be tomorrow?",
    "If it is {x} today, which day is tomorrow?",
    "It's {x}. What day is it tomorrow?",
)
YESTERDAY = Phrases(
    "If today is {x}, what day was yesterday?",
    "Today is {x}. What day was yesterday?",
    "If it is {x} today, which day was it yesterday?",
    "It's {x}. What day was it yesterday?",
)
IN_DAYS = Phrases(
    "If today is {x}, what day is it in {n} days?",
    "Today is {x}. What day will it be in {n} days?",
    "What day is {n} days after {x}?",
    "Which day comes {n} days after {x}?",
    "It is {x}. Which day is it {n} days from now?",
    "What is {x} plus {n} days?",
)
IN_MONTHS = Phrases(
    "What month is {n} months after {x}?",
    "Which month comes {n} months after {x}?",
    "It is {x}. Which month is it in {n} months?",
    "If it is {x} now, what month will it be in {n} months?",
    "What is {x} plus {n} months?",
)
NTH = Phrases(
    "What is the {n} {k} of the {p}?",
    "Which is the {n} {k} of the {p}?",
    "Name the {n} {k} of the {p}.",
    "Which {k} is the {n} of the {p}?",
    "Tell me the {n} {k} of the {p}.",
    "What {k} is number {i} in the {p}?",
)
WHICH_NUMBER = Phrases(
    "Which month number is {x}?",
    "What number month is {x}?",
    "{x} is which month of the year?",
    "What is the number of the month {x}?",
    "Which number does {x} have in the year?",
)
HOW_MANY_DAYS = Phrases(
    "How many days are in {x}?",
    "How many days does {x} have?",
    "How many days are there in {x}?",
    "How long is {x} in days?",
    "What is the number of days in {x}?",
    "Tell me how many days {x} has.",
)
LIST_ALL = Phrases(
    "List the {k}s of the {p}.",
    "Name all {k}s of the {p}.",
    "What are the {k}s of the {p}?",
    "Can you list all the {k}s of the {p}?",
    "Tell me the {k}s of the {p} in order.",
    "Give me the {k}s of the {p}.",
)
SEASON = Phrases(
    "What season is {x} in?",
    "Which season is {x} in?",
    "In which season is {x}?",
    "{x} belongs to which season?",
    "What season is it in {x}?",
)
WEEKEND = Phrases(
    "Is {x} a weekday?",
    "Is {x} on the weekend?",
    "Is {x} part of the weekend?",
    "Is {x} a weekday or a weekend day?",
)
FACTS = (
    (
        Phrases(
            "How many days are in a week?",
            "How many days does a week have?",
            "How many days are there in a week?",
            "What is the number of days in a week?",
        ),
        "A week has 7 days.",
        "7 days",
    ),
    (
        Phrases(
            "How many months are in a year?",
            "How many months does a year have?",
            "How many months are there in a year?",
            "What is the number of months in a year?",
        ),
        "A year has 12 months.",
        "12 months",
    ),
    (
        Phrases(
            "How many days are in a year?",
            "How many days does a year have?",
            "How many days are there in a year?",
            "How long is a year in days?",
        ),
        "A year has 365 days, and a leap year has 366.",
        "365",
    ),
    (
        Phrases(
            "How many weeks are in a year?",
            "How many weeks does a year have?",
            "How many weeks are there in a year?",
            "How long is a year in weeks?",
        ),
        "A year has about 52 weeks.",
        "52",
    ),
    (
        Phrases(
            "How many days are in a leap year?",
            "How many days does a leap year have?",
            "How long is a leap year?",
            "What is the number of days in a leap year?",
        ),
        "A leap year has 366 days.",
        "366",
    ),
    (
        Phrases(
            "Which days are the weekend?",
            "What days are on the weekend?",
            "Which days make up the weekend?",
            "Name the days of the weekend.",
        ),
        "The weekend is Saturday and Sunday.",
        "Saturday and Sunday",
    ),
)


def days(rng: random.Random, split: Split) -> Dialogue:
    if split is Split.ENTITY:
        return _in_days(rng, split, "days")
    return rng.choice((_neighbour, _neighbour, _relative_day, _in_days, _in_days, _nth, _list_all, _weekend, _fact))(
        rng, split, "days"
    )


def months(rng: random.Random, split: Split) -> Dialogue:
    if split is Split.ENTITY:
        return _in_months(rng, split, "months")
    return rng.choice(
        (_neighbour, _neighbour, _in_months, _nth, _month_number, _month_length, _month_length, _season, _list_all)
    )(rng, split, "months")


def _cycle(skill: str) -> tuple[tuple[str, ...], str, str]:
    return (DAYS, "day", "week") if skill == "days" else (MONTHS, "month", "year")


def _contains(*texts: str) -> dict[str, object]:
    return {"kind": "contains", "all": list(texts)}


def _neighbour(rng: random.Random, split: Split, skill: str) -> Dialogue:
    names, kind, _ = _cycle(skill)
    index = rng.randrange(len(names))
    after = rng.random() < 0.55
    prompt = (NEXT if after else PREVIOUS).pick(rng, split).format(k=kind, x=names[index])
    result = names[(index + (1 if after else -1)) % len(names)]
    answer = f"The {kind} {'after' if after else 'before'} {names[index]} is {result}."
    first, second = (names[index], result) if after else (result, names[index])
    return ask(skill, prompt, answer, f"The order is {first}, {second}.", _contains(f"is {result}"))


def _relative_day(rng: random.Random, split: Split, skill: str) -> Dialogue:
    index = rng.randrange(7)
    tomorrow = rng.random() < 0.5
    prompt = (TODAY if tomorrow else YESTERDAY).pick(rng, split).format(x=DAYS[index])
    result = DAYS[(index + (1 if tomorrow else -1)) % 7]
    answer = f"If today is {DAYS[index]}, {'tomorrow is' if tomorrow else 'yesterday was'} {result}."
    reasoning = f"The day {'after' if tomorrow else 'before'} {DAYS[index]} is {result}."
    return ask(skill, prompt, answer, reasoning, _contains(f"{'is' if tomorrow else 'was'} {result}"))


def _steps(names: tuple[str, ...], index: int, steps: int) -> str:
    return (
        f"Start at {names[index]}. "
        + ", ".join(f"{i} {names[(index + i) % len(names)]}" for i in range(1, steps + 1))
        + "."
    )


def _in_days(rng: random.Random, split: Split, skill: str) -> Dialogue:
    index, steps = draw(rng, split, lambda r: (r.randrange(7), r.randint(2, 12)), lambda v: f"in days:{v}")
    prompt = IN_DAYS.pick(rng, split).format(x=DAYS[index], n=steps)
    result = DAYS[(index + steps) % 7]
    listing, answer = _steps(DAYS, index, steps), f"{steps} days after {DAYS[index]} is {result}."
    return ask(skill, prompt, answer, listing, _contains(f"is {result}"), direct=f"{listing} So {answer}")


def _in_months(rng: random.Random, split: Split, skill: str) -> Dialogue:
    index, steps = draw(rng, split, lambda r: (r.randrange(12), r.randint(2, 11)), lambda v: f"in months:{v}")
    prompt = IN_MONTHS.pick(rng, split).format(x=MONTHS[index], n=steps)
    result = MONTHS[(index + steps) % 12]
    listing, answer = _steps(MONTHS, index, steps), f"{steps} months after {MONTHS[index]} is {result}."
    return ask(skill, prompt, answer, listing, _contains(f"is {result}"), direct=f"{listing} So {answer}")


def _nth(rng: random.Random, split: Split, skill: str) -> Dialogue:
    names, kind, period = _cycle(skill)
    index = rng.randrange(len(names))
    prompt = NTH.pick(rng, split).format(n=ORDINALS[index], k=kind, p=period, i=index + 1)
    listing = ", ".join(f"{i + 1} {names[i]}" for i in range(index + 1))
    return ask(
        skill,
        prompt,
        f"The {ORDINALS[index]} {kind} of the {period} is {names[index]}.",
        listing + ".",
        _contains(f"is {names[index]}"),
    )


def _month_number(rng: random.Random, split: Split, skill: str) -> Dialogue:
    index = rng.randrange(12)
    prompt = WHICH_NUMBER.pick(rng, split).format(x=MONTHS[index])
    listing = ", ".join(f"{i + 1} {MONTHS[i]}" for i in range(index + 1))
    return ask(
        skill,
        prompt,
        f"{MONTHS[index]} is month number {index + 1}.",
        listing + ".",
        {"kind": "number", "value": index + 1},
    )


def _month_length(rng: random.Random, split: Split, skill: str) -> Dialogue:
    index = rng.randrange(12)
    name, count = MONTHS[index], LENGTHS[index]
    prompt = HOW_MANY_DAYS.pick(rng, split).format(x=name)
    tail = ", and 29 in a leap year" if index == 1 else ""
    reasoning = "February is the short month." if index == 1 else f"{name} is one of the months with {count} days."
    return ask(skill, prompt, f"{name} has {count} days{tail}.", reasoning, _contains(f"{count} days"))


def _season(rng: random.Random, split: Split, skill: str) -> Dialogue:
    index = rng.randrange(12)
    name, season = MONTHS[index], SEASONS[index]
    trio = ", ".join(month for month, other in zip(MONTHS, SEASONS, strict=True) if other == season)
    return ask(
        skill,
        SEASON.pick(rng, split).format(x=name),
        f"{name} is in {season} in the northern hemisphere.",
        f"{capitalise(season)}: {trio}.",
        _contains(f"in {season}"),
    )


def _list_all(rng: random.Random, split: Split, skill: str) -> Dialogue:
    names, kind, period = _cycle(skill)
    prompt = LIST_ALL.pick(rng, split).format(k=kind, p=period)
    answer = f"The {kind}s of the {period} are " + ", ".join(names[:-1]) + f" and {names[-1]}."
    return ask(
        skill, prompt, answer, f"There are {len(names)} {kind}s in a {period}.", {"kind": "words", "items": list(names)}
    )


def _weekend(rng: random.Random, split: Split, skill: str) -> Dialogue:
    index = rng.randrange(7)
    kind = "a weekday" if index < 5 else "part of the weekend"
    return ask(
        skill,
        WEEKEND.pick(rng, split).format(x=DAYS[index]),
        f"{DAYS[index]} is {kind}.",
        "The weekend is Saturday and Sunday.",
        _contains(f"is {kind}"),
    )


def _fact(rng: random.Random, split: Split, skill: str) -> Dialogue:
    phrases, answer, expected = rng.choice(FACTS)
    return ask(skill, phrases.pick(rng, split), answer, "This is a fact about the calendar.", _contains(expected))
