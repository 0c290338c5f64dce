#!/usr/bin/env bash
# Builds the libFuzzer targets (clang-19, preset fuzz) and runs each for FUZZ_SECONDS seconds (default 60), one after the
# other; arguments name some of them (scripts/fuzz.sh json_fuzz). Starts from the seeds that the build makes and from what
# earlier runs kept in build/fuzz/corpus. A finding's input goes to build/fuzz/findings; then the exit status is 1.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${FUZZ_SECONDS:-60}
if ! [[ $seconds =~ ^[1-9][0-9]*$ ]]; then
  echo "fuzz.sh: FUZZ_SECONDS=$seconds: expected a whole number of seconds above 0" >&2
  exit 2
fi
build=${FUZZ_BUILD:-build/fuzz}
findings=$build/findings
if [ -z "${FUZZ_BUILD:-}" ]; then
  cmake --preset fuzz
  cmake --build --preset fuzz -j "${JOBS:-$(nproc)}" --target fuzzers
fi

names=("$@")
if [ ${#names[@]} = 0 ]; then
  shopt -s nullglob
  for target in "$build"/tests/fuzz/*_fuzz; do
    names+=("$(basename "$target")")
  done
fi
if [ ${#names[@]} = 0 ]; then
  echo "fuzz.sh: no fuzz target in $build/tests/fuzz" >&2
  exit 2
fi

mkdir -p "$findings"
failed=()
for name in "${names[@]}"; do
  mkdir -p "$build/corpus/$name"
  echo "== $name: $seconds s"
  if ! "$build/tests/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="$findings/$name-" "$build/corpus/$name" "$build/tests/fuzz/seeds/$name"; then
    failed+=("$name")
  fi
done

if [ ${#failed[@]} -gt 0 ]; then
  echo "fuzz.sh: FINDINGS of ${failed[*]}; the inputs are in $findings" >&2
  echo "fuzz.sh: run one again with: $build/tests/fuzz/NAME $findings/NAME-crash-…" >&2
  exit 1
fi
echo "fuzz.sh: no findings (${names[*]}; $seconds s each)"
