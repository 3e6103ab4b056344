#!/usr/bin/env bash
# Builds Spillway and runs its tests. The last line is `N passed, M failed`.
#
#   ./test.sh [CTEST ARGUMENTS]     for example: ./test.sh -R Rotation
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"

results=$root/build/release/tests.xml
rm -f "$results"  # so that nobody counts the results of an earlier run

step "checking packages"
"$root/scripts/setup.sh"
build_preset release

step "testing"
status=0
ctest --test-dir "$root/build/release" -j 2 --timeout 300 --output-on-failure --no-tests=error \
  --output-junit "$results" "$@" || status=$?
[[ -e $results ]] || fail "ctest wrote no results"
python3 "$root/scripts/count_tests.py" "$results" || status=1
exit "$status"
