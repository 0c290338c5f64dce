#!/usr/bin/env bash
# clang-tidy over src/ with the checks of .clang-tidy, several files at a time; findings on standard output.
set -euo pipefail
cd "$(dirname "$0")/.."
# Standard error only counts the warnings of system headers; findings and compile errors come on standard output.
git ls-files -co --exclude-standard 'src/*.cc' |
  xargs -P "${JOBS:-$(nproc)}" -n 4 clang-tidy-19 -p build/release --quiet --warnings-as-errors='*' 2>/dev/null
