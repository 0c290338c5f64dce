"""The summary of a machine's gates says what the committed records say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import gate_summary
from tools.errors import ToolError


def test_the_summary_is_that_of_the_records() -> None:
    committed = json.loads((gate_summary.RECORDS / "cuda-h200-gates.json").read_text())
    assert gate_summary.summary("h200", "cuda") == committed, "stale; run python -m tools.gate_summary"


def test_every_entry_says_what_ran_and_how_close_it_came() -> None:
    for entry in gate_summary.summary("h200", "cuda")["entries"]:
        assert entry["device"].startswith("NVIDIA"), entry["record"]
        phases = {phase["name"]: phase for phase in entry["phases"]}
        assert {"phase0", "phase2", "placement", "phase4"} <= set(phases), entry["record"]
        for name in ("phase2", "phase4"):
            bound = phases[name].get("bound") or min(phases[name]["bounds"].values())
            assert phases[name]["nmse"] <= bound, entry["record"]
            assert phases[name]["positions"] >= 100, entry["record"]
            assert phases[name]["kernels_that_ran"], entry["record"]


def record_of(verdict: str) -> dict[str, Any]:
    phase = {"name": "phase0", "verdict": verdict, "failures": [], "details": {"pinned_cases": 1}}
    return {"artifact": {"checkpoint": "qwen3-4b", "scheme": "bf16", "synthetic": True, "header_sha256": "0"},
            "verdict": verdict, "utc": "", "engine": {"commit": "c"}, "phases": [phase],
            "vectors": {"manifest_sha256": "1", "prompts": []}}


def test_one_failed_record_fails_the_whole(tmp_path: Path) -> None:
    for scheme, verdict in (("bf16", "passed"), ("q8_0", "failed")):
        (tmp_path / f"gates-m-qwen3-4b-{scheme}-cpu.json").write_text(json.dumps(record_of(verdict)))
    made = gate_summary.summary("m", "cpu", tmp_path)
    assert made["verdict"] == "failed"
    assert [entry["verdict"] for entry in made["entries"]] == ["passed", "failed"]
    assert made["entries"][0]["device"] is None


def test_no_record_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no record gates-m-"):
        gate_summary.summary("m", "cuda", tmp_path)
