#!/usr/bin/env bash
# Builds Spillway and shows its main purpose, in about four minutes after the build on two idle cores. The same
# training script runs on the same congested network over TCP, over TCP with PyTorch's hooks that send fewer bits, and
# over Spillway. A table and a page show step times, and how much of a gain comes from fewer bits, the transport and its
# scheduling. If a run fails, the exit code is the failure's.
#
#   ./demo.sh
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/scripts/common.sh"
(($# == 0)) || fail "usage: ./demo.sh"

tool=build/release/bin/spillway
output=demo-output
seconds=11  # of training per transport; the number of steps depends on machine and transport

# with_bbr: prints "tcp-bbr," if this kernel has it.
with_bbr() {
  modprobe -q tcp_bbr 2>/dev/null || true
  if grep -qw bbr /proc/sys/net/ipv4/tcp_available_congestion_control; then
    echo "tcp-bbr,"
  fi
}

step "checking packages"
"$root/scripts/setup.sh"
install_during_build "$root/scripts/packages-run.txt"
build_preset release spillway spillway_tool
await_packages
cd "$root"
rm -rf "$output"  # the page named below must come from this run
bbr=$(with_bbr)
[[ -n $bbr ]] || step "this kernel has no TCP bbr: it is left out"

step "training on a congested network, once per transport: about 20 s each"
# Debian's torch belongs to Debian's Python. The lab chooses the backend; the log has step times and accuracy.
code=0
"$tool" lab compare --preset congested --out "$output" --transports \
  "tcp,${bbr}tcp-fp16,tcp-powersgd,spillway-exact,spillway-16,spillway-over-tcp,spillway-flat,spillway" -- \
  /usr/bin/python3 examples/train.py --log '{log}' --seconds "$seconds" --evaluate-every 5 --test-samples 1000 ||
  code=$?

if ((code == 0)) && [[ ! -s $output/report.html ]]; then
  fail "nothing wrote $output/report.html"
fi
((code == 0)) || step "a run failed, and its message above says why; this script ends with its exit code, $code"
step "other networks: $tool lab presets; an incast of 64 hosts: $tool sim run tests/scenarios/incast_oversend.scn;" \
  "all codecs on one gradient: $tool codec --out $output"
step "next, your own script: $tool lab compare -- python3 YOUR_SCRIPT.py"
exit "$code"
