#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packets over TCP: by choice, with the same bits as over UDP; and automatically, if the network drops UDP.

    tests/runtime/carrier_test.py LIBRARY

Ranks are processes on loopback that share no memory (carrier_rank.py), or, as root, hosts around a switch that drops
every datagram.
"""
import json
import os
import pathlib
import re
import signal
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.namespaces import NetworkNamespaces, contain
from harness.patience import slowest
from harness.processes import RankProcesses, python, run

PEER_FAILED = 5
# Classic BPF: pass frames that are not IPv4, among them ARP's, whose bytes could look like UDP. Load the IP protocol; if it
# is UDP, drop the frame; otherwise pass it.
DROP_UDP = "6,40 0 0 12,21 0 3 2048,48 0 0 23,21 0 1 17,6 0 0 2,6 0 0 0"


def drop_udp(network):
    """False if this kernel has no such filter."""
    for host in range(network.hosts):
        for arguments in (["qdisc", "add", "dev", f"port{host}", "clsact"],
                          ["filter", "add", "dev", f"port{host}", "ingress", "bpf", "da", "bytecode", DROP_UDP]):
            if run(["tc", "-n", network.names["switch"], *arguments]).returncode != 0:
                return False
    return True


class Carrier(unittest.TestCase):
    library = None

    def start(self, world, script="carrier_rank.py", network=None, **variables):
        command = python(HERE / script, self.library, *([1] if script == "reducing_rank.py" else []))
        place = {"meeting": f"{network.address(0)}:5000", "prefix": network.enter} if network else {}
        return RankProcesses(world, lambda rank: command, variables={"SPILLWAY_LOCAL_COPY": "0", **variables}, **place)

    def outcomes(self, ranks):
        """The ranks' outputs and logs."""
        said = []
        for process in ranks.processes:
            output, log = process.finish()
            self.assertIn("{", output, log)
            said.append({**json.loads(output[output.index("{"):]), "log": log})
        return said

    def run_ranks(self, world, **environment):
        with self.start(world, **environment) as ranks:
            said = self.outcomes(ranks)
        for rank, each in enumerate(said):
            self.assertNotIn("failure", each, f"rank {rank}")
        return said

    def test_exact_sums_have_the_same_bits_over_tcp_and_udp(self):
        world = 3
        over = {carrier: self.run_ranks(world, SPILLWAY_CARRIER=carrier) for carrier in ("udp", "tcp")}
        self.assertEqual(len({each["exact"] for said in over.values() for each in said}), 1, over)
        for each in over["tcp"]:
            self.assertLess(each["error"], 1e-3)
            self.assertEqual(each["missing"], 0)

    def test_ranks_that_do_not_agree_are_told(self):
        by_rank = {0: "udp", 1: "tcp"}
        command = python(HERE / "carrier_rank.py", self.library)
        with RankProcesses(2, lambda rank: ["env", f"SPILLWAY_CARRIER={by_rank[rank]}", *command]) as ranks:
            for each in self.outcomes(ranks):
                self.assertRegex(each.get("failure", ""), "rank 0 .*=udp.* rank 1 .*=tcp.*the same everywhere")

    def test_a_rank_that_is_killed_is_named(self):
        with self.start(3, "reducing_rank.py", SPILLWAY_CARRIER="tcp") as ranks:
            ranks.expect_line("ready")
            ranks[1].send_signal(signal.SIGKILL)
            for rank in (0, 2):
                output, log = ranks[rank].finish()
                said = json.loads(output[output.index("{"):])
                self.assertEqual(said["status"], PEER_FAILED, log)
                self.assertRegex(said["message"], r"rank 1\b")

    def test_where_udp_is_blocked_ranks_go_over_to_tcp(self):
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        with NetworkNamespaces(2) as network:
            if not drop_udp(network):
                self.skipTest("this kernel has no filter that drops datagrams")
            said = self.run_ranks(2, network=network)
            self.assertEqual(said[0]["exact"], said[1]["exact"])
            for each in said:
                self.assertEqual(len(re.findall("UDP does not get through", each["log"])), 1, each["log"])
            began = time.monotonic()
            # Even with a short timeout, no rank is blamed wrongly: nothing gets through.
            with self.start(2, network=network, SPILLWAY_CARRIER="udp",
                            SPILLWAY_PEER_TIMEOUT=f"{0.5 * slowest():.1f}") as ranks:
                outcomes = self.outcomes(ranks)
            print(f"over UDP alone, after {time.monotonic() - began:.1f} s: {outcomes[0].get('failure')}")
            self.assertTrue(any("see that UDP goes" in each.get("failure", "") for each in outcomes), outcomes)


if __name__ == "__main__":
    contain()
    Carrier.library = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
