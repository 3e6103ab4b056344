#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forged parts, from a stranger without a key, against a user-space switch that adds for a job.

    tests/security/switch_sums_test.py PATH_TO_SPILLWAY

The stranger is a separate host at the switch. It knows the job's number and makes up the rest.
"""
import pathlib
import socket
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import Limit
from harness.processes import Started, free_port

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()

OWNER, RANKS, STRANGER = 0, (1, 2), 3
JOB, EPOCH = 7, 5
CHUNKS = 200
WORDS = 168
HEADER = struct.Struct("<BBHHHHHIQBBHIBBBBH2B2Q2QQQ")  # src/wire/sum_packet.h
VERSION_AND_TYPE = 2 << 4 | 8
PART = 1
ADDED = 0x01


def part(chunk, rank, job=JOB, epoch=EPOCH):
    head = HEADER.pack(VERSION_AND_TYPE, 0, job, epoch, rank, OWNER, 0, 1, 0, 0, 0, chunk, 0,
                       PART, 0, 0, 0, OWNER, len(RANKS), 0, 1 << rank, 0, 0, 0, 0, 0)
    return head + struct.pack(f"<{WORDS}Q", *[rank] * WORDS)


class Switch(unittest.TestCase):
    """Hosts with their own addresses on loopback, and a switch between them that adds."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        lines = ["topology one-switch hosts=4 rate=1gbit", "switch mode=spillway queue=1m",
                 "aggregate slots=8192 policy=preemptive"]
        self.hosts = []
        for host in range(4):
            own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.addCleanup(own.close)
            own.bind((f"127.0.0.{host + 1}", 0))
            self.hosts.append(own)
            port = free_port()
            lines.append(f"port host=host{host} listen=127.0.0.1:{port} deliver=127.0.0.{host + 1}:{own.getsockname()[1]}")
            if host == OWNER:
                self.to_owner = ("127.0.0.1", port)
        config = pathlib.Path(folder.name) / "switch.scn"
        config.write_text("\n".join(lines) + "\n")
        switch = Started([TOOL, "switch", "run", config, "--json", "--metrics", "127.0.0.1:0"], test=self)
        switch.line(pipe=switch.stderr)  # it runs

    def send(self, host, packet):
        self.hosts[host].sendto(packet, self.to_owner)

    def receive(self):
        """The owner's next packet: (job, epoch, chunk, marks, ranks)."""
        owner, limit = self.hosts[OWNER], Limit()
        while True:
            owner.settimeout(max(limit.left(), 0.01))
            try:
                fields = HEADER.unpack_from(owner.recv(2048))
                return fields[2], fields[3], fields[11], fields[14], fields[20]
            except TimeoutError:
                if limit.left() == 0:
                    raise AssertionError("nothing comes to the owner") from None

    def sums_of(self, chunk):
        """Both ranks send their part of a chunk; returns the packets that reach the owner, until it has both parts."""
        for rank in RANKS:
            self.send(rank, part(chunk, rank))
        got, packets = 0, []
        while got != sum(1 << rank for rank in RANKS):
            job, epoch, number, marks, ranks = self.receive()
            if (job, epoch, number) == (JOB, EPOCH, chunk):
                got |= ranks
                packets.append(marks & ADDED)
        return packets

    def test_an_epoch_that_is_made_up_costs_a_job_no_part(self):
        added = 0
        for chunk in range(CHUNKS):
            for epoch in (EPOCH + 1, EPOCH + 2, EPOCH - 1, EPOCH + 0x7FFF):
                self.send(STRANGER, part(chunk, RANKS[0], epoch=epoch))
            added += self.sums_of(chunk) == [ADDED]
        self.assertGreater(added, CHUNKS * 0.9, "the job's parts go by unadded")

    def test_jobs_that_are_made_up_keep_no_job_from_being_summed(self):
        for job in range(100, 600):
            self.send(STRANGER, part(0, RANKS[0], job=job))
        added = sum(self.sums_of(chunk) == [ADDED] for chunk in range(CHUNKS))
        self.assertGreater(added, CHUNKS * 0.9, "the job has no row")


if __name__ == "__main__":
    unittest.main()
