#!/usr/bin/env bash
# clang-tidy over src/ with the checks of .clang-tidy, several files at a time; findings on standard output.
# It needs the compile commands and the generated files of the release build, and makes them where they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! log=$(cmake --preset release 2>&1 && cmake --build --preset release --target kipp_build_info kipp_gate_records 2>&1); then
  echo "$log"
  echo "clang_tidy.sh: the release build cannot be configured; scripts/setup.sh test installs what it needs"
  exit 1
fi
# A file that is compiled several times (kernels, once for each instruction set) is checked as compiled last.
mkdir -p build/release/clang-tidy
.venv/bin/python - <<'PYTHON'
import json
from pathlib import Path

commands = json.loads(Path("build/release/compile_commands.json").read_text())
last = {command["file"]: command for command in commands}
Path("build/release/clang-tidy/compile_commands.json").write_text(json.dumps(list(last.values())))
PYTHON
# The host side of the CUDA backend can be checked only where it is compiled.
files=('src/*.cc')
if ! grep -q '"file": "[^"]*/src/backend/cuda/' build/release/compile_commands.json 2>/dev/null; then
  echo "clang_tidy.sh: src/backend/cuda is left out: there is no nvcc here" >&2
  files+=(':!src/backend/cuda')
fi
# Standard error only counts the warnings of system headers; findings and compile errors come on standard output.
git ls-files -co --exclude-standard -- "${files[@]}" |
  xargs -P "${JOBS:-$(nproc)}" -n 4 clang-tidy-19 -p build/release/clang-tidy --quiet --warnings-as-errors='*' 2>/dev/null
