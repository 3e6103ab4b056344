#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of an elastic job of four, which sums within its part of a partition: ranks 0 and 1, 2 and 3.

    partition_rank.py LIBRARY

All ranks contribute the same numbers to every operation, so that equal places of packets have equal contents in both
parts and at all times. Writes "ready" when its first sums were right, "still reducing" on SIGUSR1 as soon as further
ones were; on SIGTERM the ranks of a part end together.
"""
import ctypes
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime"))

import spillway_ctypes as sw
from attacked_rank import reduce_until_told

COUNT = 8_000
NUMBER = 3.0


def check_sum(comm):
    numbers = (ctypes.c_float * COUNT)(*[NUMBER] * COUNT)
    comm.run("all_reduce", numbers, numbers, COUNT, sw.FLOAT32, sw.SUM)
    assert all(each == NUMBER * comm.world for each in numbers), "a sum is wrong"


def main():
    library = sw.Library(sys.argv[1])
    job = sw.spillway.Job.found(sw.Communicator(library), channels=2)
    rank = job.first_change().rank
    comm = job.communicator(1, (0, 1) if rank < 2 else (2, 3))
    rounds = reduce_until_told(comm, lambda _: check_sum(comm))
    print(f"{rounds} sums were right", flush=True)
    comm.close()
    job.leave()
    job.close()


if __name__ == "__main__":
    main()
