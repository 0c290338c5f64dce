#!/usr/bin/env bash
# clang-tidy over src/ with the checks of .clang-tidy, two or more files at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -co --exclude-standard 'src/*.cc' |
  xargs -P "${JOBS:-$(nproc)}" -n 2 clang-tidy-19 -p build/release --quiet --warnings-as-errors='*' 2> >(grep -v 'warnings generated\|Suppressed\|Use -header-filter' >&2)
