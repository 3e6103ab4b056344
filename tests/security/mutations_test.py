#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Running jobs of four ranks whose own packets come back mutated: flipped bits, random bytes, cut, spliced, swapped
numbers, another rank's name. Every result stays right, and every rank lives to the end.

    tests/security/mutations_test.py LIBRARY [--mutations N] [TEST...]

One job per code over IPv4, and one over IPv6, there with encryption if the code can be encrypted; all with a secret. N
packets in all, 20,000 by default. The quick tier sends some to two jobs. Hosts are network namespaces, which need
root; skips without it: exit code 77.
"""
import os
import pathlib
import random
import re
import signal
import struct
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.namespaces import NetworkNamespaces, contain
from harness.patience import wait_until
from harness.processes import RankProcesses, python
from harness.tiers import TierLoader, long_tier
from hostile_host import Wiretap

SKIPPED = 77
WORLD = 4
CODES = ("exact", "planes", "levels", "blocks", "entropy", "sketch")
NOT_ENCRYPTED = ("levels", "blocks")  # switches read them
JOBS = 2 * len(CODES)
CHANGES_PER_PACKET = 8
MOST_UNREAD_BYTES = 64 << 10
SENT_AT_ONCE = 64
MOST_BYTES = 1400
FEW = 2_000  # packets per job in the quick tier

# Offsets in a packet (docs/wire.md).
FIELDS = tuple((at, struct.Struct(layout)) for at, layout in (
    (0, "B"), (1, "B"), (2, "<H"), (4, "<H"), (6, "<H"), (8, "<H"), (10, "<H"), (12, "<I"), (16, "<Q"), (32, "<I"),
    (36, "<I"), (40, "<I"), (44, "<I")))
# And in the kernel's socket tables: "... 0A 00000000:00000240 ...", the second being the unread bytes.
UNREAD = re.compile(rb" [0-9A-F]{8}:([0-9A-F]{8}) ")
LONGEST_TABLE = 64 << 10
NUMBERS = (0, 1, 2, 3, 4, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**64 - 1)


class Mutator:
    """Mutates payloads, each in one of many ways, by a seed."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.earlier = [b"\0" * 64]

    def mutate(self, payload):
        kind = self.draw.choice((self.flip, self.flip, self.make_up, self.cut, self.grow, self.splice, self.renumber,
                                 self.renumber))
        changed = kind(bytearray(payload))
        if self.draw.random() < 0.05:
            self.earlier = self.earlier[-63:] + [payload]
        return bytes(changed[:MOST_BYTES])

    def flip(self, payload):
        for _ in range(self.draw.choice((1, 1, 2, 8))):
            payload[self.draw.randrange(len(payload))] ^= 1 << self.draw.randrange(8)
        return payload

    def make_up(self, payload):
        at = self.draw.randrange(len(payload))
        some = self.draw.randbytes(self.draw.randint(1, 16))
        payload[at:at + len(some)] = some
        return payload

    def cut(self, payload):
        return payload[:self.draw.randrange(len(payload))]

    def grow(self, payload):
        return payload + self.draw.randbytes(self.draw.randint(1, 64))

    def splice(self, payload):
        other = self.draw.choice(self.earlier)
        at = self.draw.randrange(min(len(payload), len(other)))
        return payload[:at] + other[at:]

    def renumber(self, payload):
        at, layout = self.draw.choice(FIELDS)
        if at + layout.size <= len(payload):
            near = layout.unpack_from(payload, at)[0] + self.draw.choice((-1, 1))
            number = self.draw.choice((near, self.draw.choice(NUMBERS)))
            layout.pack_into(payload, at, number % 256**layout.size)
        return payload


