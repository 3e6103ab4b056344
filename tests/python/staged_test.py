#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A script as a few real ranks of a staged world (spillway emulate stage); staged_program.py is the script.

    tests/python/staged_test.py LIBRARY TOOL [unittest's arguments]

Skips without torch: exit code 77.
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

from torch_ranks import HERE, PACKAGE, prepare

from harness.patience import Limit, slowest
from harness.processes import python, run

TOOL = str(pathlib.Path(sys.argv.pop(2)).resolve())
PROGRAM = HERE / "staged_program.py"

prepare()


def stage(what, world, real, *options):
    """Its output and exit code."""
    ranks = ",".join(map(str, real))
    ended = run([TOOL, "emulate", "stage", "--world", world, "--real", ranks, *options, "--", *python(PROGRAM, what)],
                env={**os.environ, "PYTHONPATH": str(PACKAGE), "STAGED_REAL": ranks})
    return ended.stdout + ended.stderr, ended.returncode


def least(measure, most):
    """Repeats measure() until it returns at most `most`, or the limit is over: a busy machine wakes ranks too late,
    never too early."""
    limit = Limit()
    while (measured := measure()) > most and limit.left() > 0:
        pass
    return measured


class Staged(unittest.TestCase):
    def test_groups_objects_and_training_work_at_the_size_of_the_world(self):
        self.assertLessEqual(least(self.all_reduce_ms, 200), 200 * slowest())

    def all_reduce_ms(self):
        """The time of the slower real rank, in a world without faults."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "report.json"
            said, code = stage("all", 64, [5, 6], "--rate", "1gbit", "--report", str(file))
            self.assertEqual(code, 0, said)
            report = json.loads(file.read_text())
        weights, times = set(), []
        for rank in (5, 6):
            found = re.search(rf"rank {rank} of 64: fine, weights (\S+), all-reduce (\S+) ms", said)
            self.assertIsNotNone(found, said)
            weights.add(found[1])
            times.append(float(found[2]))
        # 4 MB among 64 ranks at 1 Gb/s: 2 x 63/64 x 4 MB at 94 % of it take 67 ms; two real ones alone need 1 ms.
        self.assertGreaterEqual(min(times), 60, said)
        self.assertEqual(len(weights), 1, "real ranks train one model")
        self.assertEqual((report["world"], report["real"], report["failures"]), (64, [5, 6], 0))
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [5, 6])
        self.assertGreater(report["messages"], 0)
        return max(times)

    def test_one_real_rank_is_enough_and_eight_thousand_are_not_too_many(self):
        said, code = stage("read", 8192, [4097])
        self.assertEqual(code, 0, said)
        self.assertIn("rank 4097 goes one way", said)
        place = re.search(r"staged_program.py:\d+: item\(\) looks at a result that virtual ranks had a part in "
                          r"\(all_reduce 0 of group '0' at rank 4097, called at \S+staged_program.py:\d+\)", said)
        self.assertIsNotNone(place, said)

    def test_strict_ends_a_run_that_looks_at_values_of_virtual_ranks(self):
        said, code = stage("read", 4, [1], "--strict")
        self.assertEqual(code, 1, said)
        self.assertIn("SpillwayError", said)
        self.assertNotIn("goes one way", said)

    def test_ranks_that_call_different_things_are_named(self):
        said, code = stage("differ", 8, [2, 3])
        self.assertEqual(code, 1, said)
        self.assertIn("rank 2 calls all-reduce of 40 bytes", said)
        self.assertIn("rank 3 calls all-reduce of 80 bytes", said)

    def test_who_died_is_named(self):
        said, code = stage("die", 8, [2, 3])
        self.assertEqual(code, 1, said)
        self.assertRegex(said, "rank 3 has died|rank 3 .*has left|rank 1 of 2")

    def test_a_slow_virtual_rank_holds_the_real_ones_up(self):
        self.assertLessEqual(least(self.step_over_computing, 2.5), 2.5)

    def step_over_computing(self):
        said, code = stage("slow", 8, [2], "--slow", "5=1.5")
        self.assertEqual(code, 0, said)
        ratio = float(re.search(r"rank 2 took at least (\S+) times what it computed", said)[1])
        self.assertGreaterEqual(ratio, 1.4, said)
        return ratio

    def test_real_ranks_hold_what_the_library_would_for_the_others(self):
        peaks = {}
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "table.json"
            table.write_text(json.dumps({"table": 1, "rows": [], "memory": {"real": [2], "bytes": 64 << 20}}))
            for real in ([2], [3]):  # measured for rank 2, so it does not apply to rank 3
                said, code = stage("memory", 8, real, "--table", str(table))
                self.assertEqual(code, 0, said)
                peaks[real[0]] = int(re.search(rf"rank {real[0]} has (\d+) KiB", said)[1]) / 1024
                self.assertEqual("each real rank held 64.0 MiB" in said, real == [2], said)
        self.assertTrue(56 <= peaks[2] - peaks[3] <= 72, peaks)


if __name__ == "__main__":
    unittest.main()
