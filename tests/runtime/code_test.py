#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exact all-reduces of floats as values and as code, between processes: one result, over datagrams and over TCP.

    tests/runtime/code_test.py LIBRARY

Ranks are hosts on slow links, because code is tried only there. That needs root.
"""
import json
import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.namespaces import NetworkNamespaces, contain
from harness.processes import RankProcesses, python, run

WORLD = 2
ROUNDS = 10  # by then every way had its two stretches
RATE = 400_000_000
LEAST_SAVED = {"float32": 0.90, "bfloat16": 0.75, "float16": 0.95}


def slow_down(network):
    """False if this kernel cannot."""
    return all(run(["tc", "-n", network.names["switch"], "qdisc", "add", "dev", f"port{host}", "root", "tbf", "rate",
                    str(RATE), "burst", "64k", "latency", "20ms"]).returncode == 0 for host in range(network.hosts))


class Code(unittest.TestCase):
    library = None

    def run_ranks(self, network, carrier):
        command = python(HERE / "code_rank.py", self.library, ROUNDS)
        variables = {"SPILLWAY_LOCAL_COPY": "0", "SPILLWAY_CARRIER": carrier, "SPILLWAY_LINK_RATE": str(RATE)}
        with RankProcesses(WORLD, lambda rank: command, variables=variables, meeting=f"{network.address(0)}:5000",
                           prefix=network.enter) as ranks:
            said = []
            for process in ranks.processes:
                output, log = process.finish()
                self.assertIn("{", output, log)
                said.append(json.loads(output[output.index("{"):]))
        for each in said:
            self.assertNotIn("failure", each)
        return said

    def test_one_result_whatever_travels(self):
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        with NetworkNamespaces(WORLD) as network:
            if not slow_down(network):
                self.skipTest("this kernel has no token bucket")
            said = {carrier: self.run_ranks(network, carrier) for carrier in ("udp", "tcp")}
        for name, least in LEAST_SAVED.items():
            of_type = [each[name] for ranks in said.values() for each in ranks]
            self.assertEqual(len({found for each in of_type for found in each["hashes"]}), 1, name)
            for each in of_type:
                self.assertLess(each["least"] / each["most"], least, name)


if __name__ == "__main__":
    contain()
    Code.library = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
