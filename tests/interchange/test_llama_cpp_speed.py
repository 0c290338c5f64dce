"""The timed run of llama.cpp that Kipp is compared with works for every case and way; its times are not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import llama_cpp
import pytest
from exported_models import ROOT, Model

SCRIPT = ROOT / "bench" / "llama_cpp_speed.py"


def timed_run(export: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--model", str(export), "--threads", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("load_mode", ["none", "mmap"])
@pytest.mark.parametrize("flash_attention", ["on", "off"])
@pytest.mark.parametrize("case", ["--prefill 3", "--decode 2 --depth 0", "--decode 2 --depth 5 --batch 3"])
def test_every_case_in_every_way(demo: Model, case: str, load_mode: str, flash_attention: str) -> None:
    done = timed_run(demo.export, *case.split(), "--load-mode", load_mode, "--flash-attention", flash_attention)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["seconds"] > 0
    assert answer["llama_cpp"] == llama_cpp.llama_version().decode() and "CPU" in answer["system"]


def test_a_prompt_of_several_pieces(demo: Model) -> None:
    """More than one llama_decode takes: positions go on where the piece before ended, or llama.cpp refuses them."""
    done = timed_run(demo.export, "--decode", "1", "--depth", "2047")
    assert done.returncode == 0, done.stderr
    done = timed_run(demo.export, "--prefill", "2049")
    assert done.returncode == 0, done.stderr


def test_a_model_that_is_missing(tmp_path: Path) -> None:
    done = timed_run(tmp_path / "absent.gguf", "--prefill", "3")
    assert done.returncode == 1 and "absent.gguf" in done.stderr and not done.stdout
