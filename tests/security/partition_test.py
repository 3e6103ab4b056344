#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parts of a partition of a job with a secret and encryption, with every packet captured: one part ignores the
other's packets, and no keystream repeats.

    tests/security/partition_test.py LIBRARY

Hosts are network namespaces, which need root; skips without it: exit code 77.
"""
import collections
import os
import pathlib
import signal
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.metrics import disbelieved, metrics_in
from harness.namespaces import NetworkNamespaces, contain
from harness.patience import wait_until
from harness.processes import RankProcesses, python
from hostile_host import Wiretap

SKIPPED = 77
WORLD = 4
METRICS_PORT = 6000
DATA_HEARD = 150  # data packets per direction within the parts
REPLAYED = 100
LEAST_SHARE = 0.5  # of packets sent that arrive: a rank may lack room for some

# Values, then offsets in a packet and sizes (docs/wire.md).
BYTES, ENCRYPTED = 0x49, 0x01
FLAGS, PACKET, NUMBER, HEADER, SIGNATURE, CHECK = 1, 10, 16, 24, 8, 8
BLOCK = 16  # of the cipher


def contents(payload):
    """The first packet of a message says its signature."""
    is_first = payload[PACKET:PACKET + 2] == bytes(2)
    return payload[HEADER + (SIGNATURE if is_first else 0) + CHECK:]


class Partition(unittest.TestCase):
    library = None

    def setUp(self):
        self.network = self.enterContext(NetworkNamespaces(WORLD, splits_bursts=True))
        self.tap = self.enterContext(Wiretap(self.network, range(WORLD)))
        self.addresses = [self.network.address(rank) for rank in range(WORLD)]
        folder = self.enterContext(tempfile.TemporaryDirectory())
        secret = pathlib.Path(folder, "secret")
        secret.touch(mode=0o600)
        secret.write_text("a secret of this job, drawn for it", encoding="utf-8")
        self.ranks = self.enterContext(RankProcesses(
            WORLD, lambda rank: python(HERE / "partition_rank.py", self.library), f"{self.addresses[0]}:5000",
            self.network.enter,
            variables={"SPILLWAY_SECRET_FILE": secret, "SPILLWAY_ENCRYPT": "1",
                       "SPILLWAY_METRICS_LISTEN": METRICS_PORT}))
        self.ranks.expect_line("ready")

    def partner(self, address):
        return self.addresses[self.addresses.index(address) ^ 1]

    def hear(self, count):
        """`count` encrypted data packets per direction within both parts, by source."""
        heard = collections.defaultdict(list)
        for one in self.tap.hear():
            payload = one.payload
            if payload[0] == BYTES and one.destination == self.partner(one.source):
                self.assertTrue(payload[FLAGS] & ENCRYPTED)
                heard[one.source].append(one)
            if len(heard) == WORLD and all(len(each) >= count for each in heard.values()):
                return {source: each[:count] for source, each in heard.items()}

    def check_still_reducing(self):
        self.ranks.send_signal(signal.SIGUSR1)
        self.ranks.expect_line("still reducing")

    def end_well(self):
        self.ranks.send_signal(signal.SIGTERM)
        for output in self.ranks.finish():
            self.assertRegex(output, r"[1-9]\d* sums were right\n$")

    def refused(self):
        texts = metrics_in(METRICS_PORT, [self.network.names[rank] for rank in range(WORLD)])
        return [disbelieved(text).get("bad", 0) for text in texts]

    def test_no_keystream_comes_twice(self):
        """Contents are the same everywhere, so equal 16 bytes at the same place would mean the same keystream."""
        seen = {}
        for source, packets in self.hear(DATA_HEARD).items():
            for one in {(packet.payload[NUMBER:NUMBER + 3], contents(packet.payload)) for packet in packets}:
                number, text = one
                for at in range(0, len(text) - CHECK - BLOCK + 1, BLOCK):
                    first = seen.setdefault((at, text[at:at + BLOCK]), (source, number))
                    self.assertEqual(first, (source, number), f"byte {at} of two packets")
        self.assertGreater(len(seen), WORLD * DATA_HEARD)
        self.check_still_reducing()
        self.end_well()

    def test_packets_of_a_part_are_nothing_to_the_other(self):
        """With the addresses and ports of the other part: ranks, numbers and operations are the same in both."""
        before = self.refused()
        heard = self.hear(REPLAYED)
        sent = collections.Counter()
        for source, packets in heard.items():
            there = (self.addresses.index(source) + 2) % WORLD
            like = heard[self.addresses[there]][0]
            for one in packets:
                self.tap.send(like._replace(payload=one.payload))
                sent[there ^ 1] += 1
        self.check_still_reducing()

        def have_counted():
            counts = [now - then for now, then in zip(self.refused(), before)]
            return all(counts[rank] > sent[rank] * LEAST_SHARE for rank in range(WORLD))

        wait_until(have_counted, "counts of what was sent")
        self.check_still_reducing()
        self.end_well()


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("network namespaces need root")
        sys.exit(SKIPPED)
    contain()
    Partition.library = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
