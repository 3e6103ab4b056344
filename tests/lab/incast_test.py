#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Spillway's messages and TCP over an emulated network, with and without root, and over the relay.

  tests/lab/incast_test.py BINARY
"""

import json
import os
import pathlib
import shutil
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import Limit, wait_until
from harness.processes import Started, environment_with, run

SPILLWAY = ""
SCENARIO = pathlib.Path(__file__).resolve().parents[2] / "experiments/incast_lab/incast.scn"
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def bench(*arguments, before=()):
    # --allow-late: a busy machine is not a failure of the tool.
    command = [*before, SPILLWAY, "bench", "incast", "--scenario", str(SCENARIO), "--allow-late", "--json", *arguments]
    return run(command, env=environment_with())


class Incast(unittest.TestCase):
    def check(self, done, rounds):
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        ours = result["protocols"][0]
        self.assertEqual(ours["protocol"], "spillway")
        self.assertEqual(ours["messages"], 3 * rounds)
        self.assertEqual(ours["beyond_bound"], 0)
        # No faster than the link, by whole packets. How much slower depends on the machine; sim/claims_test.cc has
        # an incast that keeps the link full, in virtual time.
        self.assertGreater(ours["p50_of_ideal"], 0.9)
        return result

    def test_beside_tcp(self):
        """A run that stalls takes many times as long as TCP does. On a busy machine one of the two may get less
        processor time, so only one run must be free of stalls."""
        limit = Limit()
        while True:
            result = self.check(bench("--rounds", "4", "--protocols", "spillway,cubic"), 4)
            self.assertEqual([row["protocol"] for row in result["protocols"]], ["spillway", "cubic"])
            ours, tcp = (row["p50_of_ideal"] for row in result["protocols"])
            self.assertGreater(tcp, 1.0)
            self.assertGreater(result["simulated"]["p50_of_ideal"], 0.9)
            if ours < 5 * tcp:
                return
            self.assertGreater(limit.left(), 0, f"{ours:.1f} times the link's own time, TCP {tcp:.1f}")

    def test_over_the_fabric_in_user_space(self):
        self.check(bench("--rounds", "4", "--protocols", "spillway", "--dataplane", "user"), 4)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_sending_too_much_is_trimmed(self):
        """Through the kernel switch if this build has one; no message beyond its bound. How near the share comes to
        its target depends here on when senders get a processor; sim/claims_test.cc compares them."""
        done = bench("--rounds", "6", "--protocols", "spillway", "--set", "job.trimmed-target=20%",
                     "--set", "switch.early-drop=0", "--set", "switch.control-queue=64k")
        ours = self.check(done, 6)["protocols"][0]
        self.assertGreater(ours["trimmed"], 0)
        self.assertLess(ours["trimmed"], ours["packets"])

    def test_with_loss_every_message_keeps_its_bound(self):
        done = bench("--rounds", "4", "--protocols", "spillway", "--loss", "5%")
        result = self.check(done, 4)
        ours = result["protocols"][0]
        self.assertLessEqual(ours["missing"], 0.01 * ours["packets"])

    def test_over_ipv4_with_jumbo_frames(self):
        done = bench("--rounds", "3", "--protocols", "spillway", "--mtu", "9000",
                     "--set", "job.packet=8972", "--set", "switch.trim=0")
        result = self.check(done, 3)
        self.assertLess(result["protocols"][0]["packets"], 3 * 3 * 600)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
    def test_without_root(self):
        self.check(bench("--rounds", "2", "--protocols", "spillway", before=NOBODY), 2)

    def test_over_the_relay(self):
        done = bench("--rounds", "2", "--protocols", "spillway", "--isolation", "none")
        self.check(done, 2)
        self.assertIn("only Spillway's packets cross", done.stderr)

    def test_unknown_congestion_control(self):
        done = bench("--protocols", "nosuch")
        self.assertEqual(done.returncode, 2)
        self.assertIn("tcp_available_congestion_control", done.stderr)

    def test_a_host_that_dies_is_named(self):
        """A rank is killed in the middle of a round: the others name it, and nothing is left."""
        command = [SPILLWAY, "bench", "incast", "--scenario", str(SCENARIO), "--rounds", "1000", "--allow-late",
                   "--protocols", "spillway"]
        lab = Started(command, self, env=environment_with())
        victim = wait_until(lambda: self.find_rank("2") or lab.poll() is not None, "the rank")
        wait_until(lambda: self.sent_bytes(victim) > 1 << 20 or lab.poll() is not None, "a rank that sends")
        os.kill(victim, signal.SIGKILL)
        _, errors = lab.finish()
        self.assertNotEqual(lab.returncode, 0)
        self.assertIn("rank 2", errors)

    @staticmethod
    def find_rank(rank):
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"--as-rank" in words and f"RANK={rank}".encode() in variables:
                return int(entry.name)
        return None

    @staticmethod
    def sent_bytes(process):
        """Bytes sent by all interfaces of the process's network namespace."""
        rows = pathlib.Path(f"/proc/{process}/net/dev").read_text(encoding="ascii").splitlines()[2:]
        return sum(int(row.split(":")[1].split()[8]) for row in rows)


if __name__ == "__main__":
    SPILLWAY = sys.argv.pop(1)
    unittest.main(verbosity=2)
