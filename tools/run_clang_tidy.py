"""clang-tidy over the files named on standard input, several of a folder at a time; findings on standard output.

Most of its time goes into the headers of other projects, so files of one folder that are compiled alike are included in
one unit, and its headers are read once. Where a unit does not pass, the files that an error names are checked alone and
the others again: findings are always those of a file on its own; names that two files share cost time, never an error.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

UNIT_FILES = 8
TIDY = ("clang-tidy-19", "--quiet", "--warnings-as-errors=*")


@dataclass(frozen=True)
class Source:
    """A file, and how it is compiled; no arguments where the build does not compile it."""

    path: Path
    folder: str = ""
    arguments: tuple[str, ...] = ()


def read_commands(build: Path) -> dict[Path, Source]:
    """A file that is compiled several times (kernels, once for each instruction set) is checked as compiled last."""
    sources: dict[Path, Source] = {}
    path = build / "compile_commands.json"
    for entry in json.loads(path.read_text(encoding="utf-8")) if path.exists() else []:
        words = shlex.split(entry.get("command", ""))
        arguments: list[str] = []
        for word, before in zip(words, ["", *words], strict=False):
            if before != "-o" and word not in {"-o", "-c", entry["file"]}:
                arguments.append(word)
        sources[Path(entry["file"])] = Source(Path(entry["file"]), entry.get("directory", ""), tuple(arguments))
    return sources


def make_units(sources: list[Source]) -> list[list[Source]]:
    """Units of up to UNIT_FILES files that are compiled alike, the longest first."""
    alike: dict[tuple[Path, Source], list[Source]] = {}
    for source in sources:
        # Without a command each file is its own kind.
        kind = Source(Path() if source.arguments else source.path, source.folder, source.arguments)
        alike.setdefault((source.path.parent, kind), []).append(source)
    units = [files[i : i + UNIT_FILES] for files in alike.values() for i in range(0, len(files), UNIT_FILES)]
    return sorted(units, key=lambda unit: -sum(source.path.stat().st_size for source in unit))


def check(unit: list[Source], work: Path) -> str:
    """What clang-tidy says of the unit's files; nothing if they pass. `work` is where the unit is written."""
    work.mkdir(parents=True, exist_ok=True)
    file = unit[0].path
    if len(unit) > 1:
        file = work / "unit.cc"
        lines = (f'#include "{source.path}"  // NOLINT(bugprone-suspicious-include)\n' for source in unit)
        file.write_text("".join(lines), encoding="utf-8")
    if unit[0].arguments:
        command = {"directory": unit[0].folder, "file": str(file), "arguments": [*unit[0].arguments, "-c", str(file)]}
        (work / "compile_commands.json").write_text(json.dumps([command]), encoding="utf-8")
    # Standard error only counts the warnings of system headers; findings and compile errors come on standard output.
    done = subprocess.run([*TIDY, "-p", str(work), str(file)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False)
    if done.returncode == 0:
        return ""
    if len(unit) == 1:
        return done.stdout or f"{file}: clang-tidy ended with {done.returncode} and said nothing\n"
    errors = "\n".join(line for line in done.stdout.splitlines() if ": error:" in line)
    named = [source for source in unit if f"{source.path}:" in errors] or unit
    rest = [source for source in unit if source not in named]
    said = "".join(check([source], work / str(number)) for number, source in enumerate(named))
    return said + (check(rest, work / "rest") if rest else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="configured build, with compile_commands.json")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    commands = read_commands(build)
    files = [Path(line).resolve() for line in sys.stdin.read().splitlines()]
    units = make_units([commands.get(file, Source(file)) for file in files])
    with ThreadPoolExecutor(arguments.jobs) as pool:
        findings = pool.map(lambda item: check(item[1], build / "clang-tidy" / str(item[0])), enumerate(units))
        said = "".join(findings)
    print(said, end="")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
