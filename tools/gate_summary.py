"""Joins a machine's gate records of one backend to one file, or checks that it is current (--check).

    python -m tools.gate_summary --machine h200 --backend cuda

reads bench/results/gates-h200-*-cuda.json and writes bench/results/cuda-h200-gates.json: for each checkpoint and scheme
the verdict, engine commit, device, vectors, and of each phase the bound, positions and NMSE. The records stay: they
hold every prompt, and the summary names them by hash.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a script: the package is one folder up
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tools.atomic_file import write_file
from tools.checkpoints import CHECKPOINTS
from tools.command import run_command
from tools.errors import ToolError
from tools.weight_schemes import SCHEMES

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "bench" / "results"
FIGURES = ("positions", "nmse", "worst_nmse", "argmax_different", "near_ties")


def phase_summary(phase: dict[str, Any]) -> dict[str, Any]:
    details = phase["details"]
    summary = {"name": phase["name"], "verdict": phase["verdict"], "failures": phase["failures"]}
    summary |= {key: details[key] for key in ("bound",) if key in details}
    summary |= {"bounds": {variant["name"]: variant["bound"] for variant in details["variants"]}
                } if "variants" in details else {}
    summary |= {key: details["logits"][key] for key in FIGURES if "logits" in details}
    summary |= {key: details[key] for key in ("rows_compared", "pinned_cases") if key in details}
    if "kernels" in details:
        summary["kernels_that_ran"] = sorted(name for name, count in details["kernels"].items() if count > 0)
    return summary


def device_of(record: dict[str, Any]) -> str | None:
    """What the backend says of its device: name, driver and runtime. A backend of the processor says nothing."""
    variants = [variant for phase in record["phases"] for variant in phase["details"].get("variants", [])]
    return next((variant["device"] for variant in variants if "device" in variant), None)


def record_summary(path: Path) -> dict[str, Any]:
    text = path.read_bytes()
    record = json.loads(text)
    return {
        "checkpoint": record["artifact"]["checkpoint"],
        "scheme": record["artifact"]["scheme"],
        "synthetic": record["artifact"]["synthetic"],
        "verdict": record["verdict"],
        "utc": record["utc"],
        "engine_commit": record["engine"]["commit"],
        "device": device_of(record),
        "artifact_header_sha256": record["artifact"]["header_sha256"],
        "vectors_manifest_sha256": record["vectors"]["manifest_sha256"],
        "prompts": record["vectors"]["prompts"],
        "phases": [phase_summary(phase) for phase in record["phases"]],
        "record": path.name,
        "record_sha256": hashlib.sha256(text).hexdigest(),
    }


def summary(machine: str, backend: str, records: Path = RECORDS) -> dict[str, Any]:
    """Errors: ToolError if there is no record."""
    suffix = "" if backend == "oracle" else f"-{backend}"  # as run_full_size_gates names them
    ids = [f"{checkpoint.id}-{scheme}" for checkpoint in CHECKPOINTS for scheme in SCHEMES]
    paths = [path for name in ids if (path := records / f"gates-{machine}-{name}{suffix}.json").exists()]
    if not paths:
        raise ToolError(f"{records}: no record gates-{machine}-…{suffix}.json")
    order = {checkpoint.id: index for index, checkpoint in enumerate(CHECKPOINTS)}
    entries = sorted((record_summary(path) for path in paths),
                     key=lambda entry: (order[entry["checkpoint"]], entry["scheme"]))
    passed = all(entry["verdict"] == "passed" for entry in entries)
    return {"format_version": 1, "kind": "gate summary", "machine": machine, "backend": backend,
            "verdict": "passed" if passed else "failed", "entries": entries}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", required=True, help="as in the records' names, for instance h200")
    parser.add_argument("--backend", required=True, help="likewise, for instance cuda")
    parser.add_argument("--check", action="store_true", help="exit 1 if the file is not that of the records")
    args = parser.parse_args()
    path = RECORDS / f"{args.backend}-{args.machine}-gates.json"
    wanted = (json.dumps(summary(args.machine, args.backend), indent=1) + "\n").encode()
    if args.check:
        stale = not path.exists() or path.read_bytes() != wanted
        if stale:
            print(f"{path.relative_to(ROOT)}: stale; run python -m tools.gate_summary", file=sys.stderr)
        return int(stale)
    write_file(path, wanted)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
