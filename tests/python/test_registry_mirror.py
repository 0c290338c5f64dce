"""tools/checkpoints.py must say exactly what src/kipp_checkpoints.h says, field by field."""

from __future__ import annotations

import dataclasses
import json
import re
import struct
import subprocess
import sys

from tiny_snapshots import REPOSITORY

from tools import checkpoints
from tools.checkpoints import Checkpoint

HEADER = (REPOSITORY / "src" / "kipp_checkpoints.h").read_text(encoding="utf-8")
PINNED = checkpoints.CHECKPOINTS  # taken at import, before the test entries are added

CONSTANTS = {
    "kNumKvHeads": checkpoints.NUM_KV_HEADS,
    "kHeadDim": checkpoints.HEAD_DIM,
    "kVocabSize": checkpoints.VOCAB_SIZE,
    "kNumTokens": checkpoints.NUM_TOKENS,
    "kFirstThinkToken": checkpoints.FIRST_THINK_TOKEN,
    "kNumMerges": checkpoints.NUM_MERGES,
    "kRmsNormEpsilon": checkpoints.RMS_NORM_EPSILON,
    "kEndOfText": checkpoints.END_OF_TEXT,
    "kImStart": checkpoints.IM_START,
    "kImEnd": checkpoints.IM_END,
}


def header_fields() -> list[str]:
    struct_body = re.search(r"struct Checkpoint \{(.*?)\n\};", HEADER, re.S)
    assert struct_body
    return re.findall(r"^\s*[\w:]+\s+(\w+);", struct_body.group(1), re.M)


def header_entries() -> list[list[str]]:
    table = re.search(r"kCheckpoints = \{(.*?)\n\};", HEADER, re.S)
    assert table
    entries = re.findall(r"Checkpoint\{(.*?)\}", table.group(1))
    return [[field.strip() for field in entry.split(",")] for entry in entries]


def cpp_literal(value: object, variant_names: dict[str, str]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return variant_names.get(value, f'"{value}"')
    if isinstance(value, float):
        return f"{value:.0e}".replace("e+0", "e") + "F"
    return str(value)


def test_fields_are_those_of_the_struct_in_order() -> None:
    assert [field.name for field in dataclasses.fields(Checkpoint)] == header_fields()


def test_every_entry_is_equal_in_every_field() -> None:
    cases = re.findall(r'case Variant::(\w+): return "([^"]+)"', HEADER)
    variant_names = {name: f"Variant::{case}" for case, name in cases}
    assert tuple(variant_names) == checkpoints.VARIANTS
    entries = header_entries()
    assert len(entries) == HEADER.count("Checkpoint{") == len(PINNED) == 14
    for found, checkpoint in zip(entries, PINNED, strict=True):
        assert found == [cpp_literal(value, variant_names) for value in dataclasses.astuple(checkpoint)]


def test_every_constant_of_the_family_is_equal() -> None:
    found = dict(re.findall(r"inline constexpr \w+ (k\w+) = ([^;]+);", HEADER))
    assert found.keys() == CONSTANTS.keys()
    for name, value in CONSTANTS.items():
        literal = float(found[name].rstrip("F"))
        as_float = struct.unpack("<f", struct.pack("<f", value))[0]
        assert (literal == value) if isinstance(value, int) else (literal in (value, as_float)), name


def test_stop_tokens_are_equal() -> None:
    for name, tokens in (("kBaseStopTokens", checkpoints.BASE_STOP_TOKENS),
                         ("kChatStopTokens", checkpoints.CHAT_STOP_TOKENS)):
        listed = re.search(name + r" = \{([^}]*)\}", HEADER)
        assert listed
        assert tuple(CONSTANTS[part.strip()] for part in listed.group(1).split(",")) == tokens


def test_a_difference_in_any_field_would_be_seen() -> None:
    """The comparison must not be blind to a field: change each one and look."""
    variant_names: dict[str, str] = {}
    checkpoint = PINNED[1]
    original = [cpp_literal(value, variant_names) for value in dataclasses.astuple(checkpoint)]
    for index, field in enumerate(dataclasses.fields(Checkpoint)):
        value = getattr(checkpoint, field.name)
        other: object = not value if isinstance(value, bool) else value + "x" if isinstance(value, str) else value * 2
        changed = dataclasses.replace(checkpoint, **{field.name: other})
        literals = [cpp_literal(value, variant_names) for value in dataclasses.astuple(changed)]
        assert [i for i in range(len(original)) if literals[i] != original[i]] == [index]


def test_the_command_prints_table_and_json() -> None:
    script = str(REPOSITORY / "tools" / "checkpoints.py")
    table = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd="/").stdout
    assert all(checkpoint.id in table and checkpoint.revision in table for checkpoint in PINNED)
    output = subprocess.run([sys.executable, "-m", "tools.checkpoints", "--json"], capture_output=True, text=True,
                            check=True, cwd=REPOSITORY).stdout
    assert json.loads(output) == [dataclasses.asdict(checkpoint) for checkpoint in PINNED]
