"""Every tool runs as a script from anywhere and as a module, and answers a mistake with one line."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tiny_snapshots import REPOSITORY

SCRIPTS = ("convert_to_gguf", "make_synthetic_checkpoint", "generate_test_vectors", "generate_rope_vectors",
           "checkpoints", "download_model", "export_llama_cpp", "terminal_picture", "run_seeded_faults",
           "run_clang_tidy", "parser_coverage")


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_both_ways(name: str) -> None:
    as_script = subprocess.run([sys.executable, REPOSITORY / "tools" / f"{name}.py", "--help"], capture_output=True,
                               text=True, cwd="/")
    as_module = subprocess.run([sys.executable, "-m", f"tools.{name}", "--help"], capture_output=True, text=True,
                               cwd=REPOSITORY)
    for result in (as_script, as_module):
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.startswith("usage: ")


@pytest.mark.parametrize("arguments", [
    ("convert_to_gguf", "--checkpoint", "qwen3-0.6b", "--source", "no-such-folder"),
    ("convert_to_gguf", "--checkpoint", "nothing", "--source", "."),
    ("make_synthetic_checkpoint", "--like", "nothing", "--seed", "1", "--artifact", "x"),
    ("generate_test_vectors", "--model", "no-such-file", "--output", "x"),
    ("export_llama_cpp", "--model", "no-such-file"),
    ("terminal_picture", "no-such-file", "--output", "x"),
    ("download_model", "nothing"),
    ("download_model", "kipp-demo"),
    ("run_seeded_faults", "nothing"),
    ("parser_coverage", "no-such-file"),
])
def test_a_mistake_is_one_line_and_status_1(arguments: tuple[str, ...]) -> None:
    result = subprocess.run([sys.executable, "-m", f"tools.{arguments[0]}", *arguments[1:]], capture_output=True,
                            text=True, cwd=REPOSITORY)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
