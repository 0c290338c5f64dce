#!/usr/bin/env python3
"""Writes tests/tokenizer/invalid_utf8.jsonl: byte strings, the offset of Python's UnicodeDecodeError, and the text that
errors="replace" makes of them."""

from __future__ import annotations

import json
import random
from pathlib import Path

OUTPUT = Path(__file__).resolve().parent / "invalid_utf8.jsonl"
FIXED = [
    b"\x80",
    b"a\xc0\xaf",
    b"\xe0\x80\x80",
    b"\xf0\x80\x80\x80",
    b"\xed\xa0\x80",
    b"\xed\xa0\xbd\xed\xb8\x80",
    b"\xf4\x90\x80\x80",
    b"\xf5\x80",
    b"\xff\xfe",
    b"ok \xe4\xb8",
    b"\xe4\xb8A",
    b"\xf0\x9f\x98",
    b"\xf0\x9f\x98\xe4\xb8\x96",
    b"\xc3",
    b"\xc3\xc3\xa9",
    b"\xe2\x82\xac",
    b"<|im_\xffend|>",
    b"<think>\xf0\x9f</think>",
    b"e\xcc\x81\xcc",
    b"\x00\xfe\x00",
    b"12345678901234\xe9",
]
PARTS = [
    b"a",
    b" ",
    b"\x80",
    b"\xbf",
    b"\xc2",
    b"\xe0",
    b"\xe4\xb8",
    b"\xed",
    b"\xa0",
    b"\xf0\x9f",
    b"\xf4",
    b"\x8f",
    b"\xff",
    b"\xc3\xa9",
]


def describe(data: bytes) -> dict[str, object]:
    offset = None
    try:
        data.decode()
    except UnicodeDecodeError as error:
        offset = error.start
    return {"bytes": list(data), "offset": offset, "replaced": data.decode(errors="replace")}


def main() -> None:
    rng = random.Random(1)
    texts = FIXED + [b"".join(rng.choices(PARTS, k=rng.randrange(1, 9))) for _ in range(400)]
    rows = [{"generator": "tests/tokenizer/make_invalid_utf8.py"}, *(describe(text) for text in texts)]
    OUTPUT.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
