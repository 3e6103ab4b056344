#!/usr/bin/env bash
# Fails if clang-format would change a C or C++ file. Skips without clang-format: exit code 77.
#
#   tests/check_format.sh [--fix]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v clang-format >/dev/null; then
  echo "skipped: clang-format is not installed"
  exit 77
fi
mapfile -d '' files < <(find . \( -path ./build -o -path ./.git \) -prune -o \
  -type f \( -name '*.h' -o -name '*.hpp' -o -name '*.cc' -o -name '*.c' -o -name '*.cuh' \) -print0)
[[ ${#files[@]} -gt 0 ]] || { echo "error: found no sources" >&2; exit 1; }
if [[ ${1:-} == --fix ]]; then
  exec clang-format -i "${files[@]}"
fi
if ! complaints=$(clang-format --dry-run -Werror "${files[@]}" 2>&1); then
  sed -nE 's|^(\./)?([^:]+:[0-9]+):[0-9]+: error: .*|\2: not as clang-format has it|p' \
    <<<"$complaints" | uniq
  echo "error: run tests/check_format.sh --fix" >&2
  exit 1
fi
echo "${#files[@]} files are formatted"
