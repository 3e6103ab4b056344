#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that all-reduces and checks every result, until it is told to end.

    tests/security/attacked_rank.py LIBRARY [CODE]

CODE is "exact", which is checked to the last bit, or one of the library's codes, which is checked against its error
without loss: loss_bound is 0.

Writes "ready" when its first operations have ended. On SIGUSR1 it writes "still reducing" as soon as further ones
have; on SIGTERM all ranks end together, and each reports how many results it checked.
"""
import array
import ctypes
import math
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime"))

import spillway_ctypes as sw

SIZES = (1, 997, 20_000, 60_000)
PERIOD = 997
WARM_UP = 3  # rounds
# By code: bits, and a result's largest relative error. One forged packet among the fifty of a tensor would be an
# error of about 0.1.
PRECISIONS = {"planes": 16, "levels": 8, "blocks": 16, "entropy": 12, "sketch": 12}
MOST_ERROR = {"planes": 1e-3, "levels": 0.05, "blocks": 1e-3, "entropy": 5e-3, "sketch": 5e-3}
ADDED_BY_SWITCHES = ("levels", "blocks")


def values(rank, number, count):
    """Small whole numbers, whose sums are exact. Different at every rank, place and time."""
    period = array.array("f", ((31 * place + number) % PERIOD + rank for place in range(PERIOD)))
    return (period * (count // PERIOD + 1))[:count]


def expected(world, number, count):
    period = array.array("f", (world * ((31 * place + number) % PERIOD) + sum(range(world)) for place in range(PERIOD)))
    return (period * (count // PERIOD + 1))[:count]


def options_for(library, code, count):
    if code == "exact":
        return library.options()
    algorithm = "switch" if code in ADDED_BY_SWITCHES else "auto"
    return library.tolerant_options(
        loss_bound=0, precision=PRECISIONS[code], codec=sw.CODECS.index(code), algorithm=sw.ALGORITHMS.index(algorithm),
        feedback_tensor=count if code == "sketch" else 0)


def check(numbers, truth, code, number):
    if code == "exact":
        is_right, off = numbers == truth, ""
    else:
        error = math.dist(numbers, truth) / math.hypot(*truth)
        is_right, off = error <= MOST_ERROR[code], f" by {error:.2g} of its size"
    if not is_right:
        raise AssertionError(f"result {number} is wrong{off}")


def start(comm, options, number, count):
    numbers = values(comm.rank, number, count)
    buffer = (ctypes.c_float * count).from_buffer(numbers)
    return numbers, comm.start("all_reduce", buffer, buffer, count, sw.FLOAT32, sw.SUM, options=options)


def reduce_once(comm, code, options, number):
    pending = [start(comm, options[count], number + i, count) for i, count in enumerate(SIZES)]
    for i, (numbers, request) in enumerate(pending):
        request.wait()
        check(numbers, expected(comm.world, number + i, len(numbers)), code, number + i)


def all_say_enough(comm, enough):
    vote = (ctypes.c_int32 * 1)(int(enough))
    comm.run("all_reduce", vote, vote, 1, sw.INT32, sw.MAX)
    return vote[0] == 1


def reduce_until_told(comm, reduce_round):
    """Calls reduce_round(number) until SIGTERM; returns the number of calls. All ranks of the communicator end
    together."""
    asked, told = [], []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    rounds, due = 0, None
    while not all_say_enough(comm, bool(told)):
        reduce_round(rounds)
        rounds += 1
        if rounds == WARM_UP:
            print("ready", flush=True)
        if asked and due is None:
            due = rounds + WARM_UP
        if due is not None and rounds >= due:
            print("still reducing", flush=True)
            asked.clear()
            due = None
    return rounds


def main():
    library = sw.Library(sys.argv[1])
    code = sys.argv[2] if len(sys.argv) > 2 else "exact"
    options = {count: options_for(library, code, count) for count in SIZES}
    comm = sw.Communicator(library)
    rounds = reduce_until_told(comm, lambda number: reduce_once(comm, code, options, number * len(SIZES)))
    print(f"{rounds * len(SIZES)} results were right", flush=True)
    comm.close()


if __name__ == "__main__":
    main()
