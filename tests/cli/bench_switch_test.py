#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway bench switch` at small size: every fate occurs, and every forwarder forwards and adds.

    tests/cli/bench_switch_test.py PATH_TO_SPILLWAY
"""
import functools
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import Limit
from harness.processes import run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
# The tool's messages if this machine or build does not support it.
REFUSALS = ("CAP_BPF", "no eBPF programs", "network namespace", "Linux 5.18", "iproute2")
# Fates of sum packets that change a slot or the packet.
SLOT_CHANGES = ("sum: claim", "sum: add", "sum: emit", "sum: evict", "sum: pass, slot taken")


def bench(*arguments):
    return run([TOOL, "bench", "switch", "--rounds", "1", "--json", *arguments])


@functools.cache
def bench_programs():
    return bench("--part", "programs", "--single-runs", "100", "--repeats", "1000")


class BenchSwitch(unittest.TestCase):
    def measured(self, result):
        if result.returncode == 1 and any(word in result.stderr for word in REFUSALS):
            self.skipTest(result.stderr.strip())
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_programs_are_timed_by_what_becomes_of_the_frame(self):
        rows = self.measured(bench_programs())["programs"]
        fates = {(row["hook"], row["ip"], row["fate"]) for row in rows}
        for hook in ("XDP", "tc"):
            for ip in (4, 6):
                for fate in ("pass", "mark", "trim to 206", "trim to 256", "drop early", "drop, queues full"):
                    self.assertIn((hook, ip, fate), fates)
        self.assertEqual(len(fates), len(rows))
        for row in rows:
            self.assertGreater(row["single_run_ns"], 0, row)
            # Changed frames and slots cannot be reused; user space has fresh ones every time.
            is_changed = row["fate"].startswith(("mark", "trim", "fix-up of", *SLOT_CHANGES))
            self.assertEqual(row["repeated_ns"] is None, is_changed or row["hook"] == "user space", row)

    def test_sums_are_timed_by_what_their_slot_makes_of_them(self):
        rows = self.measured(bench_programs())["programs"]
        fates = {(row["hook"], row["fate"]) for row in rows}
        for hook in ("XDP", "tc", "user space"):
            for fate in (*SLOT_CHANGES, "sum: duplicate", "sum: pass, of another level", "data of a sum's size: pass"):
                self.assertIn((hook, fate), fates)

    def test_every_forwarder_forwards(self):
        """Each of them in at least one run: a user-space switch that gets no processor time loses all frames."""
        limit, forwarding = Limit(), set()
        while len(forwarding) < 8:
            rows = self.measured(bench("--part", "forwarding", "--frames", "3000"))["forwarding"]
            self.assertEqual(len(rows), 8)
            for row in rows:
                self.assertGreater(row["packets_per_s"], 0, row)
                if row["arrived_share"] > 0.5:
                    forwarding.add((row["forwarder"], row["frame_bytes"]))
            self.assertGreater(limit.left(), 0, f"{rows}; in some run: {forwarding}")

    def test_a_switch_adds_all_that_it_is_sent(self):
        """Each of them in at least one run, as above."""
        limit, taking = Limit(), set()
        while len(taking) < 4:
            rows = self.measured(bench("--part", "sums", "--frames", "7000"))["sums"]
            self.assertEqual([row["adds"] for row in rows], [False, True, False, True])
            for place, row in enumerate(rows):
                self.assertGreater(row["packets_per_s"], 0, row)
                if row["taken_share"] > 0.5:
                    taking.add(place)
            self.assertGreater(limit.left(), 0, f"{rows}; in some run: rows {taking}")

    def test_wrong_usage_exits_with_2(self):
        for arguments in (["--part", "x"], ["--rounds", "0"], ["--single-runs", "1000000"]):
            self.assertEqual(bench(*arguments).returncode, 2, arguments)

    def test_help_has_examples(self):
        result = run([TOOL, "bench", "switch", "--help"])
        self.assertIn("Examples", result.stdout)


if __name__ == "__main__":
    unittest.main()
