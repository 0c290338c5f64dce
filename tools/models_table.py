"""Writes the table of docs/MODELS.md from the gate records in bench/results, or checks that it is current (--check).

A row says what a record says, nothing more: which artifact, scheme and backend ran on which machine, and the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.atomic_file import write_file
from tools.checkpoints import CHECKPOINTS
from tools.command import run_command
from tools.gate_summary import device_of
from tools.marked_block import replace_block

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "MODELS.md"
RECORDS = ROOT / "bench" / "results"
BEGIN = "<!-- begin: made by tools/models_table.py -->"
END = "<!-- end -->"
AGAINST_ORACLE = ("cpu-simd", "phase3", "phase4")


def figure(phase: dict[str, Any] | None, key: str, field: str = "nmse") -> str:
    value = (phase or {}).get("details", {}).get(key, {}).get(field)
    return "–" if value is None else ("0" if value == 0 else f"{value:.2g}")


def loss(phase: dict[str, Any] | None) -> str:
    """What the scheme costs the reference: NMSE of its logits, and where its argmax stays."""
    found = (phase or {}).get("details", {}).get("loss_against_bf16")
    return "–" if found is None else f"{found['nmse']:.2g} ({found['argmax_equal']} of {found['positions']})"


def verdicts(phases: dict[str, dict[str, Any]]) -> str:
    passed = [name.removeprefix("phase") for name, phase in phases.items() if phase["verdict"] == "passed"]
    failed = [name.removeprefix("phase") for name, phase in phases.items() if phase["verdict"] != "passed"]
    return ", ".join(passed) + (f"; FAILED: {', '.join(failed)}" if failed else "")


def kind_of(record: dict[str, Any]) -> str:
    artifact = record["artifact"]
    if artifact["synthetic"]:
        return "synthetic twin"
    return "demo" if artifact["repository"] == "kipp/demo" else "pinned weights"


def machine_of(record: dict[str, Any]) -> str:
    """The processor with its threads, and the device that the backend ran on, if any."""
    machine = record["machine"]
    device = device_of(record)
    processor = f"{machine['processor']}, {machine['threads']} threads"
    return processor if device is None else f"{device.split(',')[0]}; oracle: {processor}"


def row(path: Path, record: dict[str, Any]) -> str:
    artifact = record["artifact"]
    phases = {phase["name"]: phase for phase in record["phases"]}
    one, two = phases.get("phase1"), phases.get("phase2")
    oracle = next((phases[name] for name in AGAINST_ORACLE if name in phases), None)
    positions = (one or oracle or {}).get("details", {}).get("logits", {}).get("positions", "–")
    cells = [
        artifact["checkpoint"],
        f"{kind_of(record)}, {artifact['layers']} layers",
        artifact["scheme"] + (" (lossy)" if artifact["scheme"].startswith("affine4") else ""),
        record["backend"],
        verdicts(phases),
        f"{figure(one, 'logits')} (worst {figure(one, 'logits', 'worst_nmse')})" if one else "–",
        figure(one, "logits_kv_unrounded"),
        figure(two, "logits"),
        figure(oracle, "logits"),
        loss(one),
        str(positions),
        machine_of(record),
        f"[record](../{path.relative_to(ROOT)})",
    ]
    return "| " + " | ".join(cells) + " |"


def table() -> str:
    order = {checkpoint.id: index for index, checkpoint in enumerate(CHECKPOINTS)}
    records = [(path, json.loads(path.read_text())) for path in sorted(RECORDS.glob("gates-*.json"))]
    records.sort(key=lambda item: (order[item[1]["artifact"]["checkpoint"]], item[0].name))
    lines = [
        "| checkpoint | weights | scheme | backend | green | Phase 1 NMSE | … KV rounding off | Phase 2 NMSE "
        "| against the oracle | scheme against BF16 | positions | machine of the engine | |",
        "|---|---|---|---|---|---|---|---|---|---|---:|---|---|",
    ]
    lines += [row(path, record) for path, record in records]
    return "\n".join(lines)


def updated(document: str) -> str:
    return replace_block(document, BEGIN, END, table())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 if the table is not that of the records")
    args = parser.parse_args()
    current = DOCUMENT.read_text(encoding="utf-8")
    wanted = updated(current)
    if args.check:
        if current != wanted:
            print(f"{DOCUMENT.relative_to(ROOT)}: stale; run python -m tools.models_table", file=sys.stderr)
        return int(current != wanted)
    write_file(DOCUMENT, wanted.encode())
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
