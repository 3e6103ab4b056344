#!/usr/bin/env bash
# Installs missing Debian packages.
#
#   scripts/setup.sh [LIST...]     LIST is a file of package names; by default packages.txt, which the build needs
#
# If none is missing, it only asks dpkg and does not call apt, so it works offline and without root.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lists=("$@")
[[ ${#lists[@]} -gt 0 ]] || lists=("$here/packages.txt")

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "==> not a Debian system: install the like of the packages in ${lists[*]} yourself"
  exit 0
fi

is_installed() {
  local status
  status=$(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null) && [[ $status == ?i* ]]
}

missing=()
while read -r package; do
  is_installed "$package" || missing+=("$package")
done < <(sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "${lists[@]}")
[[ ${#missing[@]} -gt 0 ]] || exit 0

give_up() {
  echo "error: ${missing[*]} missing and not installable from here ($1); as root, online, run:" \
    "apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
}

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || give_up "neither root nor sudo"
  as_root=(sudo)
  [[ -t 0 ]] || as_root+=(-n)  # nobody is there to type a password
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

echo "==> installing ${missing[*]}"
# A stale index may be good enough, so a failed update is not fatal.
apt update || echo "==> apt-get update failed; trying with the package index at hand"
apt install -y --no-install-recommends "${missing[@]}" || give_up "apt-get failed"
