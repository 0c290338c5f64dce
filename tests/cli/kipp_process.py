"""Runs the kipp binary as a user would: arguments, standard input, and what comes back."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

TIMEOUT_SECONDS = 60
GOLDEN = Path(__file__).resolve().parents[1] / "golden"

OK, FAILURE, USAGE, MODEL, INTERRUPTED, OUTPUT_CLOSED = 0, 1, 2, 3, 130, 141

Argument = str | bytes | Path


class Kipp:
    def __init__(self, binary: Path, variables: dict[str, str], flags: tuple[str, ...] = ()) -> None:
        self.binary = binary
        self.flags = flags
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("KIPP_")} | variables

    def command(self, subcommand: str, *arguments: Argument) -> list[Argument]:
        return [str(self.binary), subcommand, *self.flags, *arguments]

    def __call__(
        self, subcommand: str, *arguments: Argument, stdin: bytes = b"", stdout: int | IO[bytes] = subprocess.PIPE
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(subcommand, *arguments),
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=self.environment,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def text(self, subcommand: str, *arguments: Argument, stdin: bytes = b"") -> str:
        """Standard output of a run that must succeed."""
        done = self(subcommand, *arguments, stdin=stdin)
        assert done.returncode == OK, done.stderr.decode()
        return done.stdout.decode()

    def lines(self, subcommand: str, requests: Iterable[Any], *arguments: Argument, code: int = OK) -> list[Any]:
        """Answers to JSON Lines; a request that is bytes is sent as it is."""
        raw = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in requests]
        done = self(subcommand, "--jsonl", *arguments, stdin=b"".join(line + b"\n" for line in raw))
        assert done.returncode == code, done.stderr.decode()
        answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
        assert len(answers) == len(raw)
        return answers

    def popen(self, subcommand: str, *arguments: Argument, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command(subcommand, *arguments), env=self.environment, **options)


def golden(name: str) -> list[dict[str, Any]]:
    cases = [json.loads(line) for line in (GOLDEN / name).read_text(encoding="ascii").splitlines()]
    assert cases
    return cases
