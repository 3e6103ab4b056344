#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C interface of communicators from Python, as an adapter would use it: ranks are processes on
loopback that load the library with ctypes. ctypes_rank.py says what they do.

    tests/runtime/ctypes_test.py LIBRARY
"""
import os
import pathlib
import sys
import unittest

import ctypes_rank
from rank_processes import RankProcesses, python

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
RANK = pathlib.Path(__file__).resolve().parent / "ctypes_rank.py"
WORLD = 3
PATIENCE_S = 30


class Ctypes(unittest.TestCase):
    pass


def add_test(scenario):
    def test(self):
        command = python(RANK, LIBRARY, scenario.__name__)
        with RankProcesses(WORLD, lambda rank: command) as ranks:
            ranks.finish(PATIENCE_S)

    setattr(Ctypes, f"test_{scenario.__name__}", test)


for each in ctypes_rank.SCENARIOS:
    add_test(each)

if __name__ == "__main__":
    os.environ["SPILLWAY_SOCKET_IFNAME"] = "=lo"  # of the ids that ranks make
    unittest.main()
