# shellcheck shell=bash
# Shared by test.sh, demo.sh and .ci/run. Source it; it runs nothing.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

step() {
  printf '==> %s\n' "$*"
}

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# build_preset PRESET [TARGET...]: configures build/PRESET unless that is done, and builds it.
# Ninja itself configures again when a CMake file changes; the presets it does not know about.
build_preset() {
  local preset=$1 dir=$root/build/$1
  shift
  if [[ ! -e $dir/.configured || $root/CMakePresets.json -nt $dir/.configured ]]; then
    step "configuring build/$preset"
    cmake -S "$root" --preset "$preset"
    touch "$dir/.configured"
  fi
  step "building build/$preset"
  cmake --build "$dir" -j "$(nproc)" ${1:+--target "$@"}
}

# How ctest chooses the quick tests.
quick_tier=(-LE '^(long|cuda)$')

# run_tests RESULTS [CTEST ARGUMENTS...]: the tests of build/release, in parallel; RESULTS becomes a JUnit file.
#
# Tests of processes mostly wait, so there are twice as many jobs as cores. The limit only ends a test that hangs: it is
# ample on a quiet machine and grows with how slow this one is.
run_tests() {
  local results=$1 slowdown=1
  shift
  [[ ! -x $root/build/release/bin/slowdown ]] || slowdown=$("$root/build/release/bin/slowdown")
  rm -rf "$results" "$root/build/release/unit_tests"  # so that nobody counts the results of an earlier run
  ctest --test-dir "$root/build/release" -j "$((2 * $(nproc)))" --timeout "$((900 * ${slowdown%.*}))" \
    --output-on-failure --no-tests=error --output-junit "$results" "$@"
}
