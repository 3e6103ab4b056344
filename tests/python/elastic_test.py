#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that outlive their processes: spillway.torch.elastic with real processes that are killed.

    tests/python/elastic_test.py LIBRARY [unittest's arguments]

Without torch it skips: exit code 77.
"""
import functools
import unittest

from torch_ranks import prepare

from harness.forked_ranks import run_ranks

prepare()

import elastic_scenarios  # needs the path that prepare() sets

STEPS = 12


def run(processes, **keywords):
    return run_ranks(processes, elastic_scenarios.train, STEPS, *(keywords.get(name, default) for name, default in
                                                                  (("deaths", ()), ("arguments", None),
                                                                   ("codec", None), ("move", None))))


@functools.cache
def undisturbed(processes):
    """What rank 0 says of a job in which nothing happens."""
    return run(processes)[0]


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


def run_parts(processes, deaths=(), deaf=None):
    return run_ranks(processes, elastic_scenarios.train_in_parts, STEPS, list(deaths), processes - 4, deaf)


@functools.cache
def undisturbed_parts():
    return run_parts(4)


class ElasticParts(unittest.TestCase):
    """Ranks 0 and 2, and 1 and 3, have the same half of a model."""

    def check_like(self, said, plain):
        ended = {each["rank"]: each for each in said if each is not None and each.get("rank") is not None}
        self.assertEqual(sorted(ended), [0, 1, 2, 3], said)
        for rank, each in ended.items():
            self.assertEqual(each["parameters"], plain[rank]["parameters"], said)
            self.assertEqual(each["steps"], STEPS)
            self.assertEqual(each["places"], [rank % 2, rank // 2, 2, 2])
        self.assertNotEqual(ended[0]["parameters"], ended[1]["parameters"])

    def test_groups_follow_and_a_part_comes_from_who_has_it(self):
        said = run_parts(6, deaths=[(5, 3, 1), (8, 0, 2)])
        self.check_like(said, undisturbed_parts())
        self.assertEqual(said[1]["epoch"], 3)

    def test_who_had_its_gradients_takes_the_step_that_others_have_taken(self):
        said = run_parts(4, deaf=(2, 6))
        self.check_like(said, undisturbed_parts())
        self.assertEqual({each["epoch"] for each in said}, {2})
        self.assertEqual([each["bytes"] for each in said], [[0]] * 4)  # nobody had to be given anything

    def test_a_part_that_nobody_has_any_more_ends_the_job(self):
        said = run_parts(6, deaths=[(4, 1, 1), (4, 3, 1)])
        for rank in (0, 2):
            self.assertEqual(said[rank].get("type"), "JobEnded", said)
            self.assertIn("nobody has the state of ranks 1 and 3 any more", said[rank]["message"])
        self.assertEqual({said[rank].get("type") for rank in (4, 5)}, {"JobEnded"}, said)

    def test_groups_that_make_no_sense_are_refused(self):
        said = run_ranks(2, elastic_scenarios.refusals)
        for each in said:
            self.assertIn("each rank from 0 on", each[0])
            self.assertIn("names 4 ranks, and there are 2", each[1])
            self.assertIn("cannot shrink", each[2])
            self.assertIn("one of `groups`", each[3])


class ElasticGrowth(unittest.TestCase):
    def test_standbys_become_ranks_when_it_is_asked_to_grow(self):
        said = run(4, arguments={"standbys": 2}, move=(3, "grow 2"))
        ended = Elastic.check_ended(self, said, 4)
        self.assertEqual([each["rank"] for each in said], [0, 1, 2, 3])
        self.assertIn("the job grows by 2", ended[0]["why"][0])


if __name__ == "__main__":
    unittest.main()
