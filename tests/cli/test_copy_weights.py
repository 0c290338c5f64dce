"""`--copy-weights`: the same answers from memory of the process, and no mapping of the file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kipp_process import OK, Kipp

REQUEST = {"prompt": "Hi 世界", "decode": 8, "greedy": True}


def answer_and_mappings(kipp: Kipp, *flags: str) -> tuple[dict[str, Any], str]:
    """The first answer, and what the process has mapped while it waits for more."""
    process = kipp.popen("run", "--jsonl", *flags, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(REQUEST).encode() + b"\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
    process.communicate(timeout=60)
    assert process.returncode == OK
    return answer, maps


@pytest.mark.parametrize("backend", ["cpu", "oracle"])
def test_the_answer_is_the_same_and_the_file_is_not_mapped(twin: Kipp, twin_path: Path, backend: str) -> None:
    mapped, maps = answer_and_mappings(twin, "--backend", backend)
    assert len(mapped["ids"]) == 8 and str(twin_path) in maps
    copied, maps = answer_and_mappings(twin, "--backend", backend, "--copy-weights")
    assert copied == mapped and str(twin_path) not in maps


def test_the_bench_reports_the_copy(twin: Kipp, twin_path: Path) -> None:
    flags = ("--threads", "2", "--prefill", "5", "--decode", "2", "--repetitions", "1")
    mapped = json.loads(twin.text("bench", "--json", *flags))["memory"]
    copied = json.loads(twin.text("bench", "--json", *flags, "--copy-weights"))["memory"]
    size = twin_path.stat().st_size
    assert mapped["copied_bytes"] == 0 and copied["copied_bytes"] == size
    assert copied["peak_besides_file_bytes"] >= size
    assert copied["other_bytes"] == copied["peak_besides_file_bytes"] - size - copied["kv_bytes"]
