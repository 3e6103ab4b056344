#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker of servers_test.py, which knows nothing of servers but what the environment says.

    tests/runtime/servers_worker.py LIBRARY SCENARIO
"""
import ctypes
import json
import os
import sys
import time

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


def a_pause(library, comm):
    """Rank 1 stays away for a while; the others go on without it."""
    options = library.options()
    options.tolerant, options.least_contributors = 1, 0.6
    for step in range(60):
        buffer = tensor(1)
        if comm.rank == 1 and step == 40:
            time.sleep(1.0)
        comm.start("all_reduce", buffer, buffer, COUNT, sw.FLOAT32, sw.AVERAGE, options=options).wait()
        # Of a step whose packets were late, single values may be far off; their mean is not.
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
    comm = sw.Communicator(library, rendezvous_timeout_ms=20_000)
    globals()[sys.argv[2]](library, comm)
    comm.close()


if __name__ == "__main__":
    main()
