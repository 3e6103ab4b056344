#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of code_test.py: all-reduces the same floats of three types again and again, exactly, while the library tries
its ways. Prints one line of JSON: hashes of all results by type, and the least and most bytes that an operation of the
type sent; or the error.

    tests/runtime/code_rank.py LIBRARY ROUNDS
"""
import array
import ctypes
import hashlib
import json
import random
import sys

import spillway_ctypes as sw

BYTES = 6 << 20  # so that a stretch of a trial has one operation of each type
PERIOD = 4096    # values that are drawn
# Quiet and signalling NaNs, infinities, negative zero, a denormal number.
SPECIAL = {"f": (0x7FC00001, 0xFF812345, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001),
           "H": (0x7FC1, 0xFF91, 0x7F80, 0xFF80, 0x8000, 0x0001)}


def bits_of(value):
    return array.array("I", array.array("f", [value]).tobytes())[0]


def values(seed, code):
    """A buffer of BYTES of float32 ("f"), or of 16-bit floats ("H"): the upper halves of float32."""
    draw = random.Random(seed)
    drawn = array.array("I", [bits_of(draw.gauss(0, 1)) for _ in range(PERIOD)])
    for i, bits in enumerate(SPECIAL[code]):
        drawn[50 + 11 * i] = bits if code == "f" else bits << 16
    if code == "H":
        drawn = array.array("H", [bits >> 16 for bits in drawn])
    period = drawn.tobytes()
    return (ctypes.c_uint8 * BYTES).from_buffer_copy(period * (BYTES // len(period)))


def main():
    library = sw.Library(sys.argv[1])
    types = {"float32": (sw.FLOAT32, "f"), "bfloat16": (sw.BFLOAT16, "H"), "float16": (sw.FLOAT16, "H")}
    said = {name: {"hashes": [], "sent": []} for name in types}
    try:
        comm = sw.Communicator(library)
        inputs = {name: values(comm.rank, code) for name, (_, code) in types.items()}
        output = (ctypes.c_uint8 * BYTES)()
        for _ in range(int(sys.argv[2])):
            for name, (kind, code) in types.items():
                count = BYTES // (4 if code == "f" else 2)
                request = comm.start("all_reduce", inputs[name], output, count, kind, sw.SUM)
                assert request.wait()
                said[name]["hashes"].append(hashlib.sha256(bytes(output)).hexdigest())
                said[name]["sent"].append(request.report().wire_bytes_sent)
        print(json.dumps({name: {"hashes": sorted(set(each["hashes"])), "least": min(each["sent"]),
                                 "most": max(each["sent"])} for name, each in said.items()}), flush=True)
        comm.close()
    except sw.SpillwayError as failure:
        print(json.dumps({"status": failure.status, "failure": str(failure)}), flush=True)


if __name__ == "__main__":
    main()
