"""llama.cpp's tokenizer on the golden texts: where its ids differ from Kipp's, each time for a known reason.

Kipp's ids are the reference's (tests/golden). The differences are llama.cpp's own; docs/interchange.md lists them.
"""

from __future__ import annotations

import collections
import json
import unicodedata
from collections.abc import Iterator

import llama_cpp
import pytest
from engines import open_llama
from exported_models import ROOT, Model

from tools.gguf_reader import GgufFile

# Added tokens that are no control tokens. The others of that kind, <|fim_prefix|> and the like, llama.cpp makes control
# tokens by their names.
USER_DEFINED = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}


@pytest.fixture(scope="module")
def llama(demo: Model) -> Iterator[llama_cpp.Llama]:
    llama = open_llama(demo.export, vocab_only=True)
    yield llama
    llama.close()


def reason(text: str, *, plain: bool) -> str | None:
    """Why llama.cpp may differ on this text; None if it must not."""
    if unicodedata.normalize("NFC", text) != text:
        return "not in NFC, which llama.cpp does not make"
    if plain and any(token in text for token in USER_DEFINED):
        return "a token like <think>, which llama.cpp reads as one in plain text too"
    if not plain and "</s>" in text:
        return "</s>, an ordinary token that llama.cpp takes for a control token"
    if any(unicodedata.category(char) == "Cn" for char in text):
        return f"a character newer than Unicode {unicodedata.unidata_version}, of a class llama.cpp does not know"
    return None


def golden_cases() -> list[dict]:
    lines = (ROOT / "tests" / "golden" / "tokenizer.jsonl").read_text(encoding="ascii").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("plain", [False, True], ids=["parsed", "plain"])
def test_every_difference_is_a_known_one(llama: llama_cpp.Llama, plain: bool) -> None:
    different: collections.Counter[str] = collections.Counter()
    unexplained = []
    cases = golden_cases()
    for case in cases:
        expected = case.get("ids_plain", case["ids"]) if plain else case["ids"]
        found = llama.tokenize(case["text"].encode(), add_bos=False, special=not plain)
        if found != expected:
            why = reason(case["text"], plain=plain)
            different[why or "unknown"] += 1
            if why is None:
                unexplained.append(f"{case['name']}: {case['text']!a}: Kipp {expected}, llama.cpp {found}")
    print(f"\ntokenizer, {'plain' if plain else 'parsed'}: {different.total()} of {len(cases)} differ", end="")
    for why, count in different.most_common():
        print(f"\n  {count} {why}", end="", flush=True)
    assert not unexplained, "\n".join(unexplained)
    assert len(different) == 3  # a reason that no text shows any more does not belong into the list


def test_the_prompts_of_the_comparison_are_the_same(llama: llama_cpp.Llama, prompts: dict[str, list[int]]) -> None:
    lines = (ROOT / "tests" / "vectors" / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    texts = {case["name"]: case["text"] for case in map(json.loads, lines)}
    assert texts.keys() == prompts.keys()
    for name, ids in prompts.items():
        assert llama.tokenize(texts[name].encode(), add_bos=False, special=True)[: len(ids)] == ids, name


def test_special_ids(llama: llama_cpp.Llama, demo: Model) -> None:
    with GgufFile(demo.artifact) as file:
        assert llama.token_eos() == file.metadata["tokenizer.ggml.eos_token_id"]
        assert llama.n_vocab() == file.metadata["qwen3.vocab_size"]
    assert llama.tokenize(b"Hi", add_bos=True, special=True) == llama.tokenize(b"Hi", add_bos=False, special=True)
