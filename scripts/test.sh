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

scripts/setup.sh test
cmake --preset "$preset" -DKIPP_BUILD_TESTS=ON
cmake --build --preset "$preset" -j "$jobs"
make --no-print-directory demo

status=0
if [ "$preset" = release ]; then
  scripts/lint.sh || status=1
fi
ctest --preset "$preset" -j "$jobs" || status=1
if [ "$preset" = release ]; then
  export KIPP_BINARY=build/release/bin/kipp
  export KIPP_DEMO_ARTIFACT=models/kipp-kipp-demo-bf16.gguf
  export KIPP_TWIN_ARTIFACT=build/release/artifacts/kipp-demo-2layers.gguf
  # Two halves side by side: each keeps about one processor busy, and they share no file. The tests of the benchmarks
  # are with the shorter one.
  benchmarks=(tests/cli/test_{bench,bench_command,cuda_roofline,kipp_vs_llama_cpp,server_goodput}.py)
  .venv/bin/python -m pytest -rs tests/lint tests/python tests/fuzz tests/server "${benchmarks[@]}" \
    > build/release/pytest-tools.log 2>&1 &
  tools=$!
  .venv/bin/python -m pytest -rs tests/cli "${benchmarks[@]/#/--ignore=}" || status=1
  wait "$tools" || status=1
  cat build/release/pytest-tools.log
fi
exit $status
