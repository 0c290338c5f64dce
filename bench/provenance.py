"""What every benchmark record says about where its figures come from, and how a record is handed out."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def git(*arguments: str) -> str:
    """What git says; empty outside a repository."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def machine() -> dict[str, Any]:
    return {"cpu": cpu_name(), "cpus": os.cpu_count(), "load_average": os.getloadavg()}


def gpu_facts(index: int) -> dict[str, str]:
    """What nvidia-smi says; without one (a trial on a machine without GPU) nothing."""
    fields = ["name", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.memory", "power.limit"]
    command = ["nvidia-smi", f"--id={index}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return dict(zip(fields, (value.strip() for value in done.stdout.strip().split(",")), strict=True))


def source() -> dict[str, Any]:
    commit = git("rev-parse", "HEAD")
    return {"commit": commit or "unknown", "working_tree_clean": bool(commit) and git("status", "--porcelain") == ""}


def hand_out(report: dict[str, Any], output: Path | None) -> None:
    """Into the file, with its path and results on standard output; where none is given, all of it there."""
    text = json.dumps(report, indent=2) + "\n"
    if output is None:
        print(text, end="")
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    print(output)
    print(json.dumps(report["results"], indent=2))
