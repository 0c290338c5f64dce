#!/usr/bin/env bash
# Compares Kipp with llama.cpp and with the gguf package on the demo and on a full-size twin of qwen3-0.6b: the tests of
# tests/interchange, in build/interchange-venv (scripts/setup.sh interchange makes it). Arguments go to pytest.
# Twin and exports, 4 GB, stay in build/interchange. Minutes on an idle machine.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${JOBS:-$(nproc)}
cmake --preset release -DKIPP_BUILD_TESTS=ON
cmake --build --preset release -j "$jobs" --target kipp_cli interchange_logits
make --no-print-directory demo-schemes
export KIPP_BINARY=build/release/bin/kipp
export KIPP_LOGITS_BINARY=build/release/tests/interchange/interchange_logits
export KIPP_DEMO_ARTIFACT=models/kipp-kipp-demo-bf16.gguf
build/interchange-venv/bin/python -m pytest -rs --capture=no tests/interchange "$@"
