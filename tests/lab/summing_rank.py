#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a lab that all-reduces a few times in a code that switches can add, and reports the outcome.

    tests/lab/summing_rank.py COUNT OPERATIONS CODE

Writes one line of JSON: the CRC of all results, the largest error of any value, the parts that arrived summed and
unsummed, and the bytes that it sent.
"""
import array
import json
import sys
import zlib

import spillway
from spillway.abi import ALGORITHMS, CODECS

PATTERN = 1000


def values_of(rank, count):
    pattern = array.array("f", ((rank + 1) * (i % PATTERN) / PATTERN for i in range(PATTERN)))
    return pattern * (count // PATTERN)


def largest_error(values, world):
    ranks = world * (world + 1) / 2
    return max(abs(value - ranks * (i % PATTERN) / PATTERN) for i, value in enumerate(values))


def main():
    count, operations = int(sys.argv[1]) // PATTERN * PATTERN, int(sys.argv[2])
    told = {"crc": 0, "error": 0.0, "added": 0, "alone": 0, "bytes": 0}
    with spillway.Communicator() as comm:
        options = comm.options()
        options.tolerant = 1
        options.loss_bound_ppm = 0
        options.algorithm = ALGORITHMS.index("switch")
        options.codec = CODECS.index(sys.argv[3])
        if sys.argv[3] == "levels":
            options.precision = options.gather_precision = 8
        for _ in range(operations):
            values = values_of(comm.rank, count)
            address = values.buffer_info()[0]
            request = comm.start("all_reduce", address, address, count, spillway.FLOAT32, spillway.SUM, options=options)
            request.wait()
            report = request.report()
            told["crc"] = zlib.crc32(values.tobytes(), told["crc"])
            told["added"] += report.parts_added
            told["alone"] += report.parts_alone
            told["bytes"] += report.wire_bytes_sent
        told["error"] = largest_error(values, comm.world)
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
