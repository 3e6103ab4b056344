#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of carrier_test.py: all-reduces values that follow from a seed and its rank, exactly and with loss allowed.
Prints one line of JSON: a hash of the exact sums, the relative error of the others, and whole packets; or the error.

    tests/runtime/carrier_rank.py LIBRARY
"""
import array
import ctypes
import hashlib
import json
import random
import sys

import spillway_ctypes as sw

COUNTS = [1, 1000, 120_000]
PERIOD = 4001  # numbers that are drawn; drawing all would take longer than reducing them


def repeated(period, count):
    return (period * (count // len(period) + 1))[:count]


def values(seed, count):
    draw = random.Random(seed)
    return repeated(array.array("f", [draw.gauss(0, 1) for _ in range(PERIOD)]), count)


def buffer_of(numbers):
    return (ctypes.c_float * len(numbers)).from_buffer(array.array("f", numbers))


def exact(comm):
    digest = hashlib.sha256()
    for count in COUNTS:
        buffer = buffer_of(values(1000 * comm.rank + count, count))
        comm.run("all_reduce", buffer, buffer, count, sw.FLOAT32, sw.SUM)
        digest.update(bytes(buffer))
    return digest.hexdigest()


def tolerant(library, comm):
    count = COUNTS[-1]
    options = library.options()
    options.tolerant, options.loss_bound_ppm, options.precision = 1, 10_000, 12
    buffer = buffer_of(values(comm.rank, count))
    request = comm.start("all_reduce", buffer, buffer, count, sw.FLOAT32, sw.SUM, options=options)
    assert request.wait()
    truth = repeated([sum(each) for each in zip(*(values(rank, PERIOD) for rank in range(comm.world)))], count)
    error = sum((got - right) ** 2 for got, right in zip(buffer, truth)) / sum(right ** 2 for right in truth)
    peers = [peer for rank, peer in enumerate(request.report().peers) if rank != comm.rank]
    return error, sum(peer.packets_missing for peer in peers)


def main():
    library = sw.Library(sys.argv[1])
    try:
        comm = sw.Communicator(library)
        exact_hash = exact(comm)
        error, missing = tolerant(library, comm)
        print(json.dumps({"exact": exact_hash, "error": error, "missing": missing}), flush=True)
        comm.close()
    except sw.SpillwayError as failure:
        print(json.dumps({"status": failure.status, "failure": str(failure)}), flush=True)


if __name__ == "__main__":
    main()
