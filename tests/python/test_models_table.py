"""docs/MODELS.md says what the committed records say."""

from __future__ import annotations

from tools import models_table


def test_the_table_is_that_of_the_records() -> None:
    document = models_table.DOCUMENT.read_text(encoding="utf-8")
    assert models_table.updated(document) == document, "stale; run python -m tools.models_table"


def test_a_failed_phase_is_named() -> None:
    phases = {"phase0": {"verdict": "passed"}, "phase1": {"verdict": "failed"}}
    assert models_table.verdicts(phases) == "0; FAILED: 1"
