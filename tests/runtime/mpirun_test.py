#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples under mpirun: four ranks find each other by Open MPI's variables, and sum.

    tests/runtime/mpirun_test.py PROGRAM...

Skips without mpirun: exit code 77.
"""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.processes import environment_with, run

RANKS = 4
# Open MPI: allow root, more ranks than cores, and only this machine.
LAUNCH = ["mpirun", "-n", str(RANKS), "--oversubscribe", "--bind-to", "none", "--host", f"localhost:{RANKS}"]
ALLOW_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def main():
    if shutil.which("mpirun") is None:
        print("skipped: mpirun is not installed")
        return 77
    for program in sys.argv[1:]:
        done = run([*LAUNCH, program, "100000"], env=environment_with(ALLOW_ROOT))
        print(done.stdout, done.stderr, sep="")
        missing = [rank for rank in range(RANKS) if f"rank {rank} of {RANKS}" not in done.stdout]
        if done.returncode != 0 or missing:
            print(f"{program} ended with {done.returncode}, no report from ranks {missing}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
