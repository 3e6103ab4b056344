#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forged parts, from a stranger without a key, against a user-space switch that adds for a job.

    tests/security/switch_sums_test.py PATH_TO_SPILLWAY

The stranger is a separate host at the switch. It knows the job's number and makes up the rest.
"""
import contextlib
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
HEADER = struct.Struct("<BBHHHHHIIIQBBBBH2B2Q2QQQ")  # lib/wire/sum_packet.h
EPOCH_SHIFT = 24  # the epoch shares four bytes with the operation
VERSION_AND_TYPE = 4 << 4 | 8
PART = 1
ADDED = 0x01
BURST = 20  # packets that fit any socket's buffer
REPEATS_AFTER_S = 0.5


def part(chunk, rank, job=JOB, epoch=EPOCH):
    head = HEADER.pack(VERSION_AND_TYPE, 0, job, rank, OWNER, 0, chunk, 1 | epoch << EPOCH_SHIFT, 0, 0, 0,
                       PART, 0, 0, 0, OWNER, len(RANKS), 0, 1 << rank, 0, 0, 0, 0, 0)
    return head + struct.pack(f"<{WORDS}Q", *[rank] * WORDS)


class Switch(unittest.TestCase):
    """Hosts with their own addresses on loopback, and a switch between them that adds."""

    @contextlib.contextmanager
    def running(self):
        """A new switch, and the hosts' sockets."""
        with contextlib.ExitStack() as stack:
            self.start(stack)
            yield

    def start(self, stack):
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        lines = ["topology one-switch hosts=4 rate=1gbit", "switch mode=spillway queue=1m",
                 "aggregate slots=8192 policy=preemptive"]
        self.hosts = []
        for host in range(4):
            own = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            own.bind((f"127.0.0.{host + 1}", 0))
            self.hosts.append(own)
            port = free_port()
            lines.append(f"port host=host{host} listen=127.0.0.1:{port} deliver=127.0.0.{host + 1}:{own.getsockname()[1]}")
            if host == OWNER:
                self.to_owner = ("127.0.0.1", port)
        config = pathlib.Path(folder) / "switch.scn"
        config.write_text("\n".join(lines) + "\n")
        switch = stack.enter_context(Started([TOOL, "switch", "run", config, "--json", "--metrics", "127.0.0.1:0"]))
        switch.line(pipe=switch.stderr)  # it runs

    def send(self, host, packet):
        self.hosts[host].sendto(packet, self.to_owner)

    def receive(self):
        """The owner's next packet: (job, epoch, chunk, marks, ranks). None if it is time to send again."""
        try:
            fields = HEADER.unpack_from(self.hosts[OWNER].recv(2048))
            return fields[2], fields[7] >> EPOCH_SHIFT, fields[6], fields[12], fields[18]
        except TimeoutError:
            return None

    def sums_of(self, chunk, job=JOB, senders=RANKS):
        """The senders send the ranks' parts of a chunk, and repeat them if one is lost. Returns the packets that reach
        the owner, until it has both parts."""
        limit, got, packets, is_due = Limit(), 0, [], True
        self.hosts[OWNER].settimeout(REPEATS_AFTER_S)
        while got != sum(1 << rank for rank in RANKS):
            if is_due:
                self.assertGreater(limit.left(), 0, "nothing comes to the owner")
                for sender, rank in zip(senders, RANKS):
                    self.send(sender, part(chunk, rank, job))
            packet = self.receive()
            is_due = packet is None
            if packet is not None and packet[:3] == (job, EPOCH, chunk):
                got |= packet[4]
                packets.append(packet[3] & ADDED)
        return packets

    def check_most_are_added(self, before_all, before_each):
        """At a new switch, nearly all chunks arrive added despite before_all() and before_each(chunk). One that gets no
        processor holds parts for longer than their slots' lease and loses others: then another is tried."""
        limit = Limit()
        while True:
            with self.running():
                before_all()
                added = 0
                for chunk in range(CHUNKS):
                    before_each(chunk)
                    added += self.sums_of(chunk) == [ADDED]
            if added > CHUNKS * 0.9:
                return
            self.assertGreater(limit.left(), 0, f"only {added} of {CHUNKS} chunks were added")

    def test_an_epoch_that_is_made_up_costs_a_job_no_part(self):
        def make_epochs_up(chunk):
            for epoch in (EPOCH + 1, EPOCH + 2, EPOCH - 1, EPOCH + 0x7F):
                self.send(STRANGER, part(chunk, RANKS[0], epoch=epoch))

        self.check_most_are_added(lambda: None, make_epochs_up)

    def test_jobs_that_are_made_up_keep_no_job_from_being_summed(self):
        def make_jobs_up():
            for job in range(100, 600):
                self.send(STRANGER, part(0, RANKS[0], job=job))
                if job % BURST == 0:  # what the owner has of this job says that the switch has taken all before it
                    self.sums_of(0, job, senders=(STRANGER, STRANGER))

        self.check_most_are_added(make_jobs_up, lambda _: None)


if __name__ == "__main__":
    unittest.main()
