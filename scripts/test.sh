#!/usr/bin/env bash
# Builds and runs every test. `make test` calls it without arguments: release build, lints, ctest, pytest.
# With --preset asan|tsan: the C++ tests of that sanitizer build only.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
if [ "${1:-}" = --preset ]; then
  preset=$2
fi
jobs=${JOBS:-$(nproc)}

if [ "$preset" = release ]; then
  scripts/setup.sh test
fi
cmake --preset "$preset" -DKIPP_BUILD_TESTS=ON
cmake --build --preset "$preset" -j "$jobs"

make --no-print-directory demo
status=0
if [ "$preset" = release ]; then
  scripts/lint.sh || status=1
fi
ctest --preset "$preset" -j "$jobs" || status=1
if [ "$preset" = release ]; then
  .venv/bin/python -m pytest -q -rs tests || status=1
fi
exit $status
