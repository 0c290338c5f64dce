"""Every test that docs/reported-faults.md names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs" / "reported-faults.md").read_text(encoding="utf-8")
CPP = re.compile(r"^(?:TEST|TEST_F|TEST_P)\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
PYTHON = re.compile(r"^def (test_\w+)\(", re.MULTILINE)


def test_every_test_of_the_table_exists() -> None:
    known: set[str] = set()
    for path in (ROOT / "tests").rglob("*_test.cc"):
        known |= {f"{suite}.{name}" for suite, name in CPP.findall(path.read_text(encoding="utf-8"))}
    for path in (ROOT / "tests").rglob("test_*.py"):
        known |= set(PYTHON.findall(path.read_text(encoding="utf-8")))
    named = re.findall(r"`([A-Z]\w+\.[A-Z]\w+|test_\w+)`", TABLE)
    assert len(named) > 50
    assert not set(named) - known
