"""The fuzzing script with made-up fuzzers, the seeds, and that every fuzzer is built. No compiler is needed."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
FUZZERS = sorted(path.stem for path in FOLDER.glob("*_fuzz.cc"))


def fuzz(build: Path, *names: str, seconds: str = "2") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"FUZZ_BUILD": str(build), "FUZZ_SECONDS": seconds}
    return subprocess.run(
        [ROOT / "scripts" / "fuzz.sh", *names], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "tests" / "fuzz").mkdir(parents=True)
    return tmp_path


def add_fuzzer(build: Path, name: str, script: str) -> None:
    path = build / "tests" / "fuzz" / name
    path.write_text(f'#!/bin/sh\necho "$@" > {build}/{name}.arguments\n{script}\n', encoding="utf-8")
    path.chmod(0o755)


def test_every_fuzzer_runs_from_its_corpus_and_seeds(build: Path) -> None:
    add_fuzzer(build, "a_fuzz", "exit 0")
    add_fuzzer(build, "b_fuzz", "exit 0")
    done = fuzz(build)
    assert done.returncode == 0, done.stderr
    for name in ("a_fuzz", "b_fuzz"):
        arguments = (build / f"{name}.arguments").read_text(encoding="utf-8").split()
        assert "-max_total_time=2" in arguments
        assert arguments[-2:] == [f"{build}/corpus/{name}", f"{build}/tests/fuzz/seeds/{name}"]


def test_a_finding_fails_the_run_after_the_others_ran(build: Path) -> None:
    prefix = 'for a in "$@"; do case $a in -artifact_prefix=*) p=${a#*=};; esac; done'
    add_fuzzer(build, "a_fuzz", f'{prefix}; echo bad > "${{p}}crash-1"; exit 77')
    add_fuzzer(build, "b_fuzz", "exit 0")
    done = fuzz(build)
    assert done.returncode == 1
    assert "a_fuzz" in done.stderr and "b_fuzz" not in done.stderr and f"{build}/findings" in done.stderr
    assert (build / "findings" / "a_fuzz-crash-1").is_file()
    assert (build / "b_fuzz.arguments").is_file()


def test_names_choose(build: Path) -> None:
    add_fuzzer(build, "a_fuzz", "exit 1")
    add_fuzzer(build, "b_fuzz", "exit 0")
    assert fuzz(build, "b_fuzz").returncode == 0
    assert fuzz(build, "no_such_fuzz").returncode == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "x", ""])
def test_a_wrong_time_is_refused(build: Path, seconds: str) -> None:
    add_fuzzer(build, "a_fuzz", "exit 0")
    done = fuzz(build, seconds=seconds)
    assert done.returncode == (0 if seconds == "" else 2)  # empty is the default


def test_no_fuzzer_is_an_error(build: Path) -> None:
    assert fuzz(build).returncode == 2


def test_every_fuzzer_is_built() -> None:
    text = (FOLDER / "CMakeLists.txt").read_text(encoding="utf-8")
    assert re.findall(r"kipp_add_fuzzer\((\w+)", text) == FUZZERS


def test_seeds_are_there_and_small(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "make_seeds.py", tmp_path], check=True)
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert folders == [name for name in FUZZERS if name != "gguf_fuzz"]  # its seeds: gguf_fuzz_seeds.cc
    for folder in folders:
        seeds = [path.read_bytes() for path in (tmp_path / folder).iterdir()]
        assert len(set(seeds)) >= 7
        assert max(map(len, seeds)) <= 8192


def test_the_corpus_is_small_and_named_by_its_content() -> None:
    folders = sorted((FOLDER / "corpus").iterdir())
    assert [folder.name for folder in folders] == FUZZERS
    inputs = [path for folder in folders for path in folder.iterdir()]
    for path in inputs:
        assert path.name == hashlib.sha1(path.read_bytes()).hexdigest(), f"{path}: changed since libFuzzer wrote it"
    assert max(path.stat().st_size for path in inputs) <= 4096
    assert sum(path.stat().st_size for path in inputs) <= 150_000
