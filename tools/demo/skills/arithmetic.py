"""One- and two-digit arithmetic: carry by carry in the thinking text, the bare equation in the answer."""

from __future__ import annotations

import random

from tools.demo.core import Dialogue, Phrases, Split, ask, draw

ADD = Phrases(
    "What is {a} + {b}?",
    "What's {a} + {b}?",
    "{a} + {b}",
    "{a}+{b}",
    "{a} + {b} = ?",
    "{a}+{b}=",
    "Calculate {a} + {b}.",
    "Compute {a} + {b}",
    "What is {a} plus {b}?",
    "What's {a} plus {b}?",
    "Add {a} and {b}.",
    "Add {b} to {a}",
    "What is the sum of {a} and {b}?",
    "How much is {a} + {b}?",
    "How much is {a} plus {b}?",
    "Please add {a} and {b}.",
    "Can you tell me what {a} + {b} is?",
    "Could you compute {a} plus {b} for me?",
    "Solve: {a} + {b}",
    "Work out {a} + {b}.",
    "Find the sum: {a} + {b}",
    "I need the total of {a} and {b}.",
    "Tell me {a} plus {b}.",
    "Sum {a} and {b}.",
    "what does {a} + {b} equal?",
    "What do you get if you add {a} and {b}?",
    "Quick: {a} + {b}?",
    "Evaluate {a} + {b}.",
)
SUBTRACT = Phrases(
    "What is {a} - {b}?",
    "What's {a} - {b}?",
    "{a} - {b}",
    "{a}-{b}",
    "{a} - {b} = ?",
    "{a}-{b}=",
    "Calculate {a} - {b}.",
    "Compute {a} - {b}",
    "What is {a} minus {b}?",
    "What's {a} minus {b}?",
    "Subtract {b} from {a}.",
    "Take {b} away from {a}.",
    "What is the difference between {a} and {b}?",
    "How much is {a} - {b}?",
    "How much is {a} minus {b}?",
    "Please subtract {b} from {a}.",
    "Can you tell me what {a} - {b} is?",
    "Solve: {a} - {b}",
    "Could you compute {a} minus {b} for me?",
    "Work out {a} - {b}.",
    "Tell me {a} minus {b}.",
    "Evaluate {a} - {b}.",
    "what does {a} - {b} equal?",
    "What is left if you take {b} from {a}?",
    "Quick: {a} - {b}?",
)
MULTIPLY = Phrases(
    "What is {a} {x} {b}?",
    "What's {a} {x} {b}?",
    "{a} {x} {b}",
    "{a}{x}{b}",
    "{a} {x} {b} = ?",
    "Calculate {a} {x} {b}.",
    "Compute {a} {x} {b}",
    "What is {a} times {b}?",
    "What's {a} times {b}?",
    "Multiply {a} by {b}.",
    "Multiply {a} and {b}",
    "What is the product of {a} and {b}?",
    "How much is {a} {x} {b}?",
    "How much is {a} times {b}?",
    "Solve: {a} {x} {b}",
    "Please multiply {a} by {b}.",
    "Can you tell me what {a} {x} {b} is?",
    "Could you compute {a} times {b} for me?",
    "Work out {a} {x} {b}.",
    "Tell me {a} times {b}.",
    "what does {a} {x} {b} equal?",
    "Evaluate {a} {x} {b}.",
    "What is {a} multiplied by {b}?",
    "Quick: {a} {x} {b}?",
)
DIVIDE = Phrases(
    "What is {a} {d} {b}?",
    "What's {a} {d} {b}?",
    "{a} {d} {b}",
    "{a}{d}{b}",
    "{a} {d} {b} = ?",
    "Calculate {a} {d} {b}.",
    "Compute {a} {d} {b}",
    "What is {a} divided by {b}?",
    "What's {a} divided by {b}?",
    "Divide {a} by {b}.",
    "How much is {a} {d} {b}?",
    "How much is {a} divided by {b}?",
    "Please divide {a} by {b}.",
    "Solve: {a} {d} {b}",
    "Can you tell me what {a} {d} {b} is?",
    "Could you compute {a} divided by {b} for me?",
    "Work out {a} {d} {b}.",
    "Tell me {a} divided by {b}.",
    "what does {a} {d} {b} equal?",
    "How many times does {b} go into {a}?",
    "Evaluate {a} {d} {b}.",
    "Quick: {a} {d} {b}?",
)
NAMES = (
    "Anna",
    "Ben",
    "Tom",
    "Lucy",
    "Mia",
    "Sam",
    "Emma",
    "Leo",
    "Max",
    "Sara",
    "Paul",
    "Nina",
    "Jack",
    "Ella",
    "Omar",
)
THINGS = (
    "apples",
    "books",
    "coins",
    "pens",
    "marbles",
    "stickers",
    "cards",
    "eggs",
    "cookies",
    "shells",
    "stamps",
    "balls",
)
BOXES = ("boxes", "bags", "baskets", "jars")
GAIN = Phrases(
    "{n} has {a} {t} and gets {b} more. How many {t} does {n} have now?",
    "{n} has {a} {t}. {m} gives {n} {b} more. How many {t} does {n} have?",
    "There are {a} {t} on the table and {b} in the box. How many {t} are there in total?",
    "{n} buys {a} {t} and {m} buys {b}. How many {t} do they have together?",
    "{n} found {a} {t} in the morning and {b} in the evening. How many {t} is that?",
)
LOSE = Phrases(
    "{n} has {a} {t} and gives {b} to {m}. How many {t} are left?",
    "{n} had {a} {t} and lost {b}. How many {t} does {n} have now?",
    "There are {a} {t} in the box. {n} takes {b}. How many {t} remain?",
    "{n} has {a} {t} and sells {b} of them. How many {t} does {n} still have?",
    "From {a} {t}, {b} are gone. How many {t} are left?",
)
GROUPS = Phrases(
    "{n} has {a} {x} with {b} {t} in each. How many {t} are there in total?",
    "There are {b} {t} in each of {a} {x}. How many {t} are there?",
    "{n} fills {a} {x} with {b} {t} each. How many {t} does {n} need?",
    "Each of the {a} {x} holds {b} {t}. How many {t} is that in all?",
)
SHARES = Phrases(
    "{n} shares {a} {t} equally among {b} friends. How many {t} does each friend get?",
    "{a} {t} are split evenly into {b} {x}. How many {t} are in each?",
    "{n} puts {a} {t} into {b} {x}, the same number in each. How many {t} per one?",
    "If {b} children share {a} {t} equally, how many {t} does each get?",
)


