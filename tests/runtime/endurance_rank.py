#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of endurance.py: a great many operations, several at once, each checked when it has ended.

    tests/runtime/endurance_rank.py LIBRARY OPERATIONS

Nearly all are small all-reduces. In between are barriers, messages around the ring, tolerant all-reduces and, now and
then, a large one. All buffers are made at the beginning, so memory that grows is the library's. Writes the number of
ended operations at every hundredth of all. At the end it waits for a line on its standard input before it closes its
communicator.
"""
import collections
import ctypes
import sys

import spillway_ctypes as sw

IN_FLIGHT = 16
SMALL = (1, 30, 200, 700)  # floats
TOLERANT = 3_000
LARGE = 1 << 20
TOLERATED = 0.2  # relative to a sum's value
FIRST_LARGE, LARGE_EVERY = 5, 10_000


def filled(count, value):
    return (ctypes.c_float * count)(*[value] * count)


class Work:
    """Buffers of the operations, with a place for each one under way."""

    def __init__(self, library, comm):
        self.comm = comm
        self.sum = comm.world * (comm.world + 1) / 2
        self.next, self.before = (comm.rank + 1) % comm.world, (comm.rank - 1) % comm.world
        own = float(comm.rank + 1)
        self.own = {count: filled(count, own) for count in (*SMALL, TOLERANT, LARGE)}
        self.places = [filled(TOLERANT, 0.0) for _ in range(IN_FLIGHT)]
        self.large = filled(LARGE, 0.0)
        self.options = library.options()
        self.options.tolerant, self.options.loss_bound_ppm = 1, 10_000

    def start(self, number):
        """Starts the operation of that number, the same at all ranks. Returns its requests, and the check of its
        result."""
        place = self.places[number % IN_FLIGHT]
        if number % LARGE_EVERY == FIRST_LARGE:
            return self.reduce(self.large, LARGE)
        if number % 100 == 50:
            return [self.comm.start("barrier")], lambda: True
        if number % 100 == 75:
            return self.reduce(place, TOLERANT, self.options)
        if number % 20 == 7:
            return self.ring(place)
        return self.reduce(place, SMALL[number % len(SMALL)])

    def reduce(self, place, count, options=None):
        place[0] = place[count - 1] = 0.0
        request = self.comm.start("all_reduce", self.own[count], place, count, sw.FLOAT32, sw.SUM, options=options)
        bound = self.sum * TOLERATED if options else 0.0
        return [request], lambda: all(abs(place[at] - self.sum) <= bound for at in (0, count - 1))

    def ring(self, place):
        count = SMALL[-1]
        place[0] = place[count - 1] = 0.0
        requests = [self.comm.start("receive", place, count, sw.FLOAT32, self.before),
                    self.comm.start("send", self.own[count], count, sw.FLOAT32, self.next)]
        return requests, lambda: place[0] == place[count - 1] == self.before + 1


def finish(under_way):
    number, requests, is_right = under_way.popleft()
    for request in requests:
        request.wait()
    if not is_right():
        raise AssertionError(f"operation {number} has a wrong result")


def main():
    library, operations = sw.Library(sys.argv[1]), int(sys.argv[2])
    comm = sw.Communicator(library)
    work = Work(library, comm)
    under_way = collections.deque()
    for number in range(operations):
        if len(under_way) == IN_FLIGHT:
            finish(under_way)
        under_way.append((number, *work.start(number)))
        if (number + 1) * 100 // operations > number * 100 // operations:
            print(number + 1, flush=True)
    while under_way:
        finish(under_way)
    comm.run("barrier")
    print("done", flush=True)
    sys.stdin.readline()
    comm.close()


if __name__ == "__main__":
    main()
