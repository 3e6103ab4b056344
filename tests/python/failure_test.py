#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Errors for users of the PyTorch backend when a rank dies or calls something else: a SpillwayError that names the
rank and the cause, raised by the call that they made.

    tests/python/failure_test.py LIBRARY [unittest's arguments]

Skips without torch: exit code 77.
"""
import re
import unittest

from torch_ranks import prepare

from harness.forked_ranks import run_ranks
from harness.patience import Limit

WORLD = 3
PEER_FAILED, MISMATCH, TIMED_OUT = 5, 6, 7

prepare()

import failure_scenarios  # needs the path that prepare() sets


def said_in(scenario, *arguments):
    """Each rank's report; None for one that was killed."""
    return run_ranks(WORLD, failure_scenarios.run, scenario, *arguments)


class Failures(unittest.TestCase):
    def check(self, said, rank, status, *words):
        self.assertIsNotNone(said, f"rank {rank} ended without a word")
        self.assertEqual((said["type"], said.get("status")), ("SpillwayError", status), said)
        for word in (f"rank {rank} of {WORLD}", *words):
            self.assertIn(word, said["message"])

    def check_survivors(self, scenario, *words):
        said = said_in(scenario)
        self.assertIsNone(said[1])
        for rank in (0, 2):
            self.check(said[rank], rank, PEER_FAILED, "rank 1 ", *words)

    def test_a_dead_rank_is_named_by_the_call_that_waits(self):
        self.check_survivors("all_reduces", "all_reduce at")

    def test_a_dead_rank_is_named_by_backward(self):
        self.check_survivors("backward")

    def test_a_dead_rank_is_named_by_backward_with_the_hook(self):
        self.check_survivors("backward_with_hook")

    def test_a_future_raises_what_happened(self):
        said = said_in("futures")
        for rank in (0, 2):
            self.assertIn("rank 1 ", said[rank]["message"])

    def check_calls(self, scenario, *words):
        """Every rank learns what two ranks called."""
        for rank, said in enumerate(said_in(scenario)):
            self.check(said, rank, MISMATCH, "all ranks must call the same operations", *words)

    def test_sizes_that_differ_are_named(self):
        for rank, said in enumerate(said_in("sizes_that_differ")):
            self.check(said, rank, MISMATCH)
            calls = re.findall(r"all_reduce of (\d+) float32 \(sum\)", said["message"])
            self.assertEqual(len(set(calls) & {"1000", "1001", "1002"}), 2, said)

    def test_operations_that_differ_are_named(self):
        self.check_calls("operations_that_differ", "barrier", "all_reduce of 10 float32 (sum)", "rank 1")

    def test_reductions_that_differ_are_named(self):
        self.check_calls("reductions_that_differ", "all_reduce of 10 uint8 (bit_xor)",
                         "all_reduce of 10 uint8 (product)", "rank 1")

    def test_roots_that_differ_are_named(self):
        self.check_calls("roots_that_differ", "broadcast of 10 float32, root 1", "broadcast of 10 float32, root 0")

    def test_a_send_that_is_not_what_its_receive_takes_is_named(self):
        self.check_calls("types_that_differ",
                         "receive of 10 uint8, tag 3 at rank 0, but at rank 1 it is send of 10 int8, tag 3")

    def test_a_barrier_ends_after_its_timeout_and_names_who_is_missing(self):
        """If ranks wait for a processor for longer than the timeout, it is doubled."""
        for scenario in ("a_barrier_that_some_miss", "a_monitored_barrier_that_some_miss"):
            limit, timeout_s = Limit(), 0.2
            while True:
                said = said_in(scenario, timeout_s)
                try:
                    self.check_missing(said, timeout_s)
                    break
                except AssertionError:
                    if limit.left() == 0:
                        raise
                timeout_s *= 2

    def check_missing(self, said, timeout_s):
        self.check(said[0], 0, TIMED_OUT, "barrier at", f"after {timeout_s:g} s", "waits for rank 1, 2")
        for rank in (1, 2):
            self.check(said[rank], rank, TIMED_OUT, "rank 1 was waited for too long, says rank ")

    def test_codecs_that_differ_are_named(self):
        for rank, said in enumerate(said_in("codecs_that_differ")):
            self.check(said, rank, MISMATCH, "all_reduce of 100000 float32 (sum)", "loss bound")

    def test_a_codec_that_there_is_not_is_said_before_ranks_meet(self):
        for said in said_in("a_codec_that_there_is_not"):
            self.assertEqual(said["type"], "ValueError")
            self.assertIn("SPILLWAY_CODEC is 'sloppy': it must be exact, planes", said["message"])

    def test_a_dead_rank_of_a_sub_group_has_its_number_in_the_job(self):
        said = said_in("a_sub_group")
        self.assertIsNone(said[0]["type"])
        self.assertIn("rank 0 ", said[2]["message"])
        self.assertIn("are the job's 1, 2", said[2]["message"])


if __name__ == "__main__":
    unittest.main()
