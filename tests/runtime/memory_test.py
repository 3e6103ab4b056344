#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory of a communicator: its size, that operations leave none behind, and that ranks of one machine share
theirs without rights over each other.

    tests/runtime/memory_test.py LIBRARY [--operations N] [--worlds 2,8]
"""
import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.processes import RankProcesses, python

HANGS_S = 600  # long runs by hand
MOST_GROWTH_KIB = 256  # after the warm-up
# This many messages fill the records of ended ones; each operation is one to every other rank.
REMEMBERED = 20_000


def warm_up_of(world):
    return REMEMBERED // world


def measure(library, world, operations):
    command = python(HERE / "memory_rank.py", library, operations, warm_up_of(world))
    with RankProcesses(world, lambda rank: command) as ranks:
        return [json.loads(output) for output in ranks.finish(HANGS_S)]


def report(world, operations, of_ranks):
    def worst(now, before):
        return max(kib[now] - kib[before] for kib in of_ranks)

    print(f"{world} ranks: a communicator takes {worst('communicator', 'before')} KiB of a rank, "
          f"{worst('warm', 'communicator')} KiB more after {warm_up_of(world)} all-reduces of 400 bytes, "
          f"{worst('all', 'warm')} KiB more after another {operations}, "
          f"{worst('large', 'buffer')} KiB more after two of 16 MiB", flush=True)
    return worst("all", "warm")


def check_sharing(world, of_ranks):
    """The problem, if any: each rank writes one segment and reads those of the others."""
    wrong = [rank for rank in of_ranks if (rank["segments_read"], rank["segments_written"]) != (world - 1, 1)]
    return f"ranks that do not share with all others: {wrong}" if wrong else None


def check_library(library):
    """The problem, if any: no call may read another process, or let others do so."""
    return "it reads other processes' memory" if b"process_vm_readv" in library.read_bytes() else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--operations", type=int, default=5000)
    parser.add_argument("--worlds", default="2")
    arguments = parser.parse_args()
    faults = [check_library(arguments.library.resolve())]
    grew = 0
    for world in map(int, arguments.worlds.split(",")):
        of_ranks = measure(arguments.library.resolve(), world, arguments.operations)
        grew = max(grew, report(world, arguments.operations, of_ranks))
        faults.append(check_sharing(world, of_ranks))
    if grew > MOST_GROWTH_KIB:
        faults.append(f"memory grew by {grew} KiB, more than {MOST_GROWTH_KIB}")
    for fault in filter(None, faults):
        print(fault, file=sys.stderr)
    return 1 if any(faults) else 0


if __name__ == "__main__":
    sys.exit(main())
