#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages for users if a job does not start: which ranks are missing or were started wrongly, and what rank 0 lacks.
Ranks are threads that share one of torch's stores.

    tests/python/start_test.py LIBRARY [unittest's arguments]

Skips without torch: exit code 77.
"""
import concurrent.futures
import datetime
import itertools
import os
import unittest
from unittest import mock

from torch_ranks import prepare

from harness.patience import HANGS_S

prepare()

import torch.distributed as dist

from spillway.errors import SpillwayError, Status
from spillway.torch import rendezvous
from spillway.torch.rendezvous import IdInStore, join_through_store, name_ranks, patience_for

HOUR = datetime.timedelta(hours=1)


def join(store, rank, world):
    """The raised error as text; None without one."""
    try:
        join_through_store(store, rank, world, HOUR, "test").close()
    except SpillwayError as error:
        return str(error)
    return None


def join_all(*seats, **environment):
    """The results of join() for each (rank, world)."""
    store = dist.HashStore()
    with mock.patch.dict(os.environ, environment), concurrent.futures.ThreadPoolExecutor(len(seats)) as threads:
        return [each.result() for each in [threads.submit(join, store, *seat) for seat in seats]]


def join_hastily(check, *seats):
    """Passes the ranks' errors to check() when their time to meet is over. Some may have waited for a processor until
    then: if the check fails, they meet again with twice the time."""
    timeout_s = 0.5
    while True:
        try:
            return check(join_all(*seats, SPILLWAY_RENDEZVOUS_TIMEOUT=f"{timeout_s:g}"))
        except AssertionError:
            timeout_s *= 2
            if timeout_s > HANGS_S:
                raise


class Start(unittest.TestCase):
    def test_all_who_were_started_well_meet_again_and_again(self):
        store = dist.HashStore()
        for _ in range(2):
            with concurrent.futures.ThreadPoolExecutor(3) as threads:
                self.assertEqual(list(threads.map(lambda rank: join(store, rank, 3), range(3))), [None] * 3)

    def test_a_rank_that_was_never_started_is_named_by_all_others(self):
        def check(all_said):
            for rank, said in enumerate(all_said):
                self.assertIn(f"rank {rank} of 3 cannot join its group: rank 2 of 3 did not come to", said)
                self.assertIn("SPILLWAY_RENDEZVOUS_TIMEOUT", said)

        join_hastily(check, (0, 3), (1, 3))

    def test_without_rank_0_the_others_say_who_has_not_come(self):
        def check(all_said):
            for rank, said in zip((1, 2), all_said):
                self.assertRegex(said, rf"^rank {rank} of 4 cannot join its group: after [\d.]+ s ranks 0 and 3 of 4 "
                                       "have not come")

        join_hastily(check, (1, 4), (2, 4))

    def test_numbers_of_ranks_that_differ_are_named(self):
        # In one process, the first thread that comes is the host.
        told = "rank 1 was told of 3 ranks and rank 0 of 2|rank 0 was told of 2 ranks and rank 1 of 3"

        def check(all_said):
            for said in all_said:
                self.assertRegex(said, told)

        join_hastily(check, (0, 2), (1, 3))

    def test_a_rank_that_is_there_twice_is_told(self):
        def check(said):
            self.assertIn("rank 2 of 3 did not come", said[0])
            self.assertTrue(any("rank 1 is here already: give every process a RANK of its own" in each
                                for each in said[1:]), said)

        join_hastily(check, (0, 3), (1, 3), (1, 3))

    def test_what_rank_0_lacks_is_told_to_all(self):
        said = join_all((0, 2), (1, 2), SPILLWAY_SOCKET_IFNAME="=nobodys")
        self.assertTrue(said[0].startswith("rank 0 of 2 cannot join its group: SPILLWAY_SOCKET_IFNAME is"), said[0])
        self.assertIn("rank 1 of 2 cannot join its group: rank 0 cannot make it: SPILLWAY_SOCKET_IFNAME is '=nobodys'",
                      said[1])
        self.assertIn("here there is lo", said[1])

    def test_a_store_that_is_gone_is_not_all_that_is_said(self):
        store = mock.Mock()
        store.add.side_effect = RuntimeError("Connection reset by peer")
        with self.assertRaisesRegex(SpillwayError, "rank 1 of 2 cannot join .* rank 0 or what started it has ended"):
            IdInStore(store, 1, 2, 1.0).fetch()

    def test_with_servers_the_environments_rank_must_be_torchs(self):
        with mock.patch.object(rendezvous, "Communicator") as made:
            made.return_value.rank, made.return_value.world = 0, 4
            with self.assertRaisesRegex(SpillwayError, "rank 1 of 2 cannot join .* the environment says rank 0 of 4"):
                rendezvous.join_with_servers(1, 2)
            made.return_value.close.assert_called_once_with()
            self.assertIs(rendezvous.join_with_servers(0, 4), made.return_value)

    def test_who_waits_says_so(self):
        seconds = itertools.count()  # each reading of the clock is one later
        with mock.patch.object(rendezvous, "time") as clock, self.assertLogs("spillway", "WARNING") as logged:
            clock.monotonic.side_effect = lambda: next(seconds)
            with self.assertRaises(SpillwayError) as caught:
                IdInStore(dist.HashStore(), 1, 2, 2 * rendezvous.FIRST_NOTICE_S).fetch()
        self.assertEqual(caught.exception.status, Status.UNAVAILABLE)
        self.assertIn("rank 1 of 2 waits for its group", logged.output[0])
        self.assertIn("rank 0 of 2 has not come", logged.output[0])

    def test_many_ranks_are_not_all_listed(self):
        self.assertEqual(name_ranks([3], 4), "rank 3 of 4")
        self.assertEqual(name_ranks(list(range(20)), 64),
                         "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more of 64")


class Patience(unittest.TestCase):
    def test_is_the_groups_unless_the_variable_says(self):
        self.assertEqual(patience_for(HOUR), HOUR)
        with mock.patch.dict(os.environ, {"SPILLWAY_RENDEZVOUS_TIMEOUT": "2.5"}):
            self.assertEqual(patience_for(HOUR), datetime.timedelta(seconds=2.5))

    def test_a_variable_that_makes_no_sense_is_named(self):
        for text in ("soon", "0", "nan", "1e9"):
            with mock.patch.dict(os.environ, {"SPILLWAY_RENDEZVOUS_TIMEOUT": text}), \
                    self.assertRaisesRegex(ValueError, f"SPILLWAY_RENDEZVOUS_TIMEOUT is '{text}': it must be a number"):
                patience_for(HOUR)


if __name__ == "__main__":
    unittest.main()
