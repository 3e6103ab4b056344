#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that meet, but one of them announces a data address that the other cannot reach: the other names the rank,
the address and the variable. Runs in a network namespace that has only loopback.

    tests/runtime/unreachable_test.py LIBRARY

Skips if namespaces are not allowed: exit code 77.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.processes import run

SKIPPED = 77
INSIDE = ["unshare", "--user", "--map-root-user", "--net", "sh", "-ec"]
UP = "ip link set lo up"
RANKS = UP + """
export SPILLWAY_WORLD_SIZE=2 SPILLWAY_COMM_ID=127.0.0.1:5000 SPILLWAY_PEERS=127.0.0.1:7000,192.0.2.2:7000
SPILLWAY_RANK=1 SPILLWAY_LISTEN=127.0.0.1:7001 "$0" "$1" "$2" 1 >/dev/null 2>&1 &
SPILLWAY_RANK=0 SPILLWAY_LISTEN=127.0.0.1:7000 "$0" "$1" "$2" 1 2>&1 || true
wait
"""
EXPECTED = "rank 1 is at 192.0.2.2:7000, and from here: cannot find a route"
ADVICE = "SPILLWAY_SOCKET_IFNAME at rank 1"


def main():
    if run([*INSIDE, UP]).returncode != 0:
        print("skipped: no user or network namespaces here")
        return SKIPPED
    done = run([*INSIDE, RANKS, sys.executable, HERE / "reducing_rank.py", sys.argv[1]])
    if EXPECTED in done.stdout and ADVICE in done.stdout:
        return 0
    print(f"rank 0 said: {done.stdout}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
