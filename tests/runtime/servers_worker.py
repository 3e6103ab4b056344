#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker of servers_test.py, which learns of servers only from the environment.

    tests/runtime/servers_worker.py LIBRARY SCENARIO
"""
import ctypes
import json
import math
import os
import sys
import zlib

import spillway_ctypes as sw

COUNT = 20_000


def tensor(value, count=COUNT):
    return (ctypes.c_float * count)(*[float(value)] * count)


def sums(library, comm):
    assert comm.world == int(os.environ["SPILLWAY_WORLD_SIZE"]), comm.world
    for _ in range(10):
        buffer = tensor(comm.rank + 1)
        comm.run("all_reduce", buffer, buffer, COUNT, sw.FLOAT32, sw.SUM)
        assert set(buffer) == {comm.world * (comm.world + 1) / 2}
    word = (ctypes.c_int32 * 1)(comm.rank)
    comm.run("broadcast", word, word, 1, sw.INT32, 1)
    assert word[0] == 1
    comm.run("barrier")


def numbers_that_can_be_added(library, comm):
    """Servers add this code without decoding it: all ranks end with the same bytes."""
    exact = [sum(math.sin(0.37 * i + rank) for rank in range(comm.world)) for i in range(COUNT)]
    energy = sum(true ** 2 for true in exact)
    for code, precision, most in (("levels", 4, 0.05), ("blocks", 16, 1e-8)):
        options = library.options()
        options.tolerant, options.loss_bound_ppm, options.precision = 1, 0, precision
        options.codec = options.feedback_tensor = sw.CODECS.index(code)
        for predicts in (0, 1, 1):
            options.predicts_scale = predicts
            buffer = (ctypes.c_float * COUNT)(*[math.sin(0.37 * i + comm.rank) for i in range(COUNT)])
            request = comm.start("all_reduce", buffer, buffer, COUNT, sw.FLOAT32, sw.SUM, options=options)
            assert request.wait()
            assert request.report().contributors == comm.world
            error = sum((got - true) ** 2 for got, true in zip(buffer, exact)) / energy
            assert error < most, (code, error)
            word = (ctypes.c_int64 * 2)(*[sign * zlib.crc32(bytes(buffer)) for sign in (1, -1)])
            comm.run("all_reduce", word, word, 2, sw.INT64, sw.MAX)
            assert word[0] == -word[1], "ranks end with other bytes"


def a_pause(library, comm):
    """Rank 1 stays away until it is told that the others continued without it.

    The server alone decides how long it waits: it knows the usual pace after 8 steps (lib/collective/tolerant/tolerant_run.h),
    and a single slow worker does not change that. So the others cannot wait for rank 1 without end."""
    options = library.options()
    options.tolerant, options.least_contributors = 1, 0.6
    for step in range(60):
        buffer = tensor(1)
        if comm.rank == 1 and step == 40:
            sys.stdin.readline()
        if comm.rank != 1 and step == 50:
            print("went on", flush=True)
        comm.start("all_reduce", buffer, buffer, COUNT, sw.FLOAT32, sw.AVERAGE, options=options).wait()
        # In a step with late packets, single values may be far off; their mean is not.
        mean = sum(buffer) / COUNT
        assert abs(mean - 1.0) < 0.1, mean


def without_end(library, comm):
    buffer = tensor(1)
    try:
        while True:
            comm.run("all_reduce", buffer, buffer, COUNT, sw.FLOAT32, sw.MAX)
            print("step", flush=True)
    except sw.SpillwayError as error:
        print(json.dumps({"message": str(error)}), flush=True)


def disagreement(library, comm):
    count = 100 if comm.rank == 2 else COUNT
    buffer = tensor(1)
    try:
        comm.run("all_reduce", buffer, buffer, count, sw.FLOAT32, sw.SUM)
    except sw.SpillwayError as error:
        print(json.dumps({"message": str(error)}), flush=True)


def main():
    library = sw.Library(sys.argv[1])
    comm = sw.Communicator(library)
    globals()[sys.argv[2]](library, comm)
    comm.close()


if __name__ == "__main__":
    main()
