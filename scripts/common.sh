# shellcheck shell=bash
# What test.sh, demo.sh and .ci/run share. Source it; it runs nothing.

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