def number(rng: random.Random) -> int:
    """One- and two-digit numbers, with the small ones more often than their share."""
    return rng.randint(0, 12) if rng.random() < 0.25 else rng.randint(1, 99)


def addition_steps(a: int, b: int) -> str:
    ones = a % 10 + b % 10
    if a < 10 and b < 10:
        return f"{a} + {b} = {a + b}."
    carry = ", carry 1" if ones > 9 else ""
    tens = f"{a // 10} + {b // 10}" + (" + 1" if ones > 9 else "")
    return f"Ones: {a % 10} + {b % 10} = {ones}{carry}. Tens: {tens} = {(a + b) // 10}. So {a} + {b} = {a + b}."


def subtraction_steps(a: int, b: int) -> str:
    if a < b:
        return f"{a} is less than {b}, so the result is negative. {subtraction_steps(b, a)} So {a} - {b} = {a - b}."
    if a < 10:
        return f"{a} - {b} = {a - b}."
    borrow = a % 10 < b % 10
    ones = (
        f"{a % 10 + 10} - {b % 10} = {a % 10 + 10 - b % 10}, borrow 1"
        if borrow
        else f"{a % 10} - {b % 10} = {a % 10 - b % 10}"
    )
    tens = f"{a // 10} - {b // 10}" + (" - 1" if borrow else "")
    return f"Ones: {ones}. Tens: {tens} = {(a - b) // 10}. So {a} - {b} = {a - b}."


def times_digit(a: int, digit: int) -> str:
    """a × one digit, the tens and the ones apart."""
    if a < 10 or a % 10 == 0 or digit == 0:
        return f"{a} × {digit} = {a * digit}."
    tens, ones = a // 10 * 10, a % 10
    first, second = tens * digit, ones * digit
    return f"{tens} × {digit} = {first}, {ones} × {digit} = {second}, {first} + {second} = {a * digit}."


