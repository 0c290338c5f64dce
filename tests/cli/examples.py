"""Runs a command line of the documentation as a user would: from the repository's root, with `kipp` on the path."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE_ARTIFACT = "models/kipp-kipp-demo-bf16.gguf"
TIMEOUT_SECONDS = 120


class Workplace:
    """A folder that looks like the repository's root, so that what a command writes stays out of the repository."""

    def __init__(self, folder: Path, binary: Path, artifact: Path, environment: dict[str, str]) -> None:
        for entry in ROOT.iterdir():
            if entry.name not in {"models", "build", ".git"}:
                (folder / entry.name).symlink_to(entry)
        example = folder / EXAMPLE_ARTIFACT
        example.parent.mkdir()
        example.symlink_to(artifact)
        programs = folder / "build" / "release" / "bin"
        programs.mkdir(parents=True)
        (programs / "kipp").symlink_to(binary)
        self.folder = folder
        self.environment = environment | {"PATH": f"{programs}:{environment['PATH']}"}

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )


def shorten(line: str) -> str:
    """The same command, but short: at most 8 tokens, one repetition, and of the gates the one that takes no time."""
    if "--help" in line:
        return line
    if " gates " in line:
        return re.sub(r" --(phase1|phase2|placement)\b", "", line) + " --phase0"
    line = re.sub(r" --decode \d+", "", line)
    line = re.sub(r"\bkipp bench ", "kipp bench --decode 2 --repetitions 1 ", line)
    if line.startswith("kipp serve "):  # until somebody ends it
        return f"timeout --preserve-status -s TERM 2 {re.sub(r' --port [0-9]+', '', line)} --port 0"
    if line.startswith("kipp chat "):  # a conversation needs somebody who says something
        return f"echo Hi | {line} --decode 8"
    return re.sub(r"\bkipp run ", "kipp run --decode 8 ", line)
