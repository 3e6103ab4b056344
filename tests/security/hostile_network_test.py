#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks in a network that lies to them or drops their packets.

    tests/security/hostile_network_test.py LIBRARY

Hosts are network namespaces, which need root; skips without it: exit code 77. A third host forges ICMP messages about
their datagrams and sends its own: the job continues and counts them. A link that drops long packets, and an interface
whose MTU is lowered, are named.
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
RUNTIME = HERE.parent / "runtime"
sys.path.insert(0, str(HERE.parent))

from harness.metrics import disbelieved, metrics_in
from harness.namespaces import NetworkNamespaces, contain, ip
from harness.patience import wait_until
from harness.processes import RankProcesses, python, run

SKIPPED = 77
WORLD = 2
ATTACKER = WORLD
METRICS_PORT = 6000
TIMED_OUT = 7


def udp_ports(network, host):
    """Ports that processes of the host have bound to its address."""
    listed = run([*network.enter(host), "cat", "/proc/net/udp"], check=True)
    address = "".join(f"{int(part):02X}" for part in reversed(network.address(host).split(".")))
    return [int(port, 16) for port in re.findall(rf"\b{address}:([0-9A-F]{{4}})\b", listed.stdout)]


def attack(network, victim):
    peer = 1 - victim
    ports = [",".join(map(str, udp_ports(network, host))) for host in (victim, peer)]
    run([*network.enter(ATTACKER), *python(HERE / "forged_packets.py", network.address(victim), network.address(peer),
                                           *ports)], check=True)


def believed_mtu(network, host, peer):
    """The path MTU that the kernel believes; None if it was told none."""
    route = run(["ip", "-n", network.names[host], "route", "get", network.address(peer)], check=True)
    found = re.search(r"mtu (\d+)", route.stdout)
    return int(found[1]) if found else None


class HostileNetwork(unittest.TestCase):
    library = None

    def start(self, network, port=5000, **variables):
        command = python(RUNTIME / "reducing_rank.py", self.library, 1)
        return RankProcesses(WORLD, lambda rank: command, f"{network.address(0)}:{port}", network.enter,
                             variables=variables)

    def assert_still_reducing(self, ranks):
        ranks.send_signal(signal.SIGUSR1)
        ranks.expect_line("still reducing")

    def have_counted(self, network):
        """True if every rank has counted something of each kind."""
        counts = [disbelieved(text) for text in
                  metrics_in(METRICS_PORT, [network.names[rank] for rank in range(WORLD)])]
        return all(of_rank[reason] > 0 for of_rank in counts for reason in ("stranger", "forged_refusal", "icmp"))

    def test_forged_messages_change_nothing_and_are_counted(self):
        with NetworkNamespaces(WORLD + 1) as network, \
                self.start(network, SPILLWAY_METRICS_LISTEN=METRICS_PORT) as ranks:
            ranks.expect_line("ready")
            for victim in range(WORLD):
                attack(network, victim)
            self.assertEqual(believed_mtu(network, 0, 1), 600)  # the kernel believed it
            self.assert_still_reducing(ranks)
            wait_until(lambda: self.have_counted(network), "counts of all that was sent")
            self.assert_still_reducing(ranks)
            with self.start(network, port=5001) as later:  # nor does a job that starts now believe it
                later.expect_line("ready")

    def outcome(self, process):
        output, errors = process.finish()
        self.assertIn("{", output, errors)
        return json.loads(output[output.index("{"):])

    def check_both_named(self, ranks, began):
        """Whichever notices first tells the other, which then reports just that."""
        for rank in range(WORLD):
            said = self.outcome(ranks[rank])
            self.assertEqual(said["status"], TIMED_OUT, said)
            self.assertRegex(said["message"], rf"rank {1 - rank}\b")
            print(f"rank {rank}, after {said['at'] - began:.1f} s: {said['message']}")

    def test_links_and_interfaces_that_take_no_long_packets_are_named(self):
        """A link that drops them, and an interface whose MTU is lowered: two jobs at once, because both take time."""
        with NetworkNamespaces(WORLD, splits_bursts=True) as swallowing, NetworkNamespaces(WORLD) as lowered, \
                self.start(swallowing) as swallowed, self.start(lowered) as refused:
            swallowed.expect_line("ready")
            refused.expect_line("ready")
            began = time.monotonic()
            ip("-n", swallowing.names["switch"], "link", "set", "port1", "mtu", "900")
            ip("-n", lowered.names[0], "link", "set", "eth0", "mtu", "900")
            self.check_both_named(swallowed, began)
            self.check_both_named(refused, began)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        sys.exit(SKIPPED)
    contain()
    HostileNetwork.library = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
