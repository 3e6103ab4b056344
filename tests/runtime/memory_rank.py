#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of memory_test.py: prints one line of JSON with its process's memory in KiB, and the number of segments,
other ranks' and its own, that it has mapped.

Other processes of its user may not inspect it, as on strict systems.

    tests/runtime/memory_rank.py LIBRARY OPERATIONS WARM_UP
"""
import ctypes
import json
import sys

import spillway_ctypes as sw

LARGE = 4 << 20  # floats: 16 MiB
PR_SET_DUMPABLE = 4


def resident_kib():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def segments(access):
    with open("/proc/self/maps", encoding="ascii") as maps:
        return sum("memfd:spillway-segment" in line and line.split()[1] == access for line in maps)


def all_reduce(comm, buffer, times):
    for _ in range(times):
        comm.run("all_reduce", buffer, buffer, len(buffer), sw.FLOAT32, sw.MAX)


def main():
    library, operations, warm_up = sw.Library(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    kib = {"before": resident_kib()}
    comm = sw.Communicator(library)
    small = (ctypes.c_float * 100)()
    all_reduce(comm, small, 1)
    kib["communicator"] = resident_kib()
    all_reduce(comm, small, warm_up)
    kib["warm"] = resident_kib()
    all_reduce(comm, small, operations)
    kib["all"] = resident_kib()
    large = (ctypes.c_float * LARGE)()
    ctypes.memset(large, 0, ctypes.sizeof(large))
    kib["buffer"] = resident_kib()
    all_reduce(comm, large, 2)
    kib["large"] = resident_kib()
    mapped = {"segments_read": segments("r--s"), "segments_written": segments("rw-s")}
    print(json.dumps(kib | mapped), flush=True)
    comm.close()


if __name__ == "__main__":
    main()
