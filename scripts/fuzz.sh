#!/usr/bin/env bash
# Builds the libFuzzer targets (clang-19) and runs each for SECONDS_EACH seconds (default 60), one after the other.
# New inputs go to build/fuzz/corpus/<target>; tests/fuzz/corpus/<target> holds the seeds of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${SECONDS_EACH:-60}
cmake --preset fuzz
cmake --build --preset fuzz -j "${JOBS:-$(nproc)}" --target fuzzers

for target in build/fuzz/tests/fuzz/*_fuzz; do
  name=$(basename "$target")
  mkdir -p "build/fuzz/corpus/$name"
  seeds=()
  if [ -d "tests/fuzz/corpus/$name" ]; then
    seeds=("tests/fuzz/corpus/$name")
  fi
  echo "== $name: $seconds s"
  "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "${seeds[@]}"
done
