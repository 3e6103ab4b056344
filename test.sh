#!/usr/bin/env bash
# Builds Spillway and runs its tests. The last line is `N passed, M failed`.
#
#   ./test.sh                          all tests that find a broken build or a broken guarantee, in minutes
#   ./test.sh --all                    also long ones: endurance, packages, experiments, soaks of many seeds,
#                                      comparisons that train, GPU kernels (the label `long` in tests/CMakeLists.txt)
#   ./test.sh FOLDER                   only the unit tests of src/FOLDER; builds only what they need
#   ./test.sh [--all] CTEST ARGUMENTS  for example: ./test.sh -R ranks
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"

packages=("$root/scripts/packages.txt")
targets=(quick_tests)
chosen=("${quick_tier[@]}")
if [[ ${1:-} == --all ]]; then
  packages+=("$root/scripts/packages-all.txt")
  targets=()
  chosen=()
  shift
elif [[ -n ${1:-} && -d $root/src/${1:-} ]]; then
  targets=("$1_tests")
  chosen=(-L "^$1\$")
  shift
fi

step "checking packages"
"$root/scripts/setup.sh" "${packages[@]}"
build_preset release ${targets[@]+"${targets[@]}"}

step "testing"
results=$root/build/release/tests.xml
status=0
run_tests "$results" ${chosen[@]+"${chosen[@]}"} "$@" || status=$?
[[ -e $results ]] || fail "ctest wrote no results"
python3 "$root/scripts/count_tests.py" "$results" || status=1
exit "$status"
