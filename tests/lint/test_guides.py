"""What the guides for newcomers name exists: files, names in them, and code that is shown beside its file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_links import DOCUMENTS, LINK, ROOT

ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
ADD_AN_OPERATOR = ROOT / "docs" / "add-an-operator.md"
TRACKED = ("bench", "cmake", "data", "docs", "include", "requirements", "scripts", "src", "tests", "tools")
PATH = re.compile(rf"`((?:{'|'.join(TRACKED)})/[\w./*{{}},-]*)`")
NAME = re.compile(r"`([A-Za-z_]\w*)`")
EXCERPT = re.compile(r"^```cpp\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MADE_UP = {"docs/add-an-operator.md": {"tests/ops/geglu_test.cc"}}  # where the reader's own file will stand
MAX_LINES_OF_AN_AFTERNOON = 1_600


def section(document: Path, heading: str) -> str:
    return document.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]


def expand(pattern: str) -> list[str]:
    """a{b,c} as ab and ac."""
    head, brace, rest = pattern.partition("{")
    if not brace:
        return [pattern]
    options, _, tail = rest.partition("}")
    return [head + option + end for option in options.split(",") for end in expand(tail)]


def missing_paths(text: str, root: Path = ROOT) -> list[str]:
    """Paths in backticks that lead nowhere; a pattern must match something."""
    return [path for found in PATH.findall(text) for path in expand(found) if not any(root.glob(path.rstrip("/")))]


def linked_files(text: str, document: Path) -> list[Path]:
    return [(document.parent / link).resolve() for link in LINK.findall(text) if "://" not in link]


def code_files(text: str, document: Path) -> list[Path]:
    return [path for path in linked_files(text, document) if path.is_file() and path.suffix in {".cc", ".h"}]


def unknown_names(text: str, document: Path) -> list[str]:
    """Names in backticks that none of the linked files of code has as a word."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in code_files(text, document))
    words = set(re.findall(r"\w+", code))
    return [name for name in NAME.findall(text) if name not in words]


def entries(text: str) -> list[str]:
    """The points of a numbered list, without what follows the list."""
    parts = re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:]
    return [part.split("\n\n")[0] for part in parts]


def steps() -> Iterator[str]:
    yield from re.split(r"^## \d\. ", ADD_AN_OPERATOR.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_in_backticks_exist(document: Path) -> None:
    made_up = MADE_UP.get(document.relative_to(ROOT).as_posix(), set())
    assert set(missing_paths(document.read_text(encoding="utf-8"))) == made_up


def test_the_reading_order_is_ten_files_that_an_afternoon_can_hold() -> None:
    listed = entries(section(ARCHITECTURE, "Reading order"))
    first = [linked_files(entry, ARCHITECTURE)[0] for entry in listed if entry.startswith("[")]
    assert len(listed) == len(first) == len(set(first)) == 10
    assert all(path.is_file() and ROOT in path.parents for path in first), first
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in first)
    assert lines <= MAX_LINES_OF_AN_AFTERNOON


def test_each_entry_of_the_reading_order_asks_a_question_and_names_what_its_files_have() -> None:
    for entry in entries(section(ARCHITECTURE, "Reading order")):
        assert re.search(r"\*[A-Z][^*]+\?\*", entry), entry
        assert NAME.search(entry), entry
        assert not unknown_names(entry, ARCHITECTURE), entry


def test_an_operator_takes_seven_steps_which_name_what_their_files_have() -> None:
    found = list(steps())
    assert len(found) == 7
    for step in found:
        assert linked_files(step, ADD_AN_OPERATOR), step
        assert not unknown_names(step, ADD_AN_OPERATOR), step


def test_every_file_of_the_skeleton_is_linked() -> None:
    code = {path for path in ROOT.glob("tests/skeleton/*") if path.suffix in {".cc", ".h"}}
    assert code and code <= set(linked_files(ADD_AN_OPERATOR.read_text(encoding="utf-8"), ADD_AN_OPERATOR))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_that_is_shown_is_that_of_a_linked_file(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    files = [path.read_text(encoding="utf-8") for path in code_files(text, document)]
    for excerpt in EXCERPT.findall(text):
        assert any(excerpt in file for file in files), excerpt


def test_excerpts_are_found() -> None:
    assert len(EXCERPT.findall(ADD_AN_OPERATOR.read_text(encoding="utf-8"))) == 2


def test_a_file_that_vanished_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "src" / "kv").mkdir(parents=True)
    (tmp_path / "src" / "kv" / "pool.cc").touch()
    assert not missing_paths("`src/kv/` `src/kv/pool.cc` `src/kv/p*` `src/{kv,kv/pool.cc}`, `out/x.cc`", tmp_path)
    assert missing_paths("`src/kv/block.cc` `src/base/` `src/kv/b*` `src/{kv,sampling}`", tmp_path) == [
        "src/kv/block.cc", "src/base/", "src/kv/b*", "src/sampling"]


def test_a_name_that_vanished_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "pool.cc").write_text("void grow_all();\n", encoding="utf-8")
    text = "[pool.cc](pool.cc): `grow_all`, `grow` and `shrink_all`"
    assert unknown_names(text, tmp_path / "guide.md") == ["grow", "shrink_all"]
