#!/usr/bin/env bash
# Runs a test in its own namespaces, so that everything it starts or makes ends with it, however it ends.
#
#   tests/harness/contained.sh COMMAND...
#
# - Processes: a PID namespace. When this script is killed, its first process dies, and the kernel kills the rest.
# - Network: its own loopback, ports and interfaces; `ip netns add` mounts in the private /run and vanishes with it.
# - Files: private /run and /dev/shm; TMPDIR and XDG_RUNTIME_DIR lie in them. Programs pinned under /sys/fs/bpf
#   vanish, too.
# So names, ports and files of two tests cannot collide, and tests may run side by side.
#
# Without root there are no such namespaces: the command then runs without them.
set -euo pipefail

exec 9>&-  # the lock of run_tests (scripts/common.sh): what outlives a run must not hold it

enter=(unshare --net --mount --pid --ipc --fork --kill-child --mount-proc)
if [[ $(id -u) -ne 0 ]] || ! "${enter[@]}" true 2>/dev/null; then
  exec "$@"
fi

# The inner shell stays as process 1: it reaps orphans, which a test would not. unshare ignores SIGTERM and the like, so
# this shell passes them on as a kill; if this shell itself is killed, setpriv makes the kernel send the kill.
# shellcheck disable=SC2016
setpriv --pdeathsig KILL "${enter[@]}" bash -c '
  set -e
  mount -t tmpfs -o mode=755 spillway-test /run
  mount -t tmpfs -o mode=1777 spillway-test /dev/shm
  mount -t bpf bpf /sys/fs/bpf 2>/dev/null || true
  mkdir -m 1777 /run/tmp
  export TMPDIR=/run/tmp XDG_RUNTIME_DIR=/run/tmp
  ip link set lo up
  status=0
  "$@" || status=$?
  exit "$status"
' contained "$@" <&0 &
child=$!
trap 'kill -KILL "$child"; exit 143' TERM INT HUP
status=0
wait "$child" || status=$?
exit "$status"
