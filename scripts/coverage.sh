#!/usr/bin/env bash
# Line coverage of everything that reads bytes from outside (clang-19, preset coverage): builds, runs the tests and the
# fuzzers' seeds that reach the parsers, and prints the tables of tools/parser_coverage.py. Exit status 1 where a parser
# is below the bound. --write also puts the tables into docs/coverage.md.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/coverage
cmake --preset coverage -DKIPP_BUILD_TESTS=ON
cmake --build --preset coverage -j "${JOBS:-$(nproc)}" \
  --target kipp_cli base_test gguf_test tokenizer_test chat_test cli_test server_openai_test engine_test gates_test http_test fuzz_replays

# Processes of one program add to one profile (%m), a new one each run of this script.
rm -rf "$build/profiles"
export LLVM_PROFILE_FILE=$PWD/$build/profiles/%4m.profraw
ctest --preset coverage -R '^(base_test|gguf_test|tokenizer_test|chat_test|cli_test|server_openai_test|http_test|twin_artifacts|.*_fuzz_seeds)$'
"$build/tests/engine/engine_test" --gtest_filter='StopMatcher*' --gtest_brief=1
"$build/tests/gates/gates_test" --gtest_filter='Safetensors*:LoadVectors*' --gtest_brief=1
KIPP_BINARY=$build/bin/kipp KIPP_DEMO_ARTIFACT=models/kipp-kipp-demo-bf16.gguf \
  KIPP_TWIN_ARTIFACT=$build/artifacts/kipp-demo-2layers.gguf \
  .venv/bin/python -m pytest tests/cli/test_tokenize.py tests/cli/test_render.py tests/cli/test_run.py \
  tests/cli/test_run_output.py

llvm-profdata-19 merge -sparse "$build"/profiles/*.profraw -o "$build/coverage.profdata"
objects=()
for program in "$build"/bin/kipp "$build"/tests/*/{base,gguf,tokenizer,chat,cli,server_openai,engine,gates}_test \
  "$build"/tests/server/http/http_test "$build"/tests/fuzz/*_fuzz; do
  if [ -x "$program" ]; then # the pattern of the tests also matches what is not there
    objects+=(-object "$program")
  fi
done
# Warns of functions whose code some program does not have: inline, and never called there. Another program counts them.
llvm-cov-19 export -format=lcov -instr-profile "$build/coverage.profdata" "${objects[@]}" > "$build/coverage.lcov"
.venv/bin/python -m tools.parser_coverage "$build/coverage.lcov" "$@"
