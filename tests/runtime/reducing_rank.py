#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that all-reduces without end, several at once, until an operation fails; then it reports how.

    tests/runtime/reducing_rank.py LIBRARY SEED [CODE]

CODE is "exact", or one that switches can add: "levels" or "blocks". Exact sums are checked: a wrong one is an error that
ends the process. Writes "ready" when its first operations have ended, then one line of JSON: status, message and the
time (CLOCK_MONOTONIC, which all processes of a machine share). After SIGUSR1, it writes "still reducing" as soon as
further operations have ended.
"""
import array
import collections
import ctypes
import functools
import json
import random
import signal
import sys
import time

import spillway_ctypes as sw

IN_FLIGHT = 6
WARM_UP = 10


def start(comm, sizes, options):
    count = sizes.choice([1, 1000, 20_000, 200_000])
    buffer = (ctypes.c_float * count).from_buffer(array.array("f", [comm.rank + 1]) * count)
    return buffer, comm.start("all_reduce", buffer, buffer, count, sw.FLOAT32, sw.SUM, options=options)


@functools.cache
def sums(world, count):
    return (array.array("f", [world * (world + 1) / 2]) * count).tobytes()


def options_for(library, code):
    options = library.options()
    if code != "exact":
        options.tolerant, options.loss_bound_ppm, options.precision = 1, 0, 4 if code == "levels" else 16
        options.codec, options.algorithm = sw.CODECS.index(code), sw.ALGORITHMS.index("switch")
    return options


def reduce_until_failure(comm, sizes, options):
    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(done + WARM_UP))
    pending = collections.deque(start(comm, sizes, options) for _ in range(IN_FLIGHT))
    done = 0
    while True:
        buffer, request = pending.popleft()
        request.wait()
        assert options.tolerant or bytes(buffer) == sums(comm.world, len(buffer)), "a sum is wrong"
        pending.append(start(comm, sizes, options))
        done += 1
        if done == WARM_UP:
            print("ready", flush=True)
        if asked and done >= asked[0]:
            print("still reducing", flush=True)
            asked.clear()


def main():
    library = sw.Library(sys.argv[1])
    sizes = random.Random(int(sys.argv[2]))  # the same at all ranks
    options = options_for(library, sys.argv[3] if len(sys.argv) > 3 else "exact")
    comm = sw.Communicator(library)
    try:
        reduce_until_failure(comm, sizes, options)
    except sw.SpillwayError as error:
        at = time.monotonic()
        print(json.dumps({"status": error.status, "message": str(error), "at": at}), flush=True)
    comm.close()


if __name__ == "__main__":
    main()
