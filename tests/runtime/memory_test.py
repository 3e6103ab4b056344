#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a communicator costs in memory, and that operations leave none behind.

    tests/runtime/memory_test.py LIBRARY [--operations N] [--worlds 2,8]
"""
import argparse
import json
import pathlib
import sys

from rank_processes import RankProcesses, python

RANK = pathlib.Path(__file__).resolve().parent / "memory_rank.py"
PATIENCE_S = 600
MOST_GROWTH_KIB = 256  # once all is warm
# So many messages fill what remembers ended ones; each operation is one to every other rank.
REMEMBERED = 20_000


def warm_up_of(world):
    return REMEMBERED // world


def measure(library, world, operations):
    command = python(RANK, library, operations, warm_up_of(world))
    with RankProcesses(world, lambda rank: command) as ranks:
        return [json.loads(output) for output in ranks.finish(PATIENCE_S)]


def report(world, operations, of_ranks):
    def worst(now, before):
        return max(kib[now] - kib[before] for kib in of_ranks)

    print(f"{world} ranks: a communicator takes {worst('communicator', 'before')} KiB of a rank, "
          f"{worst('warm', 'communicator')} KiB more after {warm_up_of(world)} all-reduces of 400 bytes, "
          f"{worst('all', 'warm')} KiB more after another {operations}, "
          f"{worst('large', 'buffer')} KiB more after two of 16 MiB", flush=True)
    return worst("all", "warm")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--operations", type=int, default=5000)
    parser.add_argument("--worlds", default="2")
    arguments = parser.parse_args()
    grew = 0
    for world in map(int, arguments.worlds.split(",")):
        of_ranks = measure(arguments.library.resolve(), world, arguments.operations)
        grew = max(grew, report(world, arguments.operations, of_ranks))
    if grew > MOST_GROWTH_KIB:
        print(f"memory grew by {grew} KiB, more than {MOST_GROWTH_KIB}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
