"""Links between the documents lead to files that exist, and every document of docs/ can be reached from README.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/vectors/*.md")])


def targets(document: Path) -> list[Path]:
    links = LINK.findall(document.read_text(encoding="utf-8"))
    return [(document.parent / link).resolve() for link in links if "://" not in link]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    missing = [str(target) for target in targets(document) if not target.exists()]
    assert not missing


def test_every_document_can_be_reached() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached.add(path)
        if path.is_dir():  # a link to a folder shows what is in it
            waiting.extend(path.glob("*.md"))
        elif path.suffix == ".md":
            waiting.extend(targets(path))
    assert set(ROOT.glob("docs/**/*.md")) <= reached
