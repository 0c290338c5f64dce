"""The benchmark of the demo gives a whole record; the script of all benchmarks refuses what it does not know."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from examples import ROOT
from kipp_process import Kipp


def demo_speed(demo: Kipp, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "demo_speed.py"), "--kipp", str(demo.binary), "--model",
               demo.environment["KIPP_MODEL"], "--runs", "2", "--decode", "3", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def check_record(record: dict[str, object]) -> None:
    for key in ("protocol", "machine", "versions", "commit", "working_tree_clean", "results"):
        assert key in record
    results = record["results"]
    assert isinstance(results, dict)
    assert results["decode_tokens"] == 3 and results["prompt_tokens"] > 100
    for key in ("prompt_tokens_per_second", "decode_tokens_per_second", "process_start_ms",
                "open_artifact_and_tokenizer_ms"):
        assert len(results[key]["all"]) == 2 and results[key]["median"] > 0


def test_a_record_is_printed_or_written(demo: Kipp, tmp_path: Path) -> None:
    printed = demo_speed(demo)
    assert printed.returncode == 0, printed.stderr
    check_record(json.loads(printed.stdout))
    written = demo_speed(demo, "--output", str(tmp_path / "new" / "record.json"))
    assert written.returncode == 0, written.stderr
    check_record(json.loads((tmp_path / "new" / "record.json").read_text(encoding="utf-8")))


def test_a_model_that_is_missing_is_an_error(demo: Kipp) -> None:
    done = demo_speed(demo, "--model", "absent.gguf")
    assert done.returncode == 1 and "absent.gguf" in done.stderr and not done.stdout


def test_unknown_arguments_are_refused() -> None:
    done = subprocess.run([ROOT / "scripts" / "bench.sh", "--fast"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--fast" in done.stderr
