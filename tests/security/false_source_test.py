#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A ticket holder that takes over a source of state: it joins a job that trains, moves itself into rank 0's place with
`spillway job remove --keep`, and sends the process that it evicted a program instead of the state. The program is not run.

    tests/security/false_source_test.py TOOL LIBRARY [unittest's arguments]

Skips without torch: exit code 77.
"""
import os
import pathlib
import pickle
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "python")]

from torch_ranks import prepare

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
prepare()

import elastic_scenarios  # needs the path that prepare() sets
from harness.forked_ranks import ForkedRanks
from harness.processes import environment_with, run
from harness.watched_job import WatchedJob

WORLD = 3
STEPS = 1_000_000  # the job ends before


class Program:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


class AFalseSource(WatchedJob, unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.ticket_file = self.folder / "ticket"

    def tool(self, *arguments):
        return run([TOOL, "job", *arguments], env=environment_with({"SPILLWAY_JOB_FILE": self.ticket_file}))

    def said(self):
        return ""

    def move(self, rank):
        moved = self.tool("remove", str(rank), "--keep")
        self.assertEqual(moved.returncode, 0, moved.stderr)

    def test_a_program_in_place_of_the_state_is_not_run(self):
        trace = self.folder / "ran"
        program = pickle.dumps(Program(str(trace)))
        pickle.loads(program).close()
        self.assertTrue(trace.exists(), "the program works")
        trace.unlink()
        os.environ["SPILLWAY_JOB_FILE"] = str(self.ticket_file)
        self.addCleanup(os.environ.pop, "SPILLWAY_JOB_FILE")
        with ForkedRanks(WORLD, elastic_scenarios.train, STEPS) as ranks:
            began = self.wait_for(lambda status: status["step"] > 3)
            evicted = began["members"][0]["id"]
            ticket = self.ticket_file.read_text(encoding="ascii").strip()
            with ForkedRanks(1, elastic_scenarios.join, ticket, STEPS, program) as attacker:
                self.wait_for(lambda status: len(status["members"]) == WORLD + 1)
                self.move(0)
                moved = self.wait_for(lambda status: status["epoch"] == 2 and status["step"] > began["step"])
                ids = {each["rank"]: each["id"] for each in moved["members"]}
                self.assertNotIn(ids[0], [each["id"] for each in began["members"]], "the attacker is rank 0")
                self.assertEqual(ids[None], evicted)
                self.move(1)  # the evicted process takes this place, and needs the state
                said = ranks.finish()
                attacker.finish()
        self.assertIn("no description of a state", said[0]["message"])
        self.assertFalse(trace.exists())


if __name__ == "__main__":
    unittest.main()
