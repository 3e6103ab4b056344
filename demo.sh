#!/usr/bin/env bash
# Builds Spillway, takes its codec on a tour (a table here, a page in demo-output/), sends an incast of
# 64 hosts through a simulated switch, with Spillway and with DCTCP, and one of real processes through
# an emulated switch, with Spillway and with the kernel's TCP.
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

incast() {
  step "running: spillway sim run $*"
  "$root/build/release/bin/spillway" sim run "$@"
}
scenario=$root/tests/scenarios/incast_oversend.scn
incast "$scenario" --trace "$root/demo-output/incast.json"
incast "$scenario" --set job.protocol=dctcp --set switch.mode=ecn --set switch.ecn=100k --set job.rto-min=10ms
step "wrote $root/demo-output/incast.json (open it in ui.perfetto.dev)"

step "running: spillway bench incast --rounds 20 --protocols spillway,cubic"
"$root/build/release/bin/spillway" bench incast --rounds 20 --protocols spillway,cubic
