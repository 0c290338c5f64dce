"""Messages stay one readable line, whatever a hostile file puts into them."""

from __future__ import annotations

import pytest

from tools.errors import mismatch, shown


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(("value", "text"), [
    ("plain", "plain"),
    (7, "7"),
    ("世界 × …", "世界 × …"),
    ("two\nlines\t\x1b[2J\0", "two\\nlines\\t\\x1b[2J\\x00"),
    ("\ud800", "\\ud800"),
    ("x" * 301, "x" * 300 + "…"),
])
def test_a_value_is_shown_in_one_line(value: object, text: str) -> None:
    assert shown(value) == text
    assert str(mismatch("file", "item", value, value)) == f"file: item: expected {text}, found {text}"


def test_a_value_without_text_is_shown_by_its_type() -> None:
    assert shown(10**5000) == "int"
    assert shown(nested(100_000)) == "list"
