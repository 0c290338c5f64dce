#!/usr/bin/env python3
"""Compares Kipp's tokenizer with Hugging Face `tokenizers` on random strings made to be nasty. Not part of `make test`.

    python tests/tokenizer/compare_with_huggingface.py --encoder build/dev/tests/tokenizer/tokenizer_encode_lines \\
        --tokenizer-json build/dev/tests/tokenizer/tokenizer.json --count 200000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import tokenizers

ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_response>"]
FRAGMENTS = [
    "<|im_",
    "end|>",
    "<|",
    "|>",
    "<",
    ">",
    "</",
    "think>",
    "'s",
    "'RE",
    "'ll",
    "'\u017f",
    "'",
    "\u2019s",
    "'v",
]
SPACES = [" ", "  ", "\n", "\r", "\r\n", "\t", "\x0b", "\x85", "\xa0", "\u2028", "\u3000", "\u200b", "\x1c", "\ufeff"]
WORDS = [
    "hello",
    "World",
    "the",
    "qu",
    "\u4f60\u597d",
    "\u043f\u0440\u0438",
    "caf\u00e9",
    "na\u00efve",
    "\u0e01\u0e33",
    "\uac00\uac01",
]
MARKS = ["\u0301", "\u0323", "\u0308", "\u093c", "\u3099", "\u0345", "\u1161", "\u11a8", "\u11a7", "\u0338", "\u05b0"]
BASES = ["a", "o", "E", "\u1100", "\uac00", "\u30ab", "\u0915", "\u03b1", "\u1e9b", "\u0041\u030a", "\u212b", "\u2126"]
DIGITS = ["0", "42", "\u0661", "\u00bd", "\u2167", "\uff11"]
EXCEPTIONS_FILE = Path("data/unicode/nfc_exceptions.json")


def random_code_point(rng: random.Random) -> str:
    limit = rng.choice([0x80, 0x300, 0x3000, 0x10000, 0x20000, 0x110000])
    while True:
        code_point = rng.randrange(limit)
        if not 0xD800 <= code_point < 0xE000:
            return chr(code_point)


def make_sources(rng: random.Random, exceptions: list[str]) -> list[Callable[[], str]]:
    lists = [ADDED, FRAGMENTS, SPACES, WORDS, MARKS, BASES, DIGITS, exceptions]
    sources: list[Callable[[], str]] = [lambda items=items: rng.choice(items) for items in lists]
    sources.append(lambda: random_code_point(rng))
    sources.append(lambda: chr(rng.randrange(32, 127)))
    sources.append(lambda: rng.choice("aAbez =-_.\n0") * rng.randrange(1, 90))
    return sources


def random_text(rng: random.Random, sources: list[Callable[[], str]]) -> str:
    chosen = rng.sample(sources, rng.randrange(1, 5))  # few kinds at a time, so that they meet
    return "".join(rng.choice(chosen)() for _ in range(rng.randrange(1, 25)))


def load_references(path: Path) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """The tokenizer as it is, and without its added tokens."""
    description = json.loads(path.read_text(encoding="utf-8"))
    parsed = tokenizers.Tokenizer.from_str(json.dumps(description))
    description["added_tokens"] = []
    return parsed, tokenizers.Tokenizer.from_str(json.dumps(description))


def kipp_ids(encoder: Path, texts: list[str]) -> list[str]:
    lines = "".join(text.encode().hex() + "\n" for text in texts)
    result = subprocess.run([encoder], input=lines, capture_output=True, text=True, check=True)
    return result.stdout.splitlines()


def compare(texts: list[str], encoder: Path, references: tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]) -> int:
    num_different = 0
    expected = [reference.encode_batch(texts, add_special_tokens=False) for reference in references]
    for text, found, parsed, plain in zip(texts, kipp_ids(encoder, texts), *expected, strict=True):
        wanted = ";".join(" ".join(map(str, encoding.ids)) for encoding in (parsed, plain))
        if found != wanted:
            num_different += 1
            print(f"{text!a}\n  expected {wanted}\n  found    {found}", file=sys.stderr)
    return num_different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, required=True, help="the tokenizer_encode_lines executable")
    parser.add_argument("--tokenizer-json", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    exceptions = [chr(int(text, 16)) for text in json.loads(EXCEPTIONS_FILE.read_text(encoding="utf-8"))]
    sources = make_sources(rng, exceptions)
    references = load_references(arguments.tokenizer_json)
    num_different = 0
    for start in range(0, arguments.count, 20_000):
        texts = [random_text(rng, sources) for _ in range(min(20_000, arguments.count - start))]
        num_different += compare(texts, arguments.encoder, references)
    print(f"{arguments.count} texts (tokenizers {tokenizers.__version__}), {num_different} different")
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main())
