#!/usr/bin/env bash
# Installs a build into a temporary folder and uses it as an external user would: a C and a C++ program through
# find_package(spillway), the C program again through pkg-config, the examples as two ranks, and the tool.
#
#   tests/install/check_install.sh BUILD_DIR
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

step() {
  printf '==> %s\n' "$*"
}

step "installing"
cmake --install "$build" --prefix "$prefix" >"$scratch/install.log" || {
  cat "$scratch/install.log"
  exit 1
}
library=$(find "$prefix" -name libspillway.so)
[[ -n $library ]] || { echo "error: no libspillway.so was installed" >&2; exit 1; }
libdir=$(dirname "$library")

step "checking exported symbols"
"$here/check_exports.sh" "$library"
# The same check must reject a library that leaks a symbol.
printf 'void spillway_a(void) {}\nvoid stray(void) {}\n' >"$scratch/stray.c"
cc -shared -fPIC "$scratch/stray.c" -o "$scratch/libstray.so"
if "$here/check_exports.sh" "$scratch/libstray.so" 2>"$scratch/stray.log"; then
  echo "error: check_exports.sh passed a library that exports 'stray'" >&2
  exit 1
fi
grep -qx stray "$scratch/stray.log"

# build_against_prefix SOURCE_DIR BUILD_DIR
build_against_prefix() {
  cmake -G Ninja -S "$1" -B "$2" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON \
    >"$scratch/cmake.log" || {
    cat "$scratch/cmake.log"
    exit 1
  }
  cmake --build "$2"
}

free_port() {
  python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Runs two ranks of a program without a launcher, with plain variables.
run_two_ranks() {
  local meeting rank
  meeting=127.0.0.1:$(free_port)
  for rank in 0 1; do
    SPILLWAY_COMM_ID=$meeting SPILLWAY_WORLD_SIZE=2 SPILLWAY_RANK=$rank SPILLWAY_PEER_TIMEOUT=120 \
      SPILLWAY_LOCAL_WORLD_SIZE=2 SPILLWAY_LOCAL_RANK=$rank \
      "$1" 5000 >"$scratch/rank$rank.log" 2>&1 &
  done
  if ! { wait -n && wait -n; }; then
    cat "$scratch"/rank?.log >&2
    return 1
  fi
  cat "$scratch"/rank?.log
  grep -q "rank 0 of 2" "$scratch/rank0.log" && grep -q "rank 1 of 2" "$scratch/rank1.log"
}

step "building with find_package(spillway)"
build_against_prefix "$here" "$scratch/consumer"
build_against_prefix "$here/../../examples" "$scratch/examples"

step "building with pkg-config"
export PKG_CONFIG_PATH=$libdir/pkgconfig
read -ra flags < <(pkg-config --cflags --libs spillway)
cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$here/consumer.c" "${flags[@]}" \
  -o "$scratch/consumer_pkgconfig"

step "running"
version=$(pkg-config --modversion spillway)
export LD_LIBRARY_PATH=$libdir
for program in consumer/consumer_c consumer/consumer_cc consumer_pkgconfig; do
  "$scratch/$program" "$version"
done
for example in all_reduce_c all_reduce_cc; do
  run_two_ranks "$scratch/examples/$example"
done
env -u LD_LIBRARY_PATH "$prefix/bin/spillway" --version | grep -F "$version"
[[ -s $prefix/share/spillway/wireshark/spillway.lua ]] ||
  { echo "error: no Wireshark dissector installed" >&2; exit 1; }
[[ -s $(find "$prefix" -name LICENSE) ]] || { echo "error: no LICENSE installed" >&2; exit 1; }
