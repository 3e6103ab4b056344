#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks in a network that lies to them or swallows their packets.

    tests/runtime/hostile_network_test.py LIBRARY

Hosts are network namespaces, which needs root; without it skips: exit code 77. A third host forges ICMP messages about
their datagrams and sends some of its own: the job goes on and counts them. A link that takes no long packets, and an
interface whose MTU is lowered, are named.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from network_namespaces import NetworkNamespaces, ip
from rank_processes import RankProcesses, python

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
WORLD = 2
ATTACKER = WORLD
PATIENCE_S = 60  # of the test: whatever takes longer hangs
ROUNDS = 20
TIMED_OUT = 7


def udp_ports(network, host):
    """Those that processes of the host have bound to its address."""
    listed = subprocess.run([*network.enter(host), "cat", "/proc/net/udp"], capture_output=True, text=True, check=True)
    address = "".join(f"{int(part):02X}" for part in reversed(network.address(host).split(".")))
    return [int(port, 16) for port in re.findall(rf"\b{address}:([0-9A-F]{{4}})\b", listed.stdout)]


def attack(network, victim):
    peer = 1 - victim
    ports = [",".join(map(str, udp_ports(network, host))) for host in (victim, peer)]
    subprocess.run([*network.enter(ATTACKER), *python(HERE / "forged_packets.py", network.address(victim),
                                                      network.address(peer), *ports)], check=True)


def believed_mtu(network, host, peer):
    """Of the path, as the kernel has been told; none where nobody told it."""
    route = subprocess.run(["ip", "-n", network.names[host], "route", "get", network.address(peer)],
                           capture_output=True, text=True, check=True)
    found = re.search(r"mtu (\d+)", route.stdout)
    return int(found[1]) if found else None


class HostileNetwork(unittest.TestCase):
    library = None

    def start(self, network, port=5000, **environment):
        command = python(HERE / "reducing_rank.py", self.library, 1)
        with mock.patch.dict(os.environ, environment):
            return RankProcesses(WORLD, lambda rank: command, f"{network.address(0)}:{port}", network.enter)

    def wait_until_ready(self, ranks):
        for rank in range(WORLD):
            line = ranks[rank].stdout.readline()
            self.assertEqual(line, "ready\n", line)

    def assert_still_reducing(self, ranks):
        for rank in range(WORLD):
            ranks[rank].send_signal(signal.SIGUSR1)
        self.assertEqual([ranks[rank].stdout.readline() for rank in range(WORLD)], ["still reducing\n"] * WORLD)

    def counts(self, folder, rank):
        text = pathlib.Path(folder, f"{rank}.prom").read_text(encoding="utf-8")
        return {reason: int(count) for reason, count in
                re.findall(r'disbelieved_total{.*reason="(\w+)"} (\d+)', text)}

    def wait_for_counts(self, folder, rank):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            counts = self.counts(folder, rank)
            if all(counts.get(reason, 0) > 0 for reason in ("stranger", "forged_refusal", "icmp")):
                return
            time.sleep(0.5)
        self.fail(f"rank {rank} counted {self.counts(folder, rank)}")

    def test_forged_messages_change_nothing_and_are_counted(self):
        with NetworkNamespaces(WORLD + 1) as network, tempfile.TemporaryDirectory() as folder, \
                self.start(network, SPILLWAY_METRICS_FILE=f"{folder}/%r.prom", SPILLWAY_METRICS_SECONDS="1") as ranks:
            self.wait_until_ready(ranks)
            for _ in range(ROUNDS):
                for victim in range(WORLD):
                    attack(network, victim)
            self.assertEqual(believed_mtu(network, 0, 1), 600)  # the kernel was taken in
            self.assert_still_reducing(ranks)
            for rank in range(WORLD):
                self.wait_for_counts(folder, rank)
            self.assert_still_reducing(ranks)
            with self.start(network, port=5001) as later:  # nor does a job that begins now believe it
                self.wait_until_ready(later)

    def outcome(self, process):
        output, errors = process.communicate(timeout=PATIENCE_S)
        self.assertIn("{", output, errors)
        return json.loads(output[output.index("{"):])

    def check_both_named(self, ranks, began):
        """Whichever finds out first tells the other, which then says no more than that."""
        for rank in range(WORLD):
            said = self.outcome(ranks[rank])
            self.assertEqual(said["status"], TIMED_OUT, said)
            self.assertRegex(said["message"], rf"rank {1 - rank}\b")
            print(f"rank {rank}, after {said['at'] - began:.1f} s: {said['message']}")

    def test_a_link_that_swallows_long_packets_is_named(self):
        # Without GSO: a buffer of many datagrams passes a virtual link whatever its MTU.
        with NetworkNamespaces(WORLD) as network, self.start(network, SPILLWAY_GSO="0") as ranks:
            self.wait_until_ready(ranks)
            began = time.monotonic()
            ip("-n", network.names["switch"], "link", "set", "port1", "mtu", "900")
            self.check_both_named(ranks, began)

    def test_an_interface_whose_mtu_is_lowered_is_named(self):
        with NetworkNamespaces(WORLD) as network, self.start(network) as ranks:
            self.wait_until_ready(ranks)
            began = time.monotonic()
            ip("-n", network.names[0], "link", "set", "eth0", "mtu", "900")
            self.check_both_named(ranks, began)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        sys.exit(SKIPPED)
    HostileNetwork.library = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
