#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a lab whose hosts hold several ranks: all-reduces a few times and reports the outcome.

    tests/lab/several_ranks.py COUNT OPERATIONS CODEC

CODEC is exact, planes or entropy. Writes one line of JSON: the CRC of all results, the largest error of any value, the
algorithm of the last all-reduce, and what torchrun's variables say of the rank.
"""
import array
import json
import os
import sys
import zlib

import spillway
from spillway.abi import CODECS

PATTERN = 1000


def values_of(rank, count):
    return array.array("f", ((rank + 1) * (i % PATTERN) / PATTERN for i in range(PATTERN))) * (count // PATTERN)


def largest_error(values, world):
    ranks = world * (world + 1) / 2
    return max(abs(value - ranks * (i % PATTERN) / PATTERN) for i, value in enumerate(values))


def options_of(comm, codec):
    options = comm.options()
    if codec != "exact":
        options.tolerant = 1
        options.codec = CODECS.index(codec)
        options.precision = options.gather_precision = 16
        options.loss_bound_ppm = 0
    return options


def main():
    count, operations, codec = int(sys.argv[1]) // PATTERN * PATTERN, int(sys.argv[2]), sys.argv[3]
    told = {name.lower(): int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")}
    told["crc"] = 0
    with spillway.Communicator() as comm:
        options = options_of(comm, codec)
        for _ in range(operations):
            values = values_of(comm.rank, count)
            address = values.buffer_info()[0]
            request = comm.start("all_reduce", address, address, count, spillway.FLOAT32, spillway.SUM, options=options)
            request.wait()
            told["crc"] = zlib.crc32(values.tobytes(), told["crc"])
            told["algorithm"] = request.report().algorithm
        told["error"] = largest_error(values, comm.world)
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
