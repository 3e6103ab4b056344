#!/usr/bin/env bash
# Builds Spillway and runs its tests. The last line is `N passed, M failed`.
#
#   ./test.sh                          all tests that find a broken build or a broken guarantee, in minutes
#   ./test.sh --all                    also long ones: endurance, packages, experiments, soaks of many seeds,
#                                      comparisons that train, GPU kernels (the label `long` in tests/CMakeLists.txt)
#   ./test.sh FOLDER                   only the unit tests of that folder (transport, sim/scenario); builds only what they need
#   ./test.sh [--all] CTEST ARGUMENTS  for example: ./test.sh -R ranks
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"

packages=("$root/scripts/packages-run.txt")
targets=(quick_tests)
chosen=("${quick_tier[@]}")
if [[ ${1:-} == --all ]]; then
  packages+=("$root/scripts/packages-all.txt")
  targets=()
  chosen=()
  shift
elif [[ ${1:-} =~ ^[a-z/]+$ ]] && compgen -G "$root/{,lib/,switch/,sim/,lab/,tools/,lib/elastic/}$1" >/dev/null; then
  folder=$(basename "$1")
  targets=("${folder}_tests")
  chosen=(-L "^$folder\$")
  shift
fi

step "checking packages"
"$root/scripts/setup.sh"
install_during_build "${packages[@]}"
build_preset release ${targets[@]+"${targets[@]}"}
await_packages

step "testing"
results=$root/build/release/tests.xml
status=0
run_tests "$results" ${chosen[@]+"${chosen[@]}"} "$@" || status=$?
[[ -e $results ]] || fail "ctest wrote no results"
python3 "$root/scripts/count_tests.py" "$results" || status=1
exit "$status"
