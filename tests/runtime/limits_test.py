#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks on a machine without threads or memory left for them: they get an error with a message, and the process
lives.

    tests/runtime/limits_test.py LIBRARY
"""
import ctypes
import json
import os
import pathlib
import resource
import sys
import unittest

THIS = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(THIS.parents[1]))

import spillway_ctypes as sw
from harness.processes import RankProcesses, python, rank_environment, run

NOBODY = 65534
COUNT = 48 << 20
SPARE_BYTES = 16 << 20


def tell(**what):
    print(json.dumps(what), flush=True)


def say_how_it_fails(call):
    """Reports the error of a call that must fail in a process that must survive it."""
    try:
        call()
        tell(status=0, message="")
    except sw.SpillwayError as error:
        tell(status=int(error.status), message=str(error))


def without_threads(library):
    if os.geteuid() == 0:  # such limits do not apply to root
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    say_how_it_fails(lambda: sw.Communicator(library))


def address_space():
    pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def without_memory(library):
    buffer = (ctypes.c_float * COUNT)()
    comm = sw.Communicator(library)
    small = (ctypes.c_float * 4)()
    comm.start("all_reduce", small, small, 4, sw.FLOAT32, sw.SUM).wait()
    if comm.rank == 0:
        limit = address_space() + SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    options = comm.options()
    options.tolerant = 1
    options.feedback_tensor = 1  # its residual is kept: as much memory again
    say_how_it_fails(
        lambda: comm.start("all_reduce", buffer, buffer, COUNT, sw.FLOAT32, sw.SUM, options=options).wait())
    comm.close()


CASES = {"threads": without_threads, "memory": without_memory}


def outcome(output):
    return json.loads(output[output.index("{"):])


class Limits(unittest.TestCase):
    library = None

    def test_without_a_thread_there_is_no_communicator_but_a_sentence(self):
        for threads in ("0", "2"):
            with self.subTest(threads=threads):
                environment = rank_environment(0, 1, "127.0.0.1:5000", True, {"SPILLWAY_THREADS": threads})
                done = run(python(THIS, self.library, "threads"), env=environment)
                self.assertEqual(done.returncode, 0, done)
                said = outcome(done.stdout)
                self.assertEqual(said["status"], sw.UNAVAILABLE, said)
                self.assertIn("cannot make the thread that", said["message"])
                self.assertIn("ulimit -u", said["message"])

    def test_without_memory_an_operation_fails_everywhere_and_no_process_ends(self):
        with RankProcesses(2, lambda rank: python(THIS, self.library, "memory")) as ranks:
            broken, other = (outcome(output) for output in ranks.finish())
        self.assertEqual(broken["status"], sw.LIMIT_EXCEEDED, broken)
        self.assertIn("memory", broken["message"])
        self.assertEqual(other["status"], sw.PEER_FAILED, other)
        self.assertIn("rank 0 failed", other["message"])


if __name__ == "__main__":
    Limits.library = pathlib.Path(sys.argv.pop(1)).resolve()
    if sys.argv[1:] and sys.argv[1] in CASES:
        CASES[sys.argv[1]](sw.Library(str(Limits.library)))
    else:
        unittest.main()
