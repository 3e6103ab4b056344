#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduces among hosts that hold several ranks, over real sockets and shared memory.

    tests/lab/hosts_test.py PATH_TO_SPILLWAY
"""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.processes import environment_with, run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
RANK = pathlib.Path(__file__).resolve().parent / "several_ranks.py"
COUNT = 1_000_000


def lab(*arguments, command=("true",)):
    return run([TOOL, "lab", "run", "--json", "--allow-late", "--hosts", "2", *arguments, "--", *command],
               env=environment_with())


def can_isolate():
    return lab("--isolation", "user").returncode == 0 or lab("--isolation", "root").returncode == 0


class Hosts(unittest.TestCase):
    def run_ranks(self, per_host, codec):
        """The reports of the ranks, by rank, and the bytes that the switch sent to the busiest host."""
        done = lab("--rate", "250mbit", "--delay", "10us", "--ranks-per-host", str(per_host),
                   command=("python3", RANK, str(COUNT), "2", codec))
        self.assertEqual(done.returncode, 0, done.stderr)
        told = [json.loads(line.split(" ", 1)[1]) for line in done.stderr.splitlines()
                if line.startswith("[") and line.endswith("}")]
        self.assertEqual(len({rank["crc"] for rank in told}), 1, told)
        self.assertLess(max(rank["error"] for rank in told), 1e-2)
        ports = json.loads(done.stdout)["fabric"]["ports"]
        return sorted(told, key=lambda rank: rank["rank"]), max(port["sent_bytes"] for port in ports)

    @unittest.skipUnless(can_isolate(), "hosts need network namespaces")
    def test_a_link_carries_the_tensor_once_however_many_ranks_its_host_holds(self):
        for codec in ("exact", "planes", "entropy"):
            with self.subTest(codec):
                _, alone = self.run_ranks(1, codec)
                told, bytes_of_two = self.run_ranks(2, codec)
                self.assertEqual([(rank["local_rank"], rank["node_rank"]) for rank in told],
                                 [(0, 0), (1, 0), (0, 1), (1, 1)])
                self.assertEqual({rank["local_world_size"] for rank in told}, {2})
                self.assertEqual({rank["algorithm"] for rank in told}, {"hierarchical"})
                # A direct exchange would carry half as much again, exact, and twice as much, coded.
                self.assertLess(bytes_of_two, 1.25 * alone)

    def test_several_ranks_need_namespaces(self):
        done = lab("--isolation", "none", "--ranks-per-host", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("several ranks on a host need hosts with namespaces of their own", done.stderr)


if __name__ == "__main__":
    unittest.main()
