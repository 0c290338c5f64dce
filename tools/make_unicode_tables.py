#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.cc from data/unicode; --check fails if the file is stale.

Letters, numbers and white space are those of the reference's regex engine (char_classes.json); NFC splits the text at
the code points of nfc_exceptions.json. The third kind of table, the code points that NFC can neither change nor join to
what precedes them, only saves time: a code point that is not in it takes the slow way. It holds code points assigned in
Unicode 3.2 alone (plus the emoji blocks), whose normalisation is frozen, so that every Python makes the same file.
"""

from __future__ import annotations

import argparse
import json
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "src" / "tokenizer" / "unicode_tables.cc"
NUM_CODE_POINTS = 0x110000
# Pictographs: later than Unicode 3.2, without a combining mark or a decomposition (a test checks it against utf8proc).
EMOJI = range(0x1F000, 0x1FB00)
RANGES_PER_LINE = 5

Range = tuple[int, int]

HEADER = """\
// Made by tools/make_unicode_tables.py from data/unicode; do not edit. Meaning of the tables: unicode_tables.h.
#include "tokenizer/unicode_tables.h"

namespace kipp {
namespace {

// clang-format off
"""


def to_ranges(code_points: Iterable[int]) -> list[Range]:
    """Sorted code points as closed ranges."""
    ranges: list[Range] = []
    for code_point in sorted(code_points):
        if ranges and ranges[-1][1] + 1 == code_point:
            ranges[-1] = (ranges[-1][0], code_point)
        else:
            ranges.append((code_point, code_point))
    return ranges


def inert_code_points(exceptions: set[int]) -> set[int]:
    """Code points that NFC copies, whatever surrounds them, unless a later one joins them."""
    decomposed = {cp: unicodedata.normalize("NFD", chr(cp)) for cp in range(NUM_CODE_POINTS)}
    joins_left = {ord(char) for text in decomposed.values() for char in text[1:]}

    def is_inert(cp: int) -> bool:
        first = ord(decomposed[cp][0])
        old = unicodedata.ucd_3_2_0.category(chr(cp)) not in ("Cn", "Cs")
        return (
            (old or cp in EMOJI)
            and cp not in exceptions
            and unicodedata.combining(chr(cp)) == 0
            and unicodedata.combining(chr(first)) == 0
            and cp not in joins_left
            and first not in joins_left
            and unicodedata.normalize("NFC", chr(cp)) == chr(cp)
        )

    return {cp for cp in range(NUM_CODE_POINTS) if is_inert(cp)}


def format_table(name: str, ranges: list[Range]) -> str:
    items = [f"{{0x{first:04X}, 0x{last:04X}}}" for first, last in ranges]
    lines = [", ".join(items[i : i + RANGES_PER_LINE]) for i in range(0, len(items), RANGES_PER_LINE)]
    body = ",\n    ".join(lines)
    return f"constexpr CodePointRange {name}[] = {{\n    {body}}};\n"


def make_source() -> str:
    data = ROOT / "data" / "unicode"
    classes = json.loads((data / "char_classes.json").read_text(encoding="utf-8"))
    exceptions = {int(text, 16) for text in json.loads((data / "nfc_exceptions.json").read_text(encoding="utf-8"))}
    tables: dict[str, list[Range]] = {
        "Letter": [tuple(item) for item in classes["L"]],
        "Number": [tuple(item) for item in classes["N"]],
        "Space": [tuple(item) for item in classes["S"]],
        "NfcInert": to_ranges(inert_code_points(exceptions)),
        "NfcException": to_ranges(exceptions),
    }
    parts = [HEADER]
    parts += [format_table(f"k{name}", ranges) + "\n" for name, ranges in tables.items()]
    parts.append("// clang-format on\n\n}  // namespace\n\n")
    parts += [f"constinit const std::span<const CodePointRange> k{name}Ranges(k{name});\n" for name in tables]
    parts.append("\n}  // namespace kipp\n")
    return "".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is stale")
    arguments = parser.parse_args()
    source = make_source()
    if not arguments.check:
        OUTPUT.write_text(source, encoding="utf-8")
        return 0
    if OUTPUT.read_text(encoding="utf-8") != source:
        print(f"{OUTPUT.relative_to(ROOT)} is stale: run tools/make_unicode_tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
