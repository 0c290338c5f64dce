"""Counting, sorting and comparing small numbers."""

from __future__ import annotations

import random
from collections.abc import Callable

from tools.demo.core import Dialogue, Phrases, Split, ask, draw, join_and, load_lines

COUNT_UP = Phrases(
    "Count from {a} to {b}.",
    "Count from {a} to {b}",
    "Can you count from {a} to {b}?",
    "Please count from {a} up to {b}.",
    "List the numbers from {a} to {b}.",
    "Write the numbers from {a} to {b}.",
    "Give me all numbers from {a} to {b}.",
    "Count up from {a} to {b}.",
    "Say the numbers {a} to {b}.",
    "What numbers are there from {a} to {b}?",
)
COUNT_DOWN = Phrases(
    "Count down from {b} to {a}.",
    "Count backwards from {b} to {a}.",
    "Can you count down from {b} to {a}?",
    "List the numbers from {b} down to {a}.",
    "Please count down from {b} to {a}",
    "Count from {b} to {a} backwards.",
    "Write a countdown from {b} to {a}.",
)
COUNT_STEPS = Phrases(
    "Count from {a} to {b} in steps of {s}.",
    "Count by {s}s from {a} to {b}.",
    "Count from {a} to {b} by {s}.",
    "Write the numbers from {a} to {b}, going up by {s}.",
    "Skip count by {s} from {a} to {b}.",
    "Count in {s}s from {a} up to {b}.",
)
NEXT_NUMBER = Phrases(
    "What number comes after {a}?",
    "What comes after {a}?",
    "Which number follows {a}?",
    "What is the next number after {a}?",
    "Tell me the number right after {a}.",
    "What is one more than {a}?",
)
PREVIOUS_NUMBER = Phrases(
    "What number comes before {a}?",
    "What comes right before {a}?",
    "Which number is just before {a}?",
    "What is the number before {a}?",
    "Tell me the number right before {a}.",
    "What is one less than {a}?",
)
SORT_UP = Phrases(
    "Sort these numbers: {n}",
    "Sort these numbers from smallest to largest: {n}",
    "Sort {n} in ascending order.",
    "Put these numbers in order: {n}.",
    "Order these from low to high: {n}",
    "Please sort: {n}",
    "Arrange {n} from smallest to largest.",
    "Sort ascending: {n}",
    "Can you sort these numbers for me? {n}",
    "Can you sort the list {n}?",
    "Sort the numbers {n}.",
    "Put {n} in increasing order.",
)
SORT_DOWN = Phrases(
    "Sort these numbers from largest to smallest: {n}",
    "Sort {n} in descending order.",
    "Order these from high to low: {n}",
    "Arrange {n} from largest to smallest.",
    "Sort descending: {n}",
    "Put {n} in decreasing order.",
    "Please sort from biggest to smallest: {n}",
)
SORT_WORDS = Phrases(
    "Sort these words alphabetically: {n}",
    "Sort {n} in alphabetical order.",
    "Put these words in alphabetical order: {n}",
    "Please sort these words: {n}",
    "Arrange {n} from A to Z.",
    "Order these words alphabetically: {n}.",
)
LARGER = Phrases(
    "Which is larger, {a} or {b}?",
    "Which is bigger: {a} or {b}?",
    "Which number is greater, {a} or {b}?",
    "Is {a} or {b} larger?",
    "What is the larger of {a} and {b}?",
    "Which one is more, {a} or {b}?",
    "Compare {a} and {b}: which is larger?",
    "Tell me which is bigger, {a} or {b}.",
    "{a} or {b}, which is greater?",
)
SMALLER = Phrases(
    "Which is smaller, {a} or {b}?",
    "Which number is less, {a} or {b}?",
    "Is {a} or {b} smaller?",
    "What is the smaller of {a} and {b}?",
    "Compare {a} and {b}: which is smaller?",
    "{a} or {b}, which is less?",
    "Tell me which is smaller, {a} or {b}.",
)
IS_GREATER = Phrases(
    "Is {a} greater than {b}?",
    "Is {a} larger than {b}?",
    "Is {a} bigger than {b}?",
    "Is it true that {a} > {b}?",
    "Is {a} more than {b}?",
    "{a} > {b}?",
)
LARGEST = Phrases(
    "What is the largest of {n}?",
    "Which is the largest number: {n}?",
    "Find the maximum of {n}.",
    "Which of {n} is the biggest?",
    "What is the biggest number in {n}?",
    "Give me the maximum: {n}",
)
SMALLEST = Phrases(
    "What is the smallest of {n}?",
    "Which is the smallest number: {n}?",
    "Find the minimum of {n}.",
    "Which of {n} is the smallest?",
    "What is the lowest number in {n}?",
    "Give me the minimum: {n}",
)
PARITY = Phrases(
    "Is {a} even or odd?",
    "Is {a} an even number?",
    "Is {a} odd?",
    "Tell me whether {a} is even or odd.",
    "Is the number {a} even or odd?",
    "Would you call {a} even or odd?",
)
WORDS = [word for word in load_lines("words.txt") if 3 <= len(word) <= 8]


