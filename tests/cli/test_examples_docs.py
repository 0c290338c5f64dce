"""Every shell command of the documentation names things that exist; those on the demo are run."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest
from doc_commands import HelpOf, fenced_lines, inline_lines, problems
from examples import EXAMPLE_ARTIFACT, ROOT, Workplace, shorten
from kipp_process import OK, Kipp

DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "docs/decisions/*.md", "tests/vectors/*.md")
    for path in ROOT.glob(pattern)
)
DEMO = rf"{re.escape(EXAMPLE_ARTIFACT)}|-m kipp-demo\b"  # by path or by id
MUST_HAVE_COMMANDS = ["README.md", "docs/MODELS.md", "docs/cli.md", "docs/demo.md"]


def lines_of(document: str) -> list[str]:
    text = Path(ROOT, document).read_text(encoding="utf-8")
    return [*fenced_lines(text), *inline_lines(text)]


@pytest.fixture(scope="module")
def help_of(bare: Kipp) -> HelpOf:
    @functools.cache
    def text(subcommand: str) -> str:
        arguments = [str(bare.binary), *([subcommand] if subcommand else []), "--help"]
        return subprocess.run(arguments, capture_output=True, text=True, env=bare.environment, check=True).stdout

    return text


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_name_what_exists(help_of: HelpOf, document: str) -> None:
    found = [f"{line}: {problem}" for line in lines_of(document) for problem in problems(line, help_of)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("document", MUST_HAVE_COMMANDS)
def test_commands_are_found(document: str) -> None:
    assert document in DOCUMENTS
    assert lines_of(document)


def test_commands_on_the_demo_run(workplace: Workplace) -> None:
    lines = [line for document in DOCUMENTS for line in fenced_lines(Path(ROOT, document).read_text(encoding="utf-8"))]
    runnable = [line for line in lines if re.search(DEMO, line) and "python" not in line]
    assert any(EXAMPLE_ARTIFACT in line for line in runnable)
    assert any("-m kipp-demo" in line for line in runnable)
    for line in runnable:
        done = workplace.run(shorten(line))
        assert done.returncode == OK and done.stdout.strip(), f"{line}\n{done.stderr}"


@pytest.mark.parametrize(
    "line",
    [
        "kipp run --model kipp-qwen3-0.6b-bf16.gguf Hi",
        "kipp run --model models/kipp-qwen9-bf16.gguf Hi",
        "kipp fly Hi",
        "echo x | kipp tokenize --no-such-flag",
        "python -m tools.no_such_module",
        "python tools/no_such_script.py",
        "python -m tools.convert_to_gguf --no-such-flag",
        "python3 -m tools.demo.evaluate --kipp build/release/bin/kipp run --no-such-flag",
        "make no-such-target",
        "make quickstart NO_SUCH_VARIABLE=1",
        "scripts/no_such_script.sh",
        "pip install -r requirements/none.txt",
        "frobnicate",
    ],
)
def test_a_wrong_command_is_noticed(help_of: HelpOf, line: str) -> None:
    assert list(problems(line, help_of))


def test_blocks_are_read() -> None:
    text = "```sh\nmake a \\\n  b   # why\n\nmake c\n```\n```text\nmake d\n```\nSee `make e` and `other f`.\n"
    assert [line.split() for line in fenced_lines(text)] == [["make", "a", "b", "#", "why"], ["make", "c"]]
    assert list(inline_lines(text)) == ["make e"]


def test_the_command_line_document_has_every_flag(help_of: HelpOf) -> None:
    text = Path(ROOT, "docs/cli.md").read_text(encoding="utf-8")
    commands = re.findall(r"^  (\w+)  ", help_of("").split("\nSubcommands:")[1], re.MULTILINE)
    assert {"run", "chat", "gates", "manual"} <= set(commands)
    for command in commands:
        flags = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", help_of(command).split("\nExamples:")[0])
        missing = sorted({flag for flag in flags if not re.search(rf"{flag}(?![\w-])", text)} - {"--help"})
        assert flags and not missing, f"{command}: {missing}"
