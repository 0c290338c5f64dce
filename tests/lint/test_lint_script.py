"""scripts/lint.sh with made-up tools: nothing is left out silently, and each failure is the script's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("clang-format-19", "clang-tidy-19", "shellcheck", "cmake")


def add_program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh clone without a build, where every tool passes and writes its name and arguments to `calls`."""
    for name in ("lint.sh", "clang_tidy.sh"):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    (tmp_path / "src").mkdir()
    for name in ("a.cc", "a.cu", "a.cuh", "backend/cuda/b.cc"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_text("// A file.\n", encoding="utf-8")
    for name in TOOLS:
        add_program(tmp_path / "bin" / name, f'echo {name} "$@" >> {tmp_path}/calls')
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "run_clang_tidy.py", tmp_path / "tools")
    real = f'case "$2" in tools.run_clang_tidy) exec {sys.executable} "$@";; esac'
    add_program(tmp_path / ".venv" / "bin" / "python", real)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


def lint(clone: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("KIPP_", "GIT_"))}
    environment |= {"PATH": f"{clone}/bin:{environment['PATH']}"} | variables
    return subprocess.run([clone / "scripts" / "lint.sh"], env=environment, capture_output=True, text=True, check=False)


def test_clang_tidy_configures_a_fresh_clone(clone: Path) -> None:
    done = lint(clone)
    assert done.returncode == 0, done.stderr
    calls = (clone / "calls").read_text(encoding="utf-8")
    assert calls.index("cmake --preset release") < calls.index("clang-tidy-19 ")
    assert "src/a.cc" in calls.split("clang-tidy-19")[1]
    for name in ("clang-format", "style", "ruff", "shellcheck", "clang-tidy"):
        assert f"lint: {name} ok" in done.stdout


def test_cuda_code_is_formatted_and_its_host_side_checked_where_it_is_compiled(clone: Path) -> None:
    done = lint(clone)
    formatted, checked = (clone / "calls").read_text(encoding="utf-8").split("cmake", 1)
    assert "src/a.cu " in formatted and "src/a.cuh" in formatted and "src/backend/cuda/b.cc" in formatted
    assert "src/backend/cuda/b.cc" not in checked
    assert "src/backend/cuda is left out" in done.stderr
    commands = clone / "build" / "release" / "compile_commands.json"
    commands.write_text(f'[{{\n  "file": "{clone}/src/backend/cuda/b.cc"\n}}]', encoding="utf-8")
    (clone / "calls").unlink()
    done = lint(clone)
    assert "src/backend/cuda/b.cc" in (clone / "calls").read_text(encoding="utf-8").split("cmake", 1)[1]
    assert "left out" not in done.stderr


def test_a_clone_that_cannot_be_configured_fails(clone: Path) -> None:
    add_program(clone / "bin" / "cmake", "echo no compiler; exit 1")
    done = lint(clone)
    assert done.returncode == 1
    assert "lint: clang-tidy FAILED" in done.stderr and "no compiler" in done.stdout


@pytest.mark.parametrize("name", ["clang-format-19", "clang-tidy-19", "shellcheck"])
def test_a_finding_fails_the_run(clone: Path, name: str) -> None:
    add_program(clone / "bin" / name, "exit 1")
    done = lint(clone)
    assert done.returncode == 1 and f"lint: {name.removesuffix('-19')} FAILED" in done.stderr


def test_leaving_clang_tidy_out_is_said(clone: Path) -> None:
    done = lint(clone, KIPP_SKIP_CLANG_TIDY="1")
    assert done.returncode == 0
    assert "clang-tidy SKIPPED" in done.stderr