def counting(rng: random.Random, split: Split) -> Dialogue:
    return rng.choice((_count_range, _count_range, _count_steps, _neighbour))(rng, split)


def _count_range(rng: random.Random, split: Split) -> Dialogue:
    def sample(rng: random.Random) -> tuple[int, int]:
        start = 1 if rng.random() < 0.3 else rng.randint(0, 90)
        return start, start + rng.randint(2, 16)

    start, end = draw(rng, split, sample, lambda r: f"count:{r[0]}-{r[1]}")
    down = rng.random() < 0.35
    prompt = (COUNT_DOWN if down else COUNT_UP).pick(rng, split).format(a=start, b=end)
    numbers = list(range(start, end + 1))
    if down:
        numbers.reverse()
    reasoning = f"Start at {numbers[0]} and {'subtract' if down else 'add'} 1 each time until {numbers[-1]}."
    return ask("counting", prompt, ", ".join(map(str, numbers)), reasoning, {"kind": "sequence", "items": numbers})


def _count_steps(rng: random.Random, split: Split) -> Dialogue:
    def sample(rng: random.Random) -> tuple[int, int, int]:
        step = rng.choice((2, 2, 3, 4, 5, 5, 10))
        start = rng.choice((0, step, rng.randint(0, 20)))
        return start, step, start + step * rng.randint(3, 10)

    start, step, end = draw(rng, split, sample, lambda r: f"steps:{r}")
    prompt = COUNT_STEPS.pick(rng, split).format(a=start, b=end, s=step)
    numbers = list(range(start, end + 1, step))
    reasoning = f"Start at {start} and add {step} each time until {end}."
    return ask("counting", prompt, ", ".join(map(str, numbers)), reasoning, {"kind": "sequence", "items": numbers})


def _neighbour(rng: random.Random, split: Split) -> Dialogue:
    value = draw(rng, split, lambda r: r.randint(1, 199), lambda v: f"neighbour:{v}")
    after = rng.random() < 0.5
    prompt = (NEXT_NUMBER if after else PREVIOUS_NUMBER).pick(rng, split).format(a=value)
    result = value + 1 if after else value - 1
    answer = f"The number {'after' if after else 'before'} {value} is {result}."
    reasoning = f"{value} {'+' if after else '-'} 1 = {result}."
    return ask("counting", prompt, answer, reasoning, {"kind": "number", "value": result})


def _distinct_numbers(rng: random.Random, split: Split, task: str, low: int, high: int) -> list[int]:
    limit = rng.choice((9, 20, 50, 99, 99))
    return draw(rng, split, lambda r: r.sample(range(limit + 1), r.randint(low, high)), lambda n: f"{task}:{sorted(n)}")


def _list_text(rng: random.Random, items: list[str]) -> str:
    style = rng.random()
    if style < 0.7:
        return ", ".join(items)
    if style < 0.85:
        return join_and(items)
    return " ".join(items)


def sorting(rng: random.Random, split: Split) -> Dialogue:
    if rng.random() < 0.2:
        words = draw(rng, split, lambda r: r.sample(WORDS, r.randint(3, 5)), lambda n: f"sort:{sorted(n)}")
        prompt = SORT_WORDS.pick(rng, split).format(n=_list_text(rng, words))
        words.sort()
        reasoning = "Compare the first letters: " + ", ".join(f"{word[0]} {word}" for word in words) + "."
        return ask("sorting", prompt, ", ".join(words), reasoning, {"kind": "words", "items": words})
    numbers = _distinct_numbers(rng, split, "sort", 3, 7)
    down = rng.random() < 0.3
    prompt = (SORT_DOWN if down else SORT_UP).pick(rng, split).format(n=_list_text(rng, [str(n) for n in numbers]))
    reasoning = _selection_sort(numbers, down)
    ordered = sorted(numbers, reverse=down)
    return ask("sorting", prompt, ", ".join(map(str, ordered)), reasoning, {"kind": "sequence", "items": ordered})


