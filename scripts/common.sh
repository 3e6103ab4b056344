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

# install_during_build LIST...: installs, in the background, packages that the build does not need; on a bare machine
# that takes longer than a minute. await_packages waits for them, and shows what was printed if they cannot be had.
install_during_build() {
  packages_log=$(mktemp)
  "$root/scripts/setup.sh" "$@" <&0 >"$packages_log" 2>&1 &
  packages_installer=$!
}

await_packages() {
  wait "$packages_installer" || {
    cat "$packages_log" >&2
    fail "packages that tests and demo need are missing"
  }
  rm -f "$packages_log"
}

# build_preset PRESET [TARGET...]: configures build/PRESET if needed, and builds it. Ninja reconfigures by itself when
# a CMake file changes, but it does not know the presets.
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

# ctest arguments that choose the quick tests.
quick_tier=(-LE '^(long|cuda)$')

# run_tests RESULTS [CTEST ARGUMENTS...]: runs the tests of build/release in parallel and writes RESULTS, a JUnit
# file. Runs take turns, because results of two would mix. This shell keeps the lock until it ends, so that it can read
# the results. ctest inherits it, and may outlive a killed shell. Tests of processes close it
# (tests/harness/contained.sh).
#
# Tests of processes mostly wait, so there are twice as many jobs as cores. The limit only ends a hung test: it is
# ample on a quiet machine and grows with this machine's slowness.
run_tests() {
  local results=$1 slowdown=1
  shift
  exec 9>"$root/build/release/.testing"
  if ! flock --nonblock 9; then
    step "waiting for another run of the tests of build/release to end"
    flock 9
  fi
  [[ ! -x $root/build/release/bin/slowdown ]] || slowdown=$("$root/build/release/bin/slowdown")
  rm -rf "$results" "$root/build/release/unit_tests"  # an earlier run's results must not count
  ctest --test-dir "$root/build/release" -j "$((2 * $(nproc)))" --timeout "$((900 * (${slowdown%.*} + 1)))" \
    --output-on-failure --no-tests=error --output-junit "$results" "$@"
}
