#!/usr/bin/env bash
# Fails if a shared library exports a symbol without the prefix spillway_, or none with it.
#
#   tests/install/check_exports.sh LIBRARY
set -euo pipefail

# "address type name@@VERSION": the version itself is also listed, as an absolute symbol.
exports=$(nm -D --defined-only "$1" | awk '$(NF-1) != "A" { sub(/@.*/, "", $NF); print $NF }')
strays=$(grep -v '^spillway_' <<<"$exports" || true)
if [[ -n $strays ]]; then
  echo "error: $1 exports more than spillway_*:" >&2
  c++filt <<<"$strays" >&2
  exit 1
fi
[[ -n $exports ]] || { echo "error: $1 exports nothing" >&2; exit 1; }
echo "$(wc -l <<<"$exports") exported symbols, all spillway_*"
