#!/usr/bin/env bash
# Measures what there is to measure: the tokenizer against Hugging Face's, and the oracle on the bundled demo (prompt and
# decode rate, time to open an artifact). Prints the records as JSON; they are kept only if asked:
#   scripts/bench.sh [--record | --output DIR]   --record: in bench/results
# `make bench` builds what it needs; `make bench BENCH=--record` hands the flags on. BENCH_RUNS: repetitions (5).
set -euo pipefail
cd "$(dirname "$0")/.."

folder=
case "${1:-}" in
  '') ;;
  --record) folder=bench/results ;;
  --output) folder=${2:?bench.sh: --output needs a folder} ;;
  *) echo "bench.sh: unknown argument '$1'; expected --record or --output DIR" >&2; exit 2 ;;
esac
runs=${BENCH_RUNS:-5}

cmake --preset release -DKIPP_BUILD_TESTS=ON >&2
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target kipp_cli tokenizer_bench tokenizer_encode_lines >&2

# record NAME: the arguments that make a benchmark write its record, if it shall.
record() {
  if [ -n "$folder" ]; then
    printf '%s\n' --output "$folder/$1.json"
  fi
}

mapfile -t output < <(record demo-speed)
.venv/bin/python bench/demo_speed.py --kipp build/release/bin/kipp --model models/kipp-kipp-demo-bf16.gguf \
  --runs "$runs" "${output[@]}"
programs=build/release/tests/tokenizer
mapfile -t output < <(record tokenizer-vs-huggingface)
.venv/bin/python bench/tokenizer_vs_huggingface.py --bench $programs/tokenizer_bench \
  --encoder $programs/tokenizer_encode_lines --tokenizer-json $programs/tokenizer.json --runs "$runs" "${output[@]}"
