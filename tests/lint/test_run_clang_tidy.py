"""clang-tidy over several files at a time, with a made-up clang-tidy: a finding is reported as its own file's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.run_clang_tidy import UNIT_FILES, Source, check, make_units, read_commands

# Of a unit that names a file with `fault` in it, or both `left` and `right`, the compiler would have something to say.
FAKE = r"""#!/bin/sh
for file; do :; done
echo "$file" >> "$CALLS"
parts=$(sed -n 's/^#include "\(.*\)".*$/\1/p' "$file")
text=$(cat $parts "$file")
case $text in
  *fault*) echo "$(grep -l fault ${parts:-$file}):1:1: error: a fault"; exit 1;;
  *left*right* | *right*left*) echo "$(grep -l right $parts):1:1: error: the same name twice"; exit 1;;
  *crash*) exit 139;;
esac
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "clang-tidy-19"
    program.write_text(FAKE, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def sources(folder: Path, *texts: str, arguments: tuple[str, ...] = ("c++", "-O1")) -> list[Source]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.cc" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    return [Source(path, str(folder), arguments) for path in paths]


def test_a_clean_unit_takes_one_call(tmp_path: Path, calls: Path) -> None:
    unit = sources(tmp_path / "a", "1", "2", "3")
    assert check(unit, tmp_path / "work") == ""
    assert calls.read_text(encoding="utf-8").splitlines() == [str(tmp_path / "work" / "unit.cc")]
    (command,) = json.loads((tmp_path / "work" / "compile_commands.json").read_text(encoding="utf-8"))
    assert command["arguments"] == ["c++", "-O1", "-c", command["file"]] and command["directory"] == unit[0].folder


@pytest.mark.parametrize("place", range(5))
def test_a_finding_names_its_file_wherever_it_stands(tmp_path: Path, calls: Path, place: int) -> None:
    unit = sources(tmp_path / "a", *("fault" if number == place else "fine" for number in range(5)))
    assert check(unit, tmp_path / "work") == f"{unit[place].path}:1:1: error: a fault\n"
    assert len(calls.read_text(encoding="utf-8").splitlines()) == 3  # all, the file alone, the others


def test_names_that_two_files_share_are_no_finding(tmp_path: Path, calls: Path) -> None:
    assert check(sources(tmp_path / "a", "left", "x", "right", "y"), tmp_path / "work") == ""


def test_a_crash_without_a_word_is_said(tmp_path: Path, calls: Path) -> None:
    (file,) = sources(tmp_path / "a", "crash")
    assert check([file], tmp_path / "work") == f"{file.path}: clang-tidy ended with 139 and said nothing\n"


def test_units_hold_what_is_compiled_alike(tmp_path: Path) -> None:
    some = sources(tmp_path / "a", *["x"] * (UNIT_FILES + 1))
    other = sources(tmp_path / "b", "x", "x")
    fast = sources(tmp_path / "c", "x", arguments=("c++", "-O3"))
    alone = sources(tmp_path / "d", "x", "x", arguments=())
    units = make_units([*some, *other, *fast, *alone])
    assert sorted(len(unit) for unit in units) == [1, 1, 1, 1, 2, UNIT_FILES]
    assert sorted(str(source.path) for unit in units for source in unit) == sorted(
        str(source.path) for source in [*some, *other, *fast, *alone])


def test_commands_lose_their_file_and_output(tmp_path: Path) -> None:
    def entry(flags: str) -> dict[str, str]:
        return {"directory": "/d", "file": "/s/a.cc", "command": f"ccache c++ {flags} -I'/a b' -o a.o -c /s/a.cc"}

    (tmp_path / "compile_commands.json").write_text(json.dumps([entry("-O1"), entry("-O2")]), encoding="utf-8")
    assert read_commands(tmp_path) == {
        Path("/s/a.cc"): Source(Path("/s/a.cc"), "/d", ("ccache", "c++", "-O2", "-I/a b"))}
    assert read_commands(tmp_path / "missing") == {}
