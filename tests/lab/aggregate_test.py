#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduces through a lab's switch that adds, in the kernel if this machine supports it.

    tests/lab/aggregate_test.py PATH_TO_SPILLWAY

Results must be the same bits as without such a switch, and links to owners must carry less.
"""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import Limit
from harness.processes import environment_with, run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
RANK = pathlib.Path(__file__).resolve().parent / "summing_rank.py"
COUNT = 400_000


def lab(*arguments, command=("true",)):
    return run([TOOL, "lab", "run", "--json", "--allow-late", *arguments, "--", *command], env=environment_with())


def can_isolate():
    return lab("--hosts", "2", "--isolation", "root").returncode == 0


@unittest.skipUnless(can_isolate(), "network namespaces need root")
class Aggregate(unittest.TestCase):
    def run_ranks(self, *arguments, code="blocks"):
        """The lab's report, and each rank's."""
        done = lab("--rate", "250mbit", "--delay", "10us", *arguments, command=("python3", RANK, str(COUNT), "2", code))
        self.assertEqual(done.returncode, 0, done.stderr)
        told = [json.loads(line.split(" ", 1)[1]) for line in done.stderr.splitlines() if line.startswith("[")
                and line.endswith("}")]
        self.assertEqual(len({rank["crc"] for rank in told}), 1, told)
        self.assertLess(max(rank["error"] for rank in told), 1e-4)
        return json.loads(done.stdout), told, done.stderr

    def check_adder(self, outcome):
        adder = outcome["fabric"]["adders"][0]
        self.assertEqual(len(adder["jobs"]), 1, adder)
        job = adder["jobs"][0]
        self.assertGreater(job["packets"]["adds"], 0, job)
        self.assertGreater(job["packets"]["emits"], 0, job)

    def sent_bytes(self, outcome):
        """Bytes over all links to owners, which are all hosts."""
        return sum(port["sent_bytes"] for port in outcome["fabric"]["ports"])

    def test_four_hosts_through_the_switch_in_the_kernel(self):
        """Every run has the right sums, and the switch adds. On a busy machine a part may come to the switch when the
        others have left it, so only one run must add most parts and make links carry less."""
        plain, told, _ = self.run_ranks("--hosts", "4")
        limit = Limit()
        while True:
            adding, added, complaints = self.run_ranks("--hosts", "4", "--aggregate")
            if "fabric runs in user space" not in complaints:  # which names the reason
                self.assertEqual(adding["dataplane"], "bpf")
            self.assertEqual(told[0]["crc"], added[0]["crc"])
            self.check_adder(adding)
            are_most_added = sum(rank["added"] for rank in added) > sum(rank["alone"] for rank in added)
            # To an owner: one sum of three parts, and three results as before. That is four sixths, plus repairs.
            share = self.sent_bytes(adding) / self.sent_bytes(plain)
            if are_most_added and share < 0.8:
                return
            self.assertGreater(limit.left(), 0, f"{share:.2f} of the bytes; {added}")

    def test_the_kernel_says_that_it_has_one_level(self):
        two_levels = ("--hosts", "4", "--fabric", "leaf-spine", "--leaves", "2", "--spines", "1", "--aggregate")
        done = lab(*two_levels)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["dataplane"], "user")
        self.assertRegex(done.stderr, "(?m)^spillway: sums are added in user space: a topology of 3 switches")
        refused = lab(*two_levels, "--dataplane", "bpf")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("a topology of 3 switches: the switch in the kernel has no such thing", refused.stderr)

    def test_a_job_may_not_ask_for_more_than_there_is(self):
        done = lab("--aggregate", "--set", "aggregate.slots=64", "--set", "aggregate.limits=7:100")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "job 7 may hold 100 slots, but there are 64: raise slots=")


if __name__ == "__main__":
    unittest.main()
