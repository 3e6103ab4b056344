#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of run.py's late ranks: runs steps of a tolerant all-reduce and stops one rank at random steps.

    late_rank.py LIBRARY STEPS COUNT LEAST_CONTRIBUTORS PAUSE_MS COMPUTE_MS

Prints, as JSON, the rank, the milliseconds of every step, and how often each rank was late.
"""
import ctypes
import json
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/runtime"))
import spillway_ctypes as sw  # noqa: E402

PAUSE_EVERY = 40  # steps, on average


def stop_myself(milliseconds):
    """Stops the whole process with all its threads, as if the machine were busy with something else."""
    parent = os.getpid()
    if os.fork() == 0:
        os.kill(parent, signal.SIGSTOP)
        time.sleep(milliseconds / 1000)
        os.kill(parent, signal.SIGCONT)
        os._exit(0)


def main():
    library = sw.Library(sys.argv[1])
    steps, count, least, pause = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
    compute = int(sys.argv[6]) / 1000
    comm = sw.Communicator(library)
    options = library.options()
    options.tolerant, options.least_contributors = 1, least
    buffer = (ctypes.c_float * count)(*[1.0] * 1)
    chance = random.Random(7)
    times, late, paused = [], [0] * comm.world, []
    for step in range(steps):
        draw, victim = chance.random(), chance.randrange(comm.world)
        if pause and step > 20 and draw < 1 / PAUSE_EVERY and victim == comm.rank:
            stop_myself(pause)
            paused.append(step)
        started = time.monotonic()
        time.sleep(compute)  # stands for an accelerator's work
        request = comm.start("all_reduce", buffer, buffer, count, sw.FLOAT32, sw.AVERAGE, options=options)
        assert request.wait()
        times.append((time.monotonic() - started) * 1000)
        for peer, report in enumerate(request.report().peers):
            late[peer] += report.late
    print(json.dumps({"rank": comm.rank, "times": times, "late": late, "paused": paused}), flush=True)


if __name__ == "__main__":
    main()
