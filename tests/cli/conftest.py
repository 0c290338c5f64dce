"""Fixtures: the binary and the artifacts, named by environment variables that `make test` sets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_session import PROMPT, start
from examples import ROOT, Workplace
from kipp_process import Kipp
from terminal import Terminal

VARIABLES = {
    "KIPP_BINARY": "the kipp binary (build/<preset>/bin/kipp)",
    "KIPP_DEMO_ARTIFACT": "the converted demo checkpoint",
    "KIPP_TWIN_ARTIFACT": "a synthetic twin: tools/make_synthetic_checkpoint.py --like kipp-demo --layers 2 --seed 1 "
    "--artifact FILE",
}


if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # started in the background of a script: kipp would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def required_file(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.fail(f"{variable} is not set: expected the path of {VARIABLES[variable]}; `make test` sets it")
    path = Path(value).resolve()
    if not path.is_file():
        pytest.fail(f"{variable}={value}: no such file; expected {VARIABLES[variable]}")
    return path


@pytest.fixture(scope="session")
def binary() -> Path:
    return required_file("KIPP_BINARY")


@pytest.fixture(scope="session")
def twin_path() -> Path:
    return required_file("KIPP_TWIN_ARTIFACT")


@pytest.fixture(scope="session")
def bare(binary: Path) -> Kipp:
    """kipp without a model."""
    return Kipp(binary, {})


@pytest.fixture(scope="session")
def twin(binary: Path, twin_path: Path) -> Kipp:
    """kipp on the synthetic twin: two layers, random weights, the genuine tokenizer, variant instruct."""
    return Kipp(binary, {"KIPP_MODEL": str(twin_path)}, ("--allow-synthetic",))


@pytest.fixture(scope="session")
def demo(binary: Path) -> Kipp:
    """kipp on the demo checkpoint, which means what it says."""
    return Kipp(binary, {"KIPP_MODEL": str(required_file("KIPP_DEMO_ARTIFACT"))})


@pytest.fixture(scope="session")
def base_twin_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic twin of a base checkpoint, one layer deep."""
    path = tmp_path_factory.mktemp("base") / "base.gguf"
    make_twin = ["tools/make_synthetic_checkpoint.py", "--like", "qwen3-0.6b-base", "--layers", "1", "--seed", "1"]
    subprocess.run([sys.executable, *make_twin, "--artifact", path], cwd=ROOT, check=True, capture_output=True)
    return path


@pytest.fixture(scope="session")
def workplace(binary: Path, bare: Kipp, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Where the examples of the help texts and documents run."""
    artifact = required_file("KIPP_DEMO_ARTIFACT")
    return Workplace(tmp_path_factory.mktemp("workplace"), binary, artifact, bare.environment)


@pytest.fixture
def chat(demo: Kipp) -> Iterator[Terminal]:
    with start(demo, "--greedy", "--thinking", "off") as terminal:
        terminal.wait_for(PROMPT)
        yield terminal
