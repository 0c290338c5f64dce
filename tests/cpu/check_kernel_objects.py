"""Checks the object files of one instruction set: what they define and which registers and instructions they use.

A linker keeps one copy of a symbol that several objects share. Were it the copy of a higher level, a machine without
that level would crash in code that looks innocent. So every symbol must be the level's own.
"""

from __future__ import annotations

import re
import subprocess
import sys

# What marks an instruction as one of a level: x86 registers, and instructions on registers that a lower level has, too.
MARKS = {
    "avx2": r"%ymm",
    "avx512": r"%zmm|%k[1-7]",
    "avx512_vnni": r"\bvpdpbusd|\bvpdpwssd",
    "amx": r"%tmm|\bldtilecfg|\btilerelease|\bvdpbf16ps|\bvcvtne2?ps2bf16",
}
LEVELS = ["baseline", *MARKS]


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbol_faults(level: str, path: str) -> list[str]:
    """Defined symbols that are visible to other objects and not in the level's namespace."""
    faults = []
    for line in output_of("nm", "-C", "--defined-only", path).splitlines():
        _, kind, name = line.split(maxsplit=2)
        shared = kind.isupper() or kind in "uvw"
        own = re.match(rf"(guard variable for |typeinfo (name )?for )?kipp::cpu::{level}::", name)
        if shared and not own:
            faults.append(f"{path}: symbol of kind {kind} that others may share: {name}")
    return faults


def instruction_faults(level: str, path: str) -> list[str]:
    above = [mark for name, mark in MARKS.items() if LEVELS.index(name) > LEVELS.index(level)]
    if not above:
        return []
    pattern = re.compile("|".join(above))
    lines = output_of("objdump", "-d", "--no-show-raw-insn", path).splitlines()
    return [f"{path}: an instruction above the level: {line.strip()}" for line in lines if pattern.search(line)]


def main() -> int:
    level, *paths = sys.argv[1:]
    if not paths:
        print(f"{level}: expected object files, found none")
        return 1
    faults = [fault for path in paths for fault in (*symbol_faults(level, path), *instruction_faults(level, path))]
    used = any(re.search(MARKS[level], output_of("objdump", "-d", path)) for path in paths) if level in MARKS else True
    if not used:
        faults.append(f"{level}: no object uses an instruction of the level")
    for fault in faults[:20]:
        print(fault)
    print(f"{level}: {len(paths)} objects, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
