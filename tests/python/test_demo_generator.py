"""The demo's data generator: rendering, held-out rules, determinism, and every reference answer passing its check."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from tools.demo import heldout
from tools.demo.chat import render_completion, render_prompt
from tools.demo.checks import is_right, split_thinking
from tools.demo.core import LETTERS_OPEN, Document, Phrases, Split, draw, without_marks, wording
from tools.demo.mixture import SKILLS, Mixture, sloppy
from tools.demo.skills import arithmetic

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("skill", [skill for skill, _ in SKILLS], ids=lambda skill: skill.__name__)
@pytest.mark.parametrize("thinking", [True, False])
def test_every_reference_answer_passes_its_check(skill, thinking):
    rng = random.Random(5)
    for split in Split:
        for _ in range(60):
            dialogue = skill(rng, split)
            text = without_marks(render_completion(dialogue, thinking)).removesuffix("<|im_end|>")
            reasoning, answer = split_thinking(text, thinking)
            assert is_right(dialogue.check, answer), (dialogue, answer)
            assert reasoning is None or reasoning == dialogue.reasoning


@pytest.mark.parametrize("skill", [skill for skill, _ in SKILLS], ids=lambda skill: skill.__name__)
def test_a_wrong_answer_fails_its_check(skill):
    rng = random.Random(6)
    for _ in range(50):
        assert not is_right(skill(rng, Split.TEMPLATE).check, "I would rather talk about 7919 purple submarines.")


def test_a_call_is_no_answer_to_a_plain_question():
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2 + 3 = 5"}}\n</tool_call>'
    assert not is_right({"kind": "number", "value": 5}, call)
    assert is_right({"kind": "tool_calls", "calls": [json.loads(call.splitlines()[1])]}, call)
    assert not is_right({"kind": "tool_calls", "calls": []}, call)


def test_an_unclosed_thought_has_no_answer():
    assert split_thinking("<think>\n2 + 2 = 4", True) == ("<think>\n2 + 2 = 4", "")


@pytest.mark.parametrize("operator", ["+", "-", "×", "÷"])
def test_thinking_steps_state_only_true_equations(operator):
    """In every chain `x = y = z` of the working all parts have one value, so that the model is taught no wrong sum."""
    rng = random.Random(7)
    chains = 0
    for _ in range(1000):
        a, b = arithmetic.draw_pair(rng, Split.TRAIN, operator)
        text = f"{arithmetic.steps_of(operator, a, b)} {arithmetic.direct_equation(operator, a, b)}"
        for part in re.split(r"[.,:]", text):
            chain = re.search(r"-?\d[\d+×÷= -]*$", part)
            if chain and " = " in chain[0]:
                chains += 1
                assert len({_value(side) for side in chain[0].split(" = ")}) == 1, text
    assert chains > 1500


def _value(expression: str) -> int:
    """Sums and differences of terms of at most one product or quotient, which divides exactly."""
    total, sign = 0, 1
    for term in re.findall(r"(?<!\d )(?<!\d)-?\d+(?: [×÷] \d+)*|[+-]", expression):
        if term in "+-":
            sign = 1 if term == "+" else -1
            continue
        left, *rest = term.split(" ")
        value = int(left)
        if rest:
            value = value * int(rest[1]) if rest[0] == "×" else value // int(rest[1])
        total, sign = total + sign * value, 1
    return total


def test_splits_are_disjoint():
    rng = random.Random(8)
    train = {arithmetic.pair_key("+", *arithmetic.draw_pair(rng, Split.TRAIN, "+")) for _ in range(4000)}
    held = {arithmetic.pair_key("+", *arithmetic.draw_pair(rng, Split.ENTITY, "+")) for _ in range(2000)}
    assert held and not train & held


@pytest.mark.parametrize("skill", [skill for skill, _ in SKILLS], ids=lambda skill: skill.__name__)
def test_no_draw_runs_dry(skill):
    """Rare combinations count: a sum of 2 has few second operands, and a split may have none of them."""
    for split in Split:
        rng = random.Random(10)
        for _ in range(1000):
            skill(rng, split)


def test_a_draw_that_cannot_succeed_fails():
    entities = (str(number) for number in range(1000))
    trained = next(entity for entity in entities if Split.TRAIN.allows(entity))
    with pytest.raises(RuntimeError, match="entity split"):
        draw(random.Random(11), Split.ENTITY, lambda _: trained, str)


def test_phrases_hold_out_by_wording():
    """Typing a trained phrasing without its capital or its full stop must not produce a held-out one."""
    rng = random.Random(9)
    for phrases in (value for value in vars(arithmetic).values() if isinstance(value, Phrases)):
        held = {wording(text) for text in phrases.held}
        assert held and not held & {wording(text) for text in phrases.train}
        for text in phrases.train:
            assert wording(sloppy(rng, text, prefix=False)) not in held


def test_the_mixture_is_deterministic():
    first, second = Mixture(3), Mixture(3)
    assert [first.sample() for _ in range(300)] == [second.sample() for _ in range(300)]


def test_history_and_documents_hold_no_marks():
    mixture = Mixture(4)
    for _ in range(500):
        sample, thinking = mixture.sample()
        text = sample.text if isinstance(sample, Document) else render_prompt(sample.messages, sample.tools, thinking)
        assert LETTERS_OPEN not in text


def test_the_committed_prompts_are_the_generated_ones():
    assert heldout.PROMPTS.read_text(encoding="utf-8").splitlines() == heldout.lines()


def test_rendering_matches_the_jinja_template():
    jinja2 = pytest.importorskip("jinja2.sandbox")
    config = json.loads((ROOT / "data/qwen3-tokenizer/tokenizer_config.json").read_text(encoding="utf-8"))
    environment = jinja2.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(config["chat_template"])
    mixture = Mixture(9)
    for _ in range(600):
        sample, thinking = mixture.sample()
        if isinstance(sample, Document):
            continue
        options = {} if thinking else {"enable_thinking": False}
        prompt = render_prompt(sample.messages, sample.tools, thinking)
        assert prompt == template.render(
            messages=sample.messages, tools=sample.tools, add_generation_prompt=True, **options
        )
        if thinking:
            calls = [{"function": call} for call in sample.tool_calls]
            turn = {
                "role": "assistant",
                "content": sample.answer,
                "reasoning_content": sample.reasoning,
                "tool_calls": calls,
            }
            whole = template.render(messages=[*sample.messages, turn], tools=sample.tools)
            assert whole == prompt + render_completion(sample, True) + "\n"
