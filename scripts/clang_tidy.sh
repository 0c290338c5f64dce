#!/usr/bin/env bash
# clang-tidy over src/ with the checks of .clang-tidy, findings on standard output.
# It needs the compile commands and the generated files of the release build, and makes them where they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! log=$(cmake --preset release 2>&1 && cmake --build --preset release --target kipp_build_info kipp_gate_records 2>&1); then
  echo "$log"
  echo "clang_tidy.sh: the release build cannot be configured; scripts/setup.sh test installs what it needs"
  exit 1
fi
# The host side of the CUDA backend can be checked only where it is compiled.
files=('src/*.cc')
if ! grep -q '"file": "[^"]*/src/backend/cuda/' build/release/compile_commands.json 2>/dev/null; then
  echo "clang_tidy.sh: src/backend/cuda is left out: there is no nvcc here" >&2
  files+=(':!src/backend/cuda')
fi
git ls-files -co --exclude-standard -- "${files[@]}" |
  .venv/bin/python -m tools.run_clang_tidy --build build/release --jobs "${JOBS:-$(nproc)}"
