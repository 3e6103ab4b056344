#!/usr/bin/env bash
# Builds Spillway and takes its codec on a tour: a table here, and a page in demo-output/.
#
#   ./demo.sh [ARGUMENTS OF spillway codec tour, BUT FOR --out]
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"

step "checking packages"
"$root/scripts/setup.sh"
build_preset release spillway_tool

tour=(codec tour --out "$root/demo-output" "$@")
if [[ " $* " != *" --gradient"* ]]; then
  tour+=(--gradient "$root/tests/data/gradients/conv_step300.f32")
fi
page=$root/demo-output/tour.html
rm -f "$page"  # so that the page named below is this run's
step "running: spillway ${tour[*]}"
"$root/build/release/bin/spillway" "${tour[@]}"
[[ -s $page ]] || fail "the tour wrote no $page"
step "wrote $page"
