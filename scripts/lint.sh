#!/usr/bin/env bash
# Every lint, each with its own verdict: formatting, style rules (sizes, include order), ruff, shellcheck, clang-tidy.
# Exit status 1 if one failed. KIPP_SKIP_CLANG_TIDY=1 leaves out the slow one and says so.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

status=0
check() {
  local name=$1
  shift
  if "$@"; then
    echo "lint: $name ok"
  else
    echo "lint: $name FAILED" >&2
    status=1
  fi
}

mapfile -t cpp < <(git ls-files -co --exclude-standard '*.cc' '*.h' '*.cu' '*.cuh')
mapfile -t shell < <(git ls-files -co --exclude-standard '*.sh' .ci/run)
check clang-format clang-format-19 --dry-run --Werror "${cpp[@]}"
check style .venv/bin/python tests/lint/check_style.py
check ruff .venv/bin/python -m ruff check --quiet tools tests bench
check shellcheck shellcheck "${shell[@]}"
if [ "${KIPP_SKIP_CLANG_TIDY:-0}" = 1 ]; then
  echo "lint: clang-tidy SKIPPED (KIPP_SKIP_CLANG_TIDY=1)" >&2
else
  check clang-tidy scripts/clang_tidy.sh
fi
exit $status