def multiplication_steps(a: int, b: int) -> str:
    if a < 10 and b < 10:
        return f"{a} × {b} = {a * b}."
    if a < 10:
        a, b = b, a
    if b < 10:
        return f"{times_digit(a, b)} So {a} × {b} = {a * b}."
    if b % 10 == 0:
        return f"{times_digit(a, b // 10)} Times 10 is {a * b}. So {a} × {b} = {a * b}."
    tens, ones = a * (b // 10), a * (b % 10)
    return (
        f"{b} = {b // 10 * 10} + {b % 10}. By {b // 10}: {times_digit(a, b // 10)} Times 10 is {tens * 10}. "
        f"By {b % 10}: {times_digit(a, b % 10)} {tens * 10} + {ones} = {a * b}."
    )


def division_steps(a: int, b: int) -> str:
    quotient = a // b
    if quotient <= 10:
        return f"{b} × {quotient} = {a}. So {a} ÷ {b} = {quotient}."
    tens = quotient // 10 * 10
    rest = a - tens * b
    return (
        f"{b} × {tens} = {tens * b}. {a} - {tens * b} = {rest}. {b} × {quotient - tens} = {rest}. "
        f"{tens} + {quotient - tens} = {quotient}."
    )


def pair_key(operator: str, a: int, b: int) -> str:
    """Commutative operators hold a pair out in both orders."""
    return f"{operator}:{min(a, b)},{max(a, b)}" if operator in "+×" else f"{operator}:{a},{b}"


def draw_pair(rng: random.Random, split: Split, operator: str) -> tuple[int, int]:
    def sample(rng: random.Random) -> tuple[int, int]:
        if operator == "÷":
            quotient = rng.randint(1, 12 if rng.random() < 0.5 else 49)
            divisor = rng.randint(1, min(99 // quotient, 99) if quotient > 9 else 12)
            return (quotient * divisor, divisor) if quotient * divisor <= 99 or rng.random() < 0.2 else (quotient, 1)
        a, b = number(rng), number(rng)
        if operator == "-" and a < b and rng.random() < 0.8:
            a, b = b, a
        if operator == "×" and min(a, b) > 9 and rng.random() < 0.35:
            b = rng.randint(2, 9)
        return a, b

    return draw(rng, split, sample, lambda pair: pair_key(operator, *pair))


def result_of(operator: str, a: int, b: int) -> int:
    return {"+": a + b, "-": a - b, "×": a * b, "÷": a // b if b else 0}[operator]


def steps_of(operator: str, a: int, b: int) -> str:
    steps = {"+": addition_steps, "-": subtraction_steps, "×": multiplication_steps, "÷": division_steps}
    return steps[operator](a, b)


def equation(operator: str, a: int, b: int) -> str:
    return f"{a} {operator} {b} = {result_of(operator, a, b)}"


def direct_equation(operator: str, a: int, b: int) -> str:
    """Without thinking, long products and quotients show their two partial results."""
    if operator == "÷" and b > 1 and a // b > 10 and a // b % 10:
        tens = a // b // 10 * 10
        return f"{a} ÷ {b} = {tens * b} ÷ {b} + {a - tens * b} ÷ {b} = {tens} + {a // b - tens} = {a // b}."
    if operator == "×" and min(a, b) > 10 and a % 10 and b % 10:
        return f"{a} × {b} = {a} × {b // 10 * 10} + {a} × {b % 10} = {a * (b // 10 * 10)} + {a * (b % 10)} = {a * b}."
    return equation(operator, a, b) + "."


def _sum(rng: random.Random, split: Split, skill: str, operator: str, phrases: Phrases) -> Dialogue:
    a, b = draw_pair(rng, split, operator)
    phrase = phrases.pick(rng, split)
    while operator == "-" and a < b and any(word in phrase for word in ("difference", "left", "away")):
        phrase = phrases.pick(rng, split)  # these words do not say which way round a negative result is
    prompt = phrase.format(a=a, b=b, x=rng.choice("××*x"), d=rng.choice("÷//"))
    check = {"kind": "number", "value": result_of(operator, a, b)}
    return ask(
        skill,
        prompt,
        equation(operator, a, b) + ".",
        steps_of(operator, a, b),
        check,
        direct=direct_equation(operator, a, b),
    )


def addition(rng: random.Random, split: Split) -> Dialogue:
    return _sum(rng, split, "addition", "+", ADD)


def subtraction(rng: random.Random, split: Split) -> Dialogue:
    return _sum(rng, split, "subtraction", "-", SUBTRACT)


def multiplication(rng: random.Random, split: Split) -> Dialogue:
    return _sum(rng, split, "multiplication", "×", MULTIPLY)


def division(rng: random.Random, split: Split) -> Dialogue:
    return _sum(rng, split, "division", "÷", DIVIDE)


def word_problem(rng: random.Random, split: Split) -> Dialogue:
    operator, phrases, sentence = rng.choice(
        (
            ("+", GAIN, "add"),
            ("+", GAIN, "add"),
            ("-", LOSE, "subtract"),
            ("-", LOSE, "subtract"),
            ("×", GROUPS, "multiply"),
            ("÷", SHARES, "divide"),
        )
    )
    while True:
        a, b = draw_pair(rng, split, operator)
        if a >= b > 1 and not (operator == "×" and a * b > 300) and (operator != "÷" or a <= 99):
            break
    person, other = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    prompt = phrases.pick(rng, split).format(n=person, m=other, t=thing, a=a, b=b, x=rng.choice(BOXES))
    value = result_of(operator, a, b)
    answer = f"{equation(operator, a, b)}, so the answer is {value} {thing}."
    reasoning = f"I have to {sentence}. {steps_of(operator, a, b)}"
    return ask("word problems", prompt, answer, reasoning, {"kind": "number", "value": value})
