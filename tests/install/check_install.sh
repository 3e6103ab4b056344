#!/usr/bin/env bash
# Installs a build into a temporary folder and uses it as a stranger would: a C and a C++ program
# through find_package(spillway), the C program again through pkg-config, and the tool.
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
# The same check must refuse a library that leaks a symbol.
printf 'void spillway_a(void) {}\nvoid stray(void) {}\n' >"$scratch/stray.c"
cc -shared -fPIC "$scratch/stray.c" -o "$scratch/libstray.so"
if "$here/check_exports.sh" "$scratch/libstray.so" 2>"$scratch/stray.log"; then
  echo "error: check_exports.sh passed a library that exports 'stray'" >&2
  exit 1
fi
grep -qx stray "$scratch/stray.log"

step "building with find_package(spillway)"
cmake -G Ninja -S "$here" -B "$scratch/consumer" -DCMAKE_PREFIX_PATH="$prefix" \
  >"$scratch/cmake.log" || {
  cat "$scratch/cmake.log"
  exit 1
}
cmake --build "$scratch/consumer"

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
env -u LD_LIBRARY_PATH "$prefix/bin/spillway" --version | grep -F "$version"
[[ -s $prefix/share/spillway/wireshark/spillway.lua ]] ||
  { echo "error: no Wireshark dissector installed" >&2; exit 1; }
[[ -s $(find "$prefix" -name LICENSE) ]] || { echo "error: no LICENSE installed" >&2; exit 1; }
