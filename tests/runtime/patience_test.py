#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that gives no sign of life for longer than the usual peer timeout, as on a machine with too few processors:
with SPILLWAY_PEER_TIMEOUT the others wait for it, without they name it and the variable.

    tests/runtime/patience_test.py LIBRARY
"""
import json
import os
import pathlib
import signal
import sys
import time
import unittest
from unittest import mock

from rank_processes import RankProcesses, python

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
RANK = pathlib.Path(__file__).resolve().parent / "reducing_rank.py"
WORLD = 2
SILENCE_S = 2.5  # the usual timeout is 1.4 s
PEER_FAILED = 5


def line_of(process):
    return process.stdout.readline()


def start(**environment):
    with mock.patch.dict(os.environ, environment):
        ranks = RankProcesses(WORLD, lambda rank: python(RANK, LIBRARY, 1))
    for rank in range(WORLD):
        if line_of(ranks[rank]) != "ready\n":
            raise AssertionError(ranks[rank].communicate())
    return ranks


def be_silent(process):
    process.send_signal(signal.SIGSTOP)
    time.sleep(SILENCE_S)
    process.send_signal(signal.SIGCONT)


class Patience(unittest.TestCase):
    def test_with_more_of_it_a_silent_rank_is_waited_for(self):
        with start(SPILLWAY_PEER_TIMEOUT="60") as ranks:
            be_silent(ranks[1])
            for rank in range(WORLD):
                ranks[rank].send_signal(signal.SIGUSR1)  # a mark in what it prints
            self.assertEqual([line_of(ranks[rank]) for rank in range(WORLD)], ["still reducing\n"] * WORLD)

    def test_without_the_others_name_it_and_what_to_set(self):
        with start() as ranks:
            be_silent(ranks[1])
            said = json.loads(line_of(ranks[0]))
            self.assertEqual(said["status"], PEER_FAILED, said)
            self.assertIn("rank 1 is dead: nothing was heard from it for 1400 ms; if it lives but waits for a "
                          "processor, set SPILLWAY_PEER_TIMEOUT to more seconds", said["message"])

    def test_a_value_that_makes_no_sense_is_named(self):
        with mock.patch.dict(os.environ, {"SPILLWAY_PEER_TIMEOUT": "2s"}), \
                RankProcesses(1, lambda rank: python(RANK, LIBRARY, 1)) as ranks:
            _, errors = ranks[0].communicate(timeout=30)
            self.assertIn("SPILLWAY_PEER_TIMEOUT is '2s': it must be a number of seconds", errors)


if __name__ == "__main__":
    unittest.main()
