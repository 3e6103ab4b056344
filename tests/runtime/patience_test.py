#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that is silent for longer than the usual peer timeout, as on a machine with too few processors: with
SPILLWAY_PEER_TIMEOUT the others wait for it; without, they name it and the variable.

    tests/runtime/patience_test.py LIBRARY
"""
import json
import pathlib
import signal
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.patience import Limit
from harness.processes import RankProcesses, python

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
WORLD = 2
PEER_FAILED = 5


def start(peer_timeout):
    """Starts ranks that reduce. None: the usual peer timeout."""
    return RankProcesses(WORLD, lambda rank: python(HERE / "reducing_rank.py", LIBRARY, 1),
                         variables={"SPILLWAY_PEER_TIMEOUT": peer_timeout})


def start_with_the_usual_timeout():
    """Restarts ranks that starved at their start and lost each other: the machine was too busy."""
    limit = Limit()
    while True:
        ranks = start(None)
        try:
            ranks.expect_line("ready")
            return ranks
        except AssertionError:
            ranks.__exit__()
            if limit.left() == 0:
                raise


class Patience(unittest.TestCase):
    NAMED = ("rank 1 is dead: nothing was heard from it for 1400 ms; if it lives but waits for a processor, set "
             "SPILLWAY_PEER_TIMEOUT to more seconds")

    def test_with_more_of_it_a_silent_rank_is_waited_for_without_it_is_named(self):
        """The patient job's rank is silent for as long as the usual job takes to give up: longer than the usual
        timeout, however busy the machine is. On a busy one the usual job may fail before its rank is stopped: another
        one then replaces it."""
        limit = Limit()
        with start("600") as patient:
            patient.expect_line("ready")
            said = self.stop_ranks(patient)
            while self.NAMED not in said["message"] and limit.left() > 0:
                said = self.stop_ranks(patient)
        self.assertEqual(said["status"], PEER_FAILED, said)
        self.assertIn(self.NAMED, said["message"])

    def stop_ranks(self, patient):
        """Returns the report of the usual job's rank 0. The patient job continues."""
        with start_with_the_usual_timeout() as usual:
            patient[1].send_signal(signal.SIGSTOP)
            usual[1].send_signal(signal.SIGSTOP)
            said = json.loads(usual[0].line())
        patient[1].send_signal(signal.SIGCONT)
        patient.send_signal(signal.SIGUSR1)  # makes them mark their output
        patient.expect_line("still reducing")
        return said

    def test_a_value_that_makes_no_sense_is_named(self):
        with RankProcesses(1, lambda rank: python(HERE / "reducing_rank.py", LIBRARY, 1),
                           variables={"SPILLWAY_PEER_TIMEOUT": "2s"}) as ranks:
            _, errors = ranks[0].finish()
            self.assertIn("SPILLWAY_PEER_TIMEOUT is '2s': it must be a number of seconds", errors)


if __name__ == "__main__":
    unittest.main()