def _selection_sort(numbers: list[int], down: bool) -> str:
    rest, lines = list(numbers), []
    choose: Callable[[list[int]], int] = max if down else min
    while len(rest) > 1:
        best = choose(rest)
        rest.remove(best)
        lines.append(f"take {best}, left {' '.join(map(str, rest))}")
    return f"The {'largest' if down else 'smallest'} first: " + "; ".join(lines) + f"; take {rest[0]}."


def comparing(rng: random.Random, split: Split) -> Dialogue:
    return rng.choice((_compare_two, _compare_two, _is_greater, _extreme, _parity))(rng, split)


def _compare_reason(a: int, b: int) -> str:
    if a == b:
        return f"{a} and {b} are equal."
    if len(str(a)) != len(str(b)):
        return f"{max(a, b)} has more digits than {min(a, b)}, so {max(a, b)} > {min(a, b)}."
    if a > 9 and a // 10 != b // 10:
        return f"Tens: {a // 10} and {b // 10}. So {max(a, b)} > {min(a, b)}."
    return f"Ones: {a % 10} and {b % 10}. So {max(a, b)} > {min(a, b)}."


def _two_numbers(rng: random.Random, split: Split) -> tuple[int, int]:
    def sample(rng: random.Random) -> tuple[int, int]:
        a = rng.randint(0, 99)
        b = min(99, max(0, a + rng.randint(-9, 9))) if rng.random() < 0.4 else rng.randint(0, 99)
        return a, b

    while True:
        a, b = draw(rng, split, sample, lambda p: f"compare:{min(p)},{max(p)}")
        if a != b:
            return a, b


def _compare_two(rng: random.Random, split: Split) -> Dialogue:
    a, b = _two_numbers(rng, split)
    larger = rng.random() < 0.6
    prompt = (LARGER if larger else SMALLER).pick(rng, split).format(a=a, b=b)
    value, other = (max(a, b), min(a, b)) if larger else (min(a, b), max(a, b))
    answer = f"{value} is {'larger' if larger else 'smaller'} than {other}."
    return ask("comparing", prompt, answer, _compare_reason(a, b), {"kind": "starts", "text": f"{value} is"})


def _is_greater(rng: random.Random, split: Split) -> Dialogue:
    a, b = _two_numbers(rng, split)
    prompt = IS_GREATER.pick(rng, split).format(a=a, b=b)
    answer = f"Yes, {a} is greater than {b}." if a > b else f"No, {a} is less than {b}."
    return ask("comparing", prompt, answer, _compare_reason(a, b), {"kind": "starts", "text": answer.split(",")[0]})


def _extreme(rng: random.Random, split: Split) -> Dialogue:
    numbers = _distinct_numbers(rng, split, "extreme", 3, 6)
    largest = rng.random() < 0.5
    prompt = (LARGEST if largest else SMALLEST).pick(rng, split).format(n=_list_text(rng, [str(n) for n in numbers]))
    value, best, lines = (max if largest else min)(numbers), numbers[0], []
    for number in numbers[1:]:
        best = (max if largest else min)(best, number)
        lines.append(f"{number}: {best}")
    word = "largest" if largest else "smallest"
    reasoning = f"Keep the {word} so far. {numbers[0]}: {numbers[0]}, " + ", ".join(lines) + "."
    return ask("comparing", prompt, f"The {word} number is {value}.", reasoning, {"kind": "number", "value": value})


def _parity(rng: random.Random, split: Split) -> Dialogue:
    value = draw(rng, split, lambda r: r.randint(0, 199), lambda v: f"parity:{v}")
    word = "odd" if value % 2 else "even"
    reasoning = f"The last digit of {value} is {value % 10}, which is {word}."
    return ask(
        "comparing",
        PARITY.pick(rng, split).format(a=value),
        f"{value} is {word}.",
        reasoning,
        {"kind": "contains", "all": [f"is {word}"]},
    )
