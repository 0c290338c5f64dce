"""tokenizer.json to artifact metadata: the genuine one passes, every other is refused by field."""

from __future__ import annotations

import copy
import hashlib
import json
import lzma
from pathlib import Path

import pytest

from tools.errors import ToolError
from tools.synthetic_snapshot import TOKENIZER_DATA
from tools.tokenizer_metadata import (
    THINK_TOKENS,
    TokenizerMetadata,
    TokenType,
    extract_tokenizer,
    parse_tokenizer,
    without_think_tokens,
)

GENUINE = lzma.decompress(TOKENIZER_DATA.read_bytes())
DOCUMENT = json.loads(GENUINE)
PATH = Path("tokenizer.json")


def changeable_document() -> dict:
    """A copy of the genuine one; deepcopy of 300,000 entries would dominate the run."""
    document = copy.deepcopy({key: value for key, value in DOCUMENT.items() if key != "model"})
    model = DOCUMENT["model"]
    return document | {"model": model | {"vocab": dict(model["vocab"]), "merges": list(model["merges"])}}


@pytest.fixture(scope="module")
def genuine() -> TokenizerMetadata:
    return parse_tokenizer(GENUINE, PATH)


def test_the_bundled_tokenizer_is_the_published_one() -> None:
    published = "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"
    assert hashlib.sha256(GENUINE).hexdigest() == published


def test_counts_and_types(genuine: TokenizerMetadata) -> None:
    assert len(genuine.tokens) == len(genuine.types) == 151936
    assert len(genuine.merges) == 151387
    assert len(set(genuine.tokens)) == 151936
    kinds = [genuine.types.count(kind) for kind in TokenType]
    assert dict(zip(TokenType, kinds, strict=True)) == {
        TokenType.NORMAL: 151643, TokenType.CONTROL: 14, TokenType.USER_DEFINED: 12, TokenType.UNUSED: 267}
    assert genuine.tokens[151645] == "<|im_end|>"
    assert genuine.types[151645] == TokenType.CONTROL
    assert (genuine.tokens[151657], genuine.types[151657]) == ("<tool_call>", TokenType.USER_DEFINED)
    assert genuine.tokens[151668:151671] == ["</think>", "[PAD151669]", "[PAD151670]"]
    assert genuine.tokens[-1] == "[PAD151935]"
    assert genuine.merges[:2] == ["Ġ Ġ", "ĠĠ ĠĠ"]


def test_normal_tokens_are_spelled_in_the_gpt2_byte_alphabet(genuine: TokenizerMetadata) -> None:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte) for byte in printable} | {chr(256 + index) for index in range(256 - len(printable))}
    assert len(alphabet) == 256
    assert set(genuine.tokens[:256]) == alphabet
    assert all(set(token) <= alphabet for token in genuine.tokens[:151643])


def test_a_base_tokenizer_lacks_the_four_think_tokens(genuine: TokenizerMetadata) -> None:
    base = parse_tokenizer(without_think_tokens(GENUINE, PATH), PATH)
    assert not base.isolates_think_tokens
    assert base.tokens[151665:151669] == [f"[PAD{token_id}]" for token_id in range(151665, 151669)]
    assert base.types[151665:151669] == [TokenType.UNUSED] * 4
    assert base == genuine.with_think_tokens(isolate=False)
    assert base.with_think_tokens(isolate=True) == genuine
    assert genuine.with_think_tokens(isolate=True) is genuine


def test_merges_may_be_spelled_as_text(genuine: TokenizerMetadata) -> None:
    document = changeable_document()
    document["model"]["merges"] = [" ".join(merge) for merge in document["model"]["merges"]]
    assert extract_tokenizer(document, PATH) == genuine


def swap_merges(document: dict) -> None:
    merges = document["model"]["merges"]
    merges[5], merges[6] = merges[6], merges[5]


def swap_tokens(document: dict) -> None:
    vocab = document["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


CHANGES = [
    (lambda d: d.update(normalizer=None), "normalizer"),
    (lambda d: d.update(normalizer={"type": "NFKC"}), "normalizer"),
    (lambda d: d["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex=r"\s+"), "pre_tokenizer"),
    (lambda d: d["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True), "pre_tokenizer"),
    (lambda d: d.update(decoder=None), "decoder"),
    (lambda d: d.update(truncation={"max_length": 5}), "truncation"),
    (lambda d: d["model"].update(type="WordPiece"), "model.type"),
    (lambda d: d["model"].update(dropout=0.1), "model.dropout"),
    (lambda d: d["model"].update(byte_fallback=True), "model.byte_fallback"),
    (lambda d: d["model"].update(ignore_merges=True), "model.ignore_merges"),
    (lambda d: d["model"].update(end_of_word_suffix="</w>"), "model.end_of_word_suffix"),
    (lambda d: d["model"]["vocab"].pop("a"), "model.vocab: expected 151643 tokens, found 151642"),
    (lambda d: d["model"]["vocab"].update(a=1), "model.vocab["),
    (lambda d: d["model"]["vocab"].update(a=151643), "model.vocab['a']"),
    (lambda d: d["model"]["vocab"].update(a=True), "model.vocab['a']"),
    (lambda d: d["model"]["merges"].pop(), "model.merges: expected 151387 merges, found 151386"),
    (lambda d: d["model"]["merges"].__setitem__(9, ["a"]), "model.merges[9]"),
    (lambda d: d["model"]["merges"].__setitem__(9, "a b c"), "model.merges[9]"),
    (swap_merges, "sha256 of model.vocab and model.merges"),
    (swap_tokens, "sha256 of model.vocab and model.merges"),
    (lambda d: d["added_tokens"].pop(), "added_tokens: expected 22 or 26, found 25"),
    (lambda d: d["added_tokens"][2].update(special=False), "added_tokens[2]"),
    (lambda d: d["added_tokens"][20].update(lstrip=True), "added_tokens[20]"),
    (lambda d: d["added_tokens"][25].update(content="<thunk>"), "added_tokens[25]"),
    (lambda d: d["added_tokens"][25].update(normalized=True), "added_tokens[25]"),
    (lambda d: d["added_tokens"].reverse(), "added_tokens[0]"),
    (lambda d: d.update(added_tokens=None), "added_tokens"),
    (lambda d: d.update(model=[]), "model: expected an object"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_any_other_tokenizer_is_refused(change, words: str) -> None:
    document = changeable_document()
    change(document)
    with pytest.raises(ToolError, match=r"tokenizer\.json") as caught:
        extract_tokenizer(document, PATH)
    assert words in str(caught.value)


def test_a_file_that_lacks_them_cannot_be_stripped_again() -> None:
    with pytest.raises(ToolError, match=THINK_TOKENS[0]):
        without_think_tokens(without_think_tokens(GENUINE, PATH), PATH)
