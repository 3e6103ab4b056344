#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A member with a vote that lies to a running job (false_voter.py). The job continues in one view with right sums, or
ends at every member with a sentence that says why. It is never split and never appears to be done.

    tests/security/voter_attacks_test.py TOOL LIBRARY [unittest's arguments]
"""
import json
import pathlib
import re
import struct
import sys
import unittest
from typing import Callable, NamedTuple, Optional

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from attacked_job import WORLD, Attack
from false_member import ADMITTED, LOST, text
from false_voter import (ALIVE, DONE, HALT, JOB_DONE, LAST_ROUND, LEAVE, REFUSED, STRAGGLING, SUSPECT, VERDICT,
                         FalseVoter, ballot)
from harness.namespaces import contain
from harness.patience import patience, wait_until
from harness.tiers import TierLoader, long_tier

ADMITTED_IN = 2  # the epoch
PEER_TIMEOUT_S = 15  # on a quiet machine


# ---- Lies ----

def halves(voter):
    """By member: the half of the job that it is in. Each has a rank with the state."""
    ranks, standbys = voter.decision.ranks, [each for each in voter.decision.standbys if each != voter.id]
    one, other = (ranks[0], *standbys), ranks[1:]
    return {member: half for half in (one, other) for member in half}


def splits_with_handles_of_its_own_drive(voter):
    """Each half could train: it has the state, and the handles are those that its members have just sent."""
    half_of = halves(voter)

    def choose(member):
        half = half_of[member]
        step = max(voter.parked[each].step for each in half)
        return voter.next(ranks=half, standbys=(voter.id,), step=step,
                          sources=tuple(at for at, each in enumerate(half) if voter.parked[each].step == step),
                          handles=tuple(voter.parked[each].handle for each in half))

    voter.drive(choose)


def drives_a_change_that_nobody_asked_for(voter):
    """The same for all, with its ranks in the opposite order."""
    ranks = voter.decision.ranks[::-1]

    def choose(_):
        step = max(voter.parked[each].step for each in ranks)
        return voter.next(ranks=ranks, step=step,
                          sources=tuple(at for at, each in enumerate(ranks) if voter.parked[each].step == step),
                          handles=tuple(voter.parked[each].handle for each in ranks))

    voter.drive(choose)


def sends_each_its_own_verdict(voter):
    for member in voter.others:
        voter.tell(member, VERDICT, voter.next(ranks=(member, voter.id), standbys=(), sources=(0,),
                                               handles=voter.decision.handles[:2]).bytes())


def sends_half_of_them_another_verdict(voter):
    for at, member in enumerate(voter.others):
        decision = voter.next(step=voter.decision.step + at % 2)
        voter.tell(member, VERDICT, decision.bytes())


def skips_epochs(voter):
    for at, member in enumerate(voter.others):
        voter.tell(member, VERDICT, voter.next()._replace(epoch=100 + at).bytes())


def sends_one_a_wrong_fingerprint(voter):
    voter.follow(voter.decision, voter.others[0], offset=1)


def claims_to_have_accepted_an_end(voter):
    voter.claimed = ballot(LAST_ROUND - 1, voter.index), voter.next().ended("the false voter says so")


def claims_that_the_job_is_done(voter):
    for member in voter.others:
        voter.tell(member, DONE, struct.pack("<I", voter.decision.epoch))
    for member in voter.others[::2]:
        voter.tell(member, LEAVE, struct.pack("<I", voter.decision.epoch + 1) + text(JOB_DONE))
    for member in voter.others[1::2]:
        voter.tell(member, VERDICT, voter.next().ended(JOB_DONE).bytes())


def accuses_everybody(voter):
    epoch = voter.decision.epoch
    for member in voter.others:
        for cause in range(3):
            voter.tell_all(SUSPECT, struct.pack("<IQB", epoch, member, cause))
    for rank in range(len(voter.decision.ranks)):
        voter.tell_all(STRAGGLING, struct.pack("<III", epoch, rank, 9000))
    for each in (0, 1, epoch - 1, epoch + 1, 2**32 - 1):
        voter.tell_all(ALIVE, struct.pack("<IQqQB", each, 0, 2**63 - 1, 2**64 - 1, 1))
    voter.tell_all(REFUSED, struct.pack("<IQ", epoch, ballot(LAST_ROUND - 1, 0)))


def halts_and_hangs_up(voter):
    voter.tell_all(HALT, struct.pack("<IQBQ", voter.decision.epoch, ballot(LAST_ROUND - 1, voter.index), 0, 0)
                   + text("a lie"))
    voter.hang_up()


class Lie(NamedTuple):
    tell: Callable
    ends: Optional[str] = None  # a pattern in the sentence with which the job ends at every member; None: it goes on
    epoch: int = ADMITTED_IN  # in which it goes on
    move: bool = False  # the lie is told in a change that a member asks for
    is_long: bool = False
    makes_up_places: bool = False  # a rank may end because it has no socket at the place that it is given


NO_PLACE = "SpillwayError: this slot does not belong to that rank, or is used up"
SPLIT = "members follow different decisions about epoch 3: one of them is broken or lies"
LIES = (
    Lie(splits_with_handles_of_its_own_drive, SPLIT),
    Lie(sends_each_its_own_verdict, SPLIT, is_long=True, makes_up_places=True),
    Lie(sends_half_of_them_another_verdict, SPLIT, makes_up_places=True),
    Lie(skips_epochs, "names a decision about epoch 10. that has a place for this process"),
    Lie(sends_one_a_wrong_fingerprint, SPLIT.replace("epoch 3", "epoch 2")),
    Lie(claims_to_have_accepted_an_end, "the false voter says so", move=True),
    Lie(claims_that_the_job_is_done, "|".join(("as if it were done, and it is not", SPLIT))),
    Lie(drives_a_change_that_nobody_asked_for, epoch=ADMITTED_IN + 1),
    Lie(accuses_everybody, is_long=True),
    Lie(halts_and_hangs_up, epoch=ADMITTED_IN + 1),
)


class AFalseVoter(Attack):
    def voter(self):
        """A false member that a change has admitted."""
        voter = self.enterContext(self.false_member(FalseVoter))
        self.wait_for(lambda status: len(status["members"]) == WORLD + 1)
        said = self.tool("remove", "1", "--keep")
        self.assertEqual(said.returncode, 0, said.stderr)
        wait_until(lambda: voter.is_admitted or voter.trouble, "that the job admits a newcomer")
        self.assertIsNone(voter.trouble)
        self.assertEqual(voter.decision.epoch, ADMITTED_IN)
        self.assertIn(voter.id, voter.decision.standbys)
        self.check_goes_on(ADMITTED_IN)
        return voter

    def tell(self, lie):
        # A rank that is dismissed while it connects to another one waits for that one.
        self.start_job(SPILLWAY_PEER_TIMEOUT=round(patience(PEER_TIMEOUT_S)))
        voter = self.voter()
        voter.lie(lie.tell)
        if lie.move:
            self.tool("remove", "2", "--keep")
        if lie.ends is None:
            self.check_is_one_job(voter, lie.epoch)
            self.hang_up(voter)
            self.check_ends_well()
        else:
            self.check_ends_everywhere(lie)
        self.assertIsNone(voter.trouble)

    def hang_up(self, voter):
        """It would withhold a member's request to end."""
        if voter.streams:
            voter.lie(FalseVoter.hang_up)
            for member in voter.addresses:
                wait_until(lambda: voter.impersonate(voter.identity, member, ADMITTED) == LOST,
                           "that a member has lost the liar")

    def status_of(self, voter, member):
        """The job's state as this member says."""
        nonce = self.ticket().rsplit("/", 1)[1]
        asked = self.tool("status", "--json", "--ticket", f"{voter.addresses[member]}/{nonce}")
        self.assertEqual(asked.returncode, 0, asked.stderr + self.said())
        return json.loads(asked.stdout)

    def check_is_one_job(self, voter, epoch):
        """Checks that all honest members follow one view of this epoch, and that its ranks add up steps."""
        def one_view():
            said = [self.status_of(voter, each) for each in voter.addresses]
            views = {(each["epoch"], *sorted((member["rank"], member["id"]) for member in each["members"]
                                             if member["rank"] is not None)) for each in said}
            return len(views) == 1 and said[0]["epoch"] == epoch

        wait_until(one_view, "that all members follow one view")
        self.check_goes_on(epoch)
        begun = re.findall(rf"epoch {epoch}: rank (\d) of (\d)", self.said())
        self.assertEqual(sorted(begun), [(str(rank), "3") for rank in range(3)])

    def check_ends_everywhere(self, lie):
        for rank, process in enumerate(self.job.processes):
            wait_until(lambda: process.poll() is not None, f"that process {rank} ends")
            last = (self.folder / f"log{rank}").read_text(encoding="utf-8").splitlines()[-1]
            if lie.makes_up_places and last.endswith(NO_PLACE):
                self.assertEqual(process.poll(), 1, self.said())
            else:
                self.assertEqual(process.poll(), 0, self.said())
                self.assertRegex(last, f"^ended: .*(?:{lie.ends})", self.said())


def add_test(lie):
    def test(self):
        self.tell(lie)

    setattr(AFalseVoter, f"test_{lie.tell.__name__}", long_tier(test) if lie.is_long else test)


for each in LIES:
    add_test(each)


if __name__ == "__main__":
    contain()
    del sys.argv[1:3]
    unittest.main(testLoader=TierLoader())
