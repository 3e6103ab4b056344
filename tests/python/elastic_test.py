#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that outlive their processes: spillway.torch.elastic with real processes that are killed.

    tests/python/elastic_test.py LIBRARY [unittest's arguments]

Without torch it skips: exit code 77.
"""
import unittest

from torch_ranks import prepare, run_ranks

prepare()

import elastic_scenarios  # needs the path that prepare() sets

STEPS = 12


def run(processes, **keywords):
    return run_ranks(processes, elastic_scenarios.train, STEPS, *(keywords.get(name, default) for name, default in
                                                                  (("deaths", ()), ("arguments", None),
                                                                   ("codec", None), ("move", None))))


def undisturbed(processes, **keywords):
    return run(processes, **keywords)[0]


class Elastic(unittest.TestCase):
    def check_ended(self, said, world):
        """All ranks are there and agree."""
        ended = [each for each in said if each is not None and each.get("rank") is not None]
        self.assertEqual(sorted(each["rank"] for each in ended), list(range(world)), said)
        self.assertEqual({each["parameters"] for each in ended}, {ended[0]["parameters"]})
        self.assertEqual({(each["world"], each["steps"]) for each in ended}, {(world, STEPS)})
        for each in ended:
            self.assertEqual(each["sizes"], [each["rank"], world])
            self.assertEqual(each["tracked"], STEPS)  # buffers of lost steps are as they were before
        return ended

    def test_a_killed_rank_is_replaced_and_nobody_can_tell(self):
        plain = undisturbed(3)
        said = run(4, deaths=[(5, 1, 1)], arguments={"standbys": 1})
        ended = self.check_ended(said, 3)
        self.assertIsNone(said[1])
        self.assertEqual(said[3]["rank"], 1)
        self.assertTrue(said[3]["was_standby"])
        self.assertEqual(ended[0]["parameters"], plain["parameters"])
        self.assertIn("rank 1 is gone", said[0]["why"][0])
        self.assertEqual(said[0]["tries"]["5"], 2)
        for phase in ("interrupted", "parked", "decided", "connected", "state", "stepped"):
            self.assertIn(phase, said[0]["changes"][0])

    def test_the_first_rank_and_two_at_once_may_die(self):
        plain = undisturbed(4)
        said = run(7, deaths=[(3, 0, 1), (7, 1, 2), (7, 2, 2)], arguments={"standbys": 3})
        ended = self.check_ended(said, 4)
        self.assertEqual(ended[0]["parameters"], plain["parameters"])

    def test_a_rank_may_die_in_the_first_step(self):
        plain = undisturbed(3)
        ended = self.check_ended(run(4, deaths=[(0, 2, 1)], arguments={"standbys": 1}), 3)
        self.assertEqual(ended[0]["parameters"], plain["parameters"])

    def test_without_standbys_it_shrinks_if_it_may(self):
        said = run(3, deaths=[(4, 0, 1)], arguments={"shrink": True})
        ended = self.check_ended(said, 2)
        self.assertEqual({each["epoch"] for each in ended}, {2})

    def test_what_cannot_be_saved_ends_with_one_sentence(self):
        said = run(3, deaths=[(4, 1, 1)])
        for rank in (0, 2):
            self.assertEqual(said[rank]["type"], "JobEnded", said[rank])
            self.assertIn("rank 1 is gone", said[rank]["message"])
            self.assertIn("shrink", said[rank]["message"])

    def test_a_tolerant_hook_goes_on(self):
        said = run(4, deaths=[(6, 2, 1)], arguments={"standbys": 1}, codec={"precision": 8})
        self.check_ended(said, 3)

    def test_a_rank_is_moved_at_a_steps_edge(self):
        plain = undisturbed(3)
        said = run(4, arguments={"standbys": 1}, move=(3, "move 2"))
        ended = self.check_ended(said, 3)
        self.assertEqual(ended[0]["parameters"], plain["parameters"])
        self.assertEqual(said[3]["rank"], 2)
        self.assertIsNone(said[2]["rank"])

    def test_a_standby_that_is_not_needed_ends_with_the_job(self):
        said = run(4, arguments={"standbys": 1})
        self.check_ended(said, 3)
        self.assertEqual((said[3]["rank"], said[3].get("type")), (None, None), said[3])

    def test_more_standbys_than_processes_are_refused(self):
        for said in run(2, arguments={"standbys": 2}):
            self.assertIn("leave no rank", said["message"])


if __name__ == "__main__":
    unittest.main()
