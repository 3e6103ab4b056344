#!/usr/bin/env bash
# Builds Spillway and shows it, in about six minutes on two cores: its codec on a tour, an incast of 64
# hosts through a simulated switch and one of real processes through an emulated one, and the main job:
# a training run on a congested network, over TCP and over Spillway, and what of the gain is fewer bits and
# what the transport. Pages and traces are in demo-output/.
#
#   ./demo.sh [STEPS OF THE TRAINING RUN, 240]
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"

steps=${1:-240}
[[ $steps =~ ^[1-9][0-9]*$ ]] || fail "'$steps' is not a number of steps; usage: ./demo.sh [STEPS]"
output=$root/demo-output

spillway() {
  step "running: spillway $*"
  "$root/build/release/bin/spillway" "$@"
}

# wrote FILE: names what a step left behind; without it, the step did not do its work.
wrote() {
  [[ -s $1 ]] || fail "nothing wrote $1"
  step "wrote $1"
}

step "checking packages"
"$root/scripts/setup.sh"
build_preset release spillway spillway_tool
rm -rf "$output"  # so that what is named below is this run's
cd "$root"

spillway codec tour --out "$output" --gradient tests/data/gradients/conv_step300.f32
wrote "$output/tour.html"

incast=tests/scenarios/incast_oversend.scn
spillway sim run $incast --trace "$output/incast.json"
spillway sim run $incast --set job.protocol=dctcp --set switch.mode=ecn --set switch.ecn=100k --set job.rto-min=10ms
wrote "$output/incast.json"  # for ui.perfetto.dev

spillway bench incast --rounds 20 --protocols spillway,cubic

# Debian's Python, which Debian's torch belongs to. The lab chooses the backend; the log has step times and accuracy.
spillway lab compare --preset congested --out "$output/compare" -- \
  /usr/bin/python3 examples/train.py --log {log} --steps "$steps" --evaluate-every 20
wrote "$output/compare/report.html"
