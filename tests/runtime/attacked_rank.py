#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that all-reduces and checks every result to the last bit, until it is told that it is enough.

    tests/runtime/attacked_rank.py LIBRARY

Writes "ready" when its first operations have ended. On SIGUSR1 it writes "still reducing" as soon as further ones
have; on SIGTERM all ranks end together, and each says how many results it checked.
"""
import array
import ctypes
import signal
import sys

import spillway_ctypes as sw

SIZES = (1, 997, 20_000, 60_000)
PERIOD = 997
WARM_UP = 3  # rounds


def values(rank, number, count):
    """Small whole numbers: sums of them are exact. Different at every rank, place and time."""
    period = array.array("f", ((31 * place + number) % PERIOD + rank for place in range(PERIOD)))
    return (period * (count // PERIOD + 1))[:count]


def expected(world, number, count):
    period = array.array("f", (world * ((31 * place + number) % PERIOD) + sum(range(world)) for place in range(PERIOD)))
    return (period * (count // PERIOD + 1))[:count]


def start(comm, number, count):
    numbers = values(comm.rank, number, count)
    buffer = (ctypes.c_float * count).from_buffer(numbers)
    return numbers, comm.start("all_reduce", buffer, buffer, count, sw.FLOAT32, sw.SUM)


def reduce_once(comm, number):
    pending = [start(comm, number + i, count) for i, count in enumerate(SIZES)]
    for i, (numbers, request) in enumerate(pending):
        request.wait()
        if numbers != expected(comm.world, number + i, len(numbers)):
            raise AssertionError(f"result {number + i} is wrong")


def all_say_enough(comm, enough):
    vote = (ctypes.c_int32 * 1)(int(enough))
    comm.run("all_reduce", vote, vote, 1, sw.INT32, sw.MAX)
    return vote[0] == 1


def main():
    asked, told = [], []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    comm = sw.Communicator(sw.Library(sys.argv[1]))
    rounds, due = 0, None
    while not all_say_enough(comm, bool(told)):
        reduce_once(comm, rounds * len(SIZES))
        rounds += 1
        if rounds == WARM_UP:
            print("ready", flush=True)
        if asked and due is None:
            due = rounds + WARM_UP
        if due is not None and rounds >= due:
            print("still reducing", flush=True)
            asked.clear()
            due = None
    print(f"{rounds * len(SIZES)} results were right", flush=True)
    comm.close()


if __name__ == "__main__":
    main()