class Queues:
    """The ranks' unread bytes. The kernel's socket tables are read so often that the files stay open."""

    def __init__(self, processes, is_ipv6):
        family = "udp6" if is_ipv6 else "udp"
        self.files = [os.open(f"/proc/{process.pid}/net/{family}", os.O_RDONLY) for process in processes]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for file in self.files:
            os.close(file)

    def fullest(self):
        """Bytes in the fullest socket."""
        texts = (os.pread(file, LONGEST_TABLE, 0) for file in self.files)
        return max(int(unread, 16) for text in texts for unread in UNREAD.findall(text))


class Attacks(unittest.TestCase):
    library = None

    def attack(self, code, is_ipv6, count):
        is_encrypted = is_ipv6 and code not in NOT_ENCRYPTED
        network = self.enterContext(NetworkNamespaces(WORLD, is_ipv6=is_ipv6, splits_bursts=True))
        tap = self.enterContext(Wiretap(network, range(WORLD)))
        folder = self.enterContext(tempfile.TemporaryDirectory())
        secret = pathlib.Path(folder, "secret")
        secret.touch(mode=0o600)
        secret.write_text("a secret of this job, drawn for it", encoding="utf-8")
        ranks = self.enterContext(RankProcesses(
            WORLD, lambda rank: python(HERE / "attacked_rank.py", self.library, code), network.endpoint(0, 5000),
            network.enter,
            variables={"SPILLWAY_SECRET_FILE": secret, **({"SPILLWAY_ENCRYPT": "1"} if is_encrypted else {})}))
        ranks.expect_line("ready")
        began = time.monotonic()
        with Queues(ranks.processes, is_ipv6=is_ipv6) as queues:
            self.send_changed(tap, ranks, queues, Mutator(seed=f"{code} {is_ipv6}"), count)
        print(f"{count} changed packets sent in {time.monotonic() - began:.1f} s")
        ranks.send_signal(signal.SIGUSR1)
        ranks.expect_line("still reducing")
        ranks.send_signal(signal.SIGTERM)
        for rank, process in enumerate(ranks.processes):
            output, log = process.finish()
            self.assertEqual(process.returncode, 0, f"rank {rank}: {output}{log}")
            self.assertRegex(output, r"[1-9]\d* results were right\n$")

    def send_changed(self, tap, ranks, queues, mutator, count):
        """Sends no faster than ranks read, as they would run out of room."""
        addresses = list(tap.hosts)
        sent = 0
        for heard in tap.hear():
            for _ in range(CHANGES_PER_PACKET):
                changed = heard._replace(payload=mutator.mutate(heard.payload))
                if mutator.draw.random() < 0.1:
                    changed = changed._replace(source=mutator.draw.choice(addresses))
                if sent % SENT_AT_ONCE == 0:
                    self.assertTrue(all(process.poll() is None for process in ranks.processes), "a rank has ended")
                    wait_until(lambda: queues.fullest() < MOST_UNREAD_BYTES, "ranks that read")
                tap.send(changed)
                sent += 1
                if sent == count:
                    return


class FewMutations(Attacks):
    """A code that switches add, which is not encrypted, and an encrypted one."""

    def test_sums(self):
        self.attack("levels", is_ipv6=False, count=FEW)

    def test_planes_encrypted_over_ipv6(self):
        self.attack("planes", is_ipv6=True, count=FEW)


@long_tier
class Mutations(Attacks):
    mutations = 20_000


def add_test(code, is_ipv6):
    def test(self):
        self.attack(code, is_ipv6, -(-self.mutations // JOBS))

    name = code + ("_over_ipv6" if is_ipv6 else "")
    setattr(Mutations, f"test_{name}", test)


for each in CODES:
    add_test(each, is_ipv6=False)
    add_test(each, is_ipv6=True)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("network namespaces need root")
        sys.exit(SKIPPED)
    contain()
    Attacks.library = pathlib.Path(sys.argv.pop(1)).resolve()
    if "--mutations" in sys.argv:
        at = sys.argv.index("--mutations")
        Mutations.mutations = int(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    unittest.main(testLoader=TierLoader())
