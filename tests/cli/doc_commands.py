"""The shell commands in the documentation, and what can be wrong with one without running it."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from examples import ROOT

from tools.artifact import artifact_file_name
from tools.checkpoints import CHECKPOINT_IDS, find_checkpoint
from tools.weight_schemes import SCHEMES

FENCE = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`((?:python3? |make |kipp |scripts/|cmake |pip )[^`]*)`")
FREE_COMMANDS = {"export", "cat", "cmake", "curl", "echo", "git", "head", "man"}  # not Kipp's own
HelpOf = Callable[[str], str]  # of a subcommand of kipp; "" is the program


def fenced_lines(text: str) -> Iterator[str]:
    """Command lines of the sh blocks, continued lines joined."""
    for block in FENCE.findall(text):
        yield from (line for line in block.replace("\\\n", " ").splitlines() if line.strip())


def inline_lines(text: str) -> Iterator[str]:
    yield from (" ".join(line.split()) for line in INLINE.findall(FENCE.sub("", text)))


def simple_commands(line: str) -> Iterator[list[str]]:
    """Words of each command of a line; redirections and comments left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    command: list[str] = []
    skip = False
    for word in lexer:
        if set(word) <= set("<>"):
            skip = True
        elif set(word) <= set("|&;"):
            yield command
            command = []
        elif skip:
            skip = False
        else:
            command.append(word)
    yield command


def flags(words: list[str]) -> list[str]:
    return [word.split("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]


def check_artifacts(words: list[str]) -> Iterator[str]:
    known = {f"models/{artifact_file_name(checkpoint, checkpoint.num_layers, SCHEMES['bf16'])}"
             for checkpoint in map(find_checkpoint, CHECKPOINT_IDS)}
    for word in words:
        if word.endswith(".gguf") and word not in known and not word.startswith("build/twins/"):
            yield f"{word}: neither what the converter writes by default nor a twin in build/twins"


def check_kipp(words: list[str], help_of: HelpOf) -> Iterator[str]:
    subcommand = words[0] if words and words[0].islower() and not words[0].startswith("-") else ""
    if subcommand and not re.search(rf"^  {re.escape(subcommand)} ", help_of(""), re.MULTILINE):
        yield f"kipp has no command {subcommand}"
        return
    options = help_of(subcommand).split("Examples:")[0]
    for flag in flags(words):
        if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", options):
            yield f"kipp {subcommand} has no flag {flag}"


def check_python(words: list[str], help_of: HelpOf) -> Iterator[str]:
    module = words[:1] == ["-m"]
    name = words[1] if module else words[0]
    path = ROOT / (name.replace(".", "/") + ".py" if module else name)
    if not path.is_file():
        yield f"{name}: no such {'module' if module else 'script'}"
        return
    arguments = words[2 if module else 1 :]
    for i, word in enumerate(arguments):
        if Path(word).name == "kipp":  # a command of its own, handed on
            yield from check_kipp(arguments[i + 1 :], help_of)
            arguments = arguments[:i]
            break
    source = path.read_text(encoding="utf-8")
    for flag in flags(arguments):
        if f'"{flag}"' not in source and flag != "--help":
            yield f"{name} has no flag {flag}"


def check_make(words: list[str]) -> Iterator[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words:
        name, is_variable, _ = word.partition("=")
        pattern = rf"^{re.escape(name)} \?=" if is_variable else rf"^{re.escape(name)}:"
        if not re.search(pattern, makefile, re.MULTILINE):
            yield f"the Makefile has no {'variable' if is_variable else 'target'} {name}"


def check_files(words: list[str]) -> Iterator[str]:
    for flag, name in itertools.pairwise(words):
        if flag == "-r" and not (ROOT / name).is_file():
            yield f"{name}: no such file"


def check_program(program: str, arguments: list[str], help_of: HelpOf) -> Iterator[str]:
    name = Path(program).name
    if name == "kipp":
        yield from check_kipp(arguments, help_of)
    elif name in {"python", "python3"}:
        yield from check_python(arguments, help_of)
    elif name == "make":
        yield from check_make(arguments)
    elif name == "pip":
        yield from check_files(arguments)
    elif program.startswith(("scripts/", "tools/ops/")):
        if not (ROOT / program).is_file():
            yield f"{program}: no such script"
    elif name not in FREE_COMMANDS:
        yield f"{program}: no command of this repository"


def problems(line: str, help_of: HelpOf) -> Iterator[str]:
    for words in simple_commands(line):
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words:
            yield from check_artifacts(words)
            yield from check_program(words[0], words[1:], help_of)
