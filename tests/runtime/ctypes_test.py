#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C interface of communicators from Python, as an adapter would use it: ranks are processes on loopback that load
the library with ctypes. ctypes_rank.py has their code.

    tests/runtime/ctypes_test.py LIBRARY
"""
import json
import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import ctypes_rank
from harness.processes import RankProcesses, free_port, python

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
WORLD = 3


class Ctypes(unittest.TestCase):
    """The same ranks go through all scenarios: starting them takes longer than the scenarios do."""

    @classmethod
    def setUpClass(cls):
        meetings = [f"127.0.0.1:{free_port()}" for _ in ctypes_rank.SCENARIOS]
        command = python(HERE / "ctypes_rank.py", LIBRARY, *meetings)
        with RankProcesses(WORLD, lambda rank: command) as ranks:
            outputs = [process.finish() for process in ranks.processes]
        cls.faults, cls.errors = {}, [errors for _, errors in outputs]
        for rank, (output, _) in enumerate(outputs):
            for line in output.splitlines():
                told = json.loads(line)
                cls.faults[told["scenario"], rank] = told["fault"]


def add_test(scenario):
    def test(self):
        for rank in range(WORLD):
            fault = self.faults.get((scenario.__name__, rank), f"it did not get so far: {self.errors[rank]}")
            self.assertEqual(fault, "", f"rank {rank}: {fault}")

    setattr(Ctypes, f"test_{scenario.__name__}", test)


for each in ctypes_rank.SCENARIOS:
    add_test(each)

if __name__ == "__main__":
    os.environ["SPILLWAY_SOCKET_IFNAME"] = "=lo"  # for the ids that ranks make
    unittest.main()
