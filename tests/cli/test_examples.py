"""Every example of every --help works as it is printed, on the demo checkpoint (long ones are cut short)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from examples import EXAMPLE_ARTIFACT, ROOT, Workplace, shorten
from kipp_process import OK, Kipp

COMMANDS = [
    "", "run", "chat", "serve", "inspect", "checkpoints", "completions", "manual", "tokenize", "detokenize", "render",
    "ppl", "bench", "gates",
]


def help_text(kipp: Kipp, command: str) -> str:
    arguments = [str(kipp.binary), *([command] if command else []), "--help"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=kipp.environment, check=True)
    return done.stdout


def examples_of(text: str) -> list[str]:
    block = text.split("Examples:\n")[1].split("\n\n")[0]
    return [line.strip() for line in block.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_run(bare: Kipp, workplace: Workplace, command: str) -> None:
    examples = examples_of(help_text(bare, command))
    assert examples
    for example in examples:
        done = workplace.run(shorten(example))
        assert done.returncode == OK, f"{example}\n{done.stderr}"
        assert done.stdout.strip(), example


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_flags_of_examples_exist(bare: Kipp, command: str) -> None:
    text = help_text(bare, command)
    flags = set(re.findall(r"(?<!\S)--?[a-z][a-z0-9-]*", text.split("Examples:\n")[0].replace(",", " ")))
    for example in examples_of(text):
        used = set(re.findall(r"(?<!\S)--?[a-z][a-z0-9-]*", example[example.index("kipp ") :]))
        assert used <= flags, example


def test_examples_name_the_demo_where_make_demo_puts_it() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    name = re.search(r"^DEMO := \$\(MODELS\)/(\S+)$", makefile, re.MULTILINE)
    folder = re.search(r"^MODELS := (\S+)$", makefile, re.MULTILINE)
    assert name and folder
    assert f"{folder[1]}/{name[1]}" == EXAMPLE_ARTIFACT


def test_a_broken_example_is_noticed(workplace: Workplace) -> None:
    assert workplace.run("kipp run -m kipp-demo-bf16.gguf Hi").returncode != OK
    assert workplace.run("kipp tokenize --no-such-flag Hi").returncode != OK
    assert workplace.run("kipp tokenize -m absent.gguf Hi | cat").returncode != OK


def test_examples_leave_nothing_in_the_repository(workplace: Workplace) -> None:
    assert workplace.run("echo x > record.json").returncode == OK
    assert not Path(ROOT, "record.json").exists()
    assert os.environ["PATH"] in workplace.environment["PATH"]
