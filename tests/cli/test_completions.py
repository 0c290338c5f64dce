"""`kipp completions` and `kipp manual`: the shells and the manual's own checker take them, and they miss nothing."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest
from examples import ROOT
from kipp_process import USAGE, Kipp

SHELLS = ("bash", "zsh", "fish")


def shell_output(arguments: list[str], **variables: str) -> str:
    with tempfile.TemporaryDirectory() as home:  # fish makes folders in it
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60,
                              env=os.environ | {"HOME": home} | variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def scripts(bare: Kipp, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("completions")
    for shell in SHELLS:
        (folder / shell).write_text(bare.text("completions", shell), encoding="utf-8")
    return {shell: folder / shell for shell in SHELLS}


def commands_and_flags(bare: Kipp) -> dict[str, set[str]]:
    """What --help says."""
    overview = subprocess.run([bare.binary, "--help"], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^  ([a-z]+) ", overview.split("Subcommands:")[1].split("Examples:")[0], re.MULTILINE)
    assert len(names) >= 11
    flags = {}
    for name in names:
        text = subprocess.run([bare.binary, name, "--help"], capture_output=True, text=True, check=True).stdout
        lines = re.findall(r"^  (-\S+)", text.split("Examples:")[0], re.MULTILINE)
        flags[name] = {flag for line in lines for flag in line.split(",")}
    return flags


def bash_completes(script: Path, *words: str) -> list[str]:
    line = (f"source {shlex.quote(str(script))}; COMP_WORDS=({' '.join(map(shlex.quote, words))}); "
            f'COMP_CWORD={len(words) - 1}; _kipp; printf "%s\\n" "${{COMPREPLY[@]}}"')
    return sorted(shell_output(["bash", "-c", line]).split())


def fish_completes(script: Path, line: str) -> list[str]:
    output = shell_output(["fish", "--no-config", "-c", f"source {script}; complete -C {shlex.quote(line)}"])
    return sorted(entry.split("\t")[0] for entry in output.splitlines())


def test_bash(scripts: dict[str, Path]) -> None:
    script = scripts["bash"]
    assert bash_completes(script, "kipp", "ch") == ["chat", "checkpoints"]
    assert bash_completes(script, "kipp", "run", "--te") == ["--temperature"]
    assert bash_completes(script, "kipp", "run", "--thinking", "") == ["off", "on"]
    assert bash_completes(script, "kipp", "chat", "-m", "qwen3-8") == ["qwen3-8b", "qwen3-8b-base"]
    assert bash_completes(script, "kipp", "run", "--decode", "") == []
    assert bash_completes(script, "kipp", "completions", "") == ["bash", "fish", "zsh"]
    assert "README.md" in bash_completes(script, "kipp", "run", "--file", f"{ROOT}/READ")[0]
    assert "complete -o filenames -F _kipp kipp" in shell_output(
        ["bash", "-c", f"source {shlex.quote(str(script))}; complete -p kipp"])


def test_fish(scripts: dict[str, Path]) -> None:
    script = scripts["fish"]
    assert fish_completes(script, "kipp ch") == ["chat", "checkpoints"]
    assert fish_completes(script, "kipp run --te") == ["--temperature"]
    assert fish_completes(script, "kipp run --thinking o") == ["off", "on"]
    assert fish_completes(script, "kipp chat -m qwen3-8") == ["qwen3-8b", "qwen3-8b-base"]
    assert fish_completes(script, "kipp completions ") == ["bash", "fish", "zsh"]


def test_zsh_loads_it(scripts: dict[str, Path], tmp_path: Path) -> None:
    load = "autoload -U compinit; compinit -D -u"
    sourced = shell_output(["zsh", "-fc", f"{load}; source {scripts['zsh']}; print $_comps[kipp] $+functions[_kipp]"])
    assert sourced.split() == ["_kipp", "1"]
    (tmp_path / "_kipp").write_bytes(scripts["zsh"].read_bytes())
    found = shell_output(["zsh", "-fc", f"fpath=({tmp_path} $fpath); {load}; print $_comps[kipp]"])
    assert found.split() == ["_kipp"]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_flag_is_there(bare: Kipp, scripts: dict[str, Path], shell: str) -> None:
    text = scripts[shell].read_text(encoding="utf-8")
    shell_output([shell, "-n", str(scripts[shell])])
    for command, flags in commands_and_flags(bare).items():
        assert command in text
        for flag in flags:
            name = flag.lstrip("-")
            spelled = {"bash": rf"(?<![\w-]){flag}\b", "zsh": rf"\*{flag}\[",
                       "fish": rf" -{'l' if flag.startswith('--') else 's'} {name}\b"}[shell]
            assert re.search(spelled, text), f"{shell}: {command} {flag}"


def test_the_manual_is_well_formed_and_whole(bare: Kipp, tmp_path: Path) -> None:
    path = tmp_path / "kipp.1"
    path.write_text(bare.text("manual"), encoding="utf-8")
    lint = subprocess.run(["mandoc", "-Tlint", "-W", "warning", path], capture_output=True, text=True, check=False)
    findings = [line for line in (lint.stdout + lint.stderr).splitlines() if "missing date" not in line]
    assert not findings
    text = re.sub(r".\x08", "", shell_output(["mandoc", "-Tutf8", "-Owidth=200", str(path)]))
    for command, flags in commands_and_flags(bare).items():
        assert f"kipp {command}" in text
        for flag in flags:
            assert flag in text, flag
    for words in ("EXIT STATUS", "ENVIRONMENT", "KIPP_MODELS", "NO_COLOR", "~/.editrc", "echo '{\"prompt\": \"Hi\""):
        assert words in text


def test_what_is_installed(bare: Kipp, tmp_path: Path) -> None:
    build = bare.binary.parents[1]
    shell_output(["cmake", "--install", str(build), "--prefix", str(tmp_path / "a prefix")])
    root = tmp_path / "a prefix"
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    backend = "bin/libkipp_backend_cuda.so"  # where it was built
    shared_objects = [backend] if (build / backend).is_file() else []
    assert files == ["bin/kipp", *shared_objects, "share/bash-completion/completions/kipp",
                     "share/fish/vendor_completions.d/kipp.fish", "share/man/man1/kipp.1",
                     "share/zsh/site-functions/_kipp"]
    assert (root / "share/man/man1/kipp.1").read_text() == bare.text("manual")
    assert (root / "share/zsh/site-functions/_kipp").read_text() == bare.text("completions", "zsh")


def test_other_shells_are_refused(bare: Kipp) -> None:
    done = bare("completions", "tcsh")
    assert done.returncode == USAGE and "tcsh" in done.stderr.decode()
