#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks on a running job whose members change, over its streams: by a ticket holder who lies as a member
(false_member.py), and by a stranger without the ticket who occupies connections.

    tests/security/member_attacks_test.py TOOL LIBRARY [unittest's arguments]
"""
import itertools
import os
import pathlib
import random
import re
import socket
import struct
import sys
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from attacked_job import STANDBYS, TOOL, WORKER, WORLD, Attack
from false_member import (ADMITTED, HANGS_UP, LOST, NEWCOMER, PROOF, ROSTER, SPEECH, Identity, Speech, Stream, card,
                          first_address, roster)
from harness.metrics import metrics_at
from harness.namespaces import contain
from harness.patience import wait_until
from harness.processes import Started, environment_with, free_port

NOISES = 500
MOST_GROWTH_KIB = 96 << 10
FEW_FILES = 192  # a process's limit of open files: strangers at one socket get an eighth of it
FLOOD = 100  # connections per listening socket
SLOW_CLIENTS = 48
NOT_ITS_KEYS = "its member id is not that of its key"
ALREADY_HERE = "there is such a member already"
HOSTILE_NAME = "\x1b]0;owned\x07\x1b[2J\x9b1m\r<script>alert(1)</script>\nrank 0:1"


def resident_kib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def listening_ports(process):
    """TCP ports on which this process listens."""
    sockets = set()
    for file in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(file))
        except FileNotFoundError:  # closed meanwhile
            continue
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


class AFalseMember(Attack):
    def test_noise_and_words_that_need_a_vote_change_nothing(self):
        self.start_job()
        members = self.ids()
        before = [resident_kib(process) for process in self.job.processes]
        liar = self.false_member()
        draw = random.Random(7)
        speeches = list(Speech.that_need_a_vote(1, members))
        for speech in speeches:
            self.assertEqual(liar.speak(speech), WORLD)
        for _ in range(NOISES):
            speech = bytearray(draw.choice(speeches))
            place = draw.randrange(len(speech))
            # An unknown kind, or a message that ends early: both must be ignored.
            unknown = bytes([draw.randrange(19, 256)]) + draw.randbytes(draw.randrange(2000))
            self.assertEqual(liar.speak(draw.choice((unknown, bytes(speech[:place])))), WORLD)
        self.assertEqual(liar.speak(b"\xff" * (1 << 20)), WORLD)
        self.check_goes_on()
        for process, kib in zip(self.job.processes, before):
            self.assertLess(resident_kib(process), kib + MOST_GROWTH_KIB)
        self.check_ends_well()

    def test_frames_that_do_not_belong_there_end_its_stream_and_no_more(self):
        self.start_job()
        huge = struct.pack("<4sHHI", b"SWRV", 2, SPEECH, 2**32 - 1)
        for attack in (
                lambda liar: liar.say(PROOF, os.urandom(32)),
                lambda liar: liar.say(77, os.urandom(100)),
                lambda liar: [stream.say_raw(huge) for stream in liar.streams.values()],
                lambda liar: [stream.say_raw(os.urandom(4096)) for stream in liar.streams.values()]):
            liar = self.false_member()
            attack(liar)
            for stream in liar.streams.values():
                self.assertRaises(ConnectionError, lambda: [stream.hear() for _ in range(1000)])
            liar.close()
            self.check_goes_on()
        self.check_ends_well()

    def test_a_newcomer_neither_ends_nor_changes_a_job(self):
        """It is not admitted and has no vote, whatever it says about epochs, steps and decisions."""
        for claim in Speech.CLAIMS:
            self.start_job()
            before = [resident_kib(process) for process in self.job.processes]
            self.claim(claim)
            self.check_goes_on()
            for process, kib in zip(self.job.processes, before):
                self.assertLess(resident_kib(process), kib + MOST_GROWTH_KIB)
            self.check_ends_well()

    def claim(self, claim):
        members, draw = self.ids(), random.Random(claim)
        liar = self.false_member()
        nobodies = [card(2**64 - 1 - each, f"127.0.0.1:{free_port()}", "nobody:1") for each in range(40)]
        liar.say(ROSTER, roster(*nobodies))
        for speech in (*Speech.of_another_epoch(1, members), Speech.claim(claim, members)):
            for _ in range(20):
                changed = bytearray(speech)
                changed[draw.randrange(1, len(changed))] ^= 1 << draw.randrange(8)
                liar.speak(bytes(changed))
            liar.speak(speech)
        liar.close()

    def test_nobody_takes_another_members_id(self):
        """Members share one credential, so a ticket holder could otherwise vote as a member that has died. The dead one
        is a standby of five members: the job needs no change for it, and its id stays in the view."""
        self.start_job(world=5)
        liar = self.false_member()
        dead = next(int(each["id"], 16) for each in self.status()["members"]
                    if each["rank"] is None and not each["waits"])
        deads_key = liar.public_key(dead)
        self.job.by_rank.pop(self.world - STANDBYS).end()
        ranks = self.ids()
        for rank in ranks:
            # Its stream to the dead one has to end first.
            wait_until(lambda: liar.impersonate(Identity(public=deads_key), rank, ADMITTED) == LOST,
                       "that a rank has lost the standby")
            for standing in (ADMITTED, NEWCOMER):
                for identity, why in (
                        (Identity(public=deads_key), LOST),
                        (Identity(member=dead), NOT_ITS_KEYS),
                        (Identity(public=liar.public_key(ranks[0])), ALREADY_HERE),
                        (Identity(member=ranks[1]), NOT_ITS_KEYS),
                        (Identity(public=Identity().public), HANGS_UP),  # nobody's yet, and it lacks the private half
                        (Identity(public=bytes(32)), HANGS_UP)):  # a point with which everybody agrees on zeros
                    self.assertEqual(liar.impersonate(identity, rank, standing), why)
        listed = [int(each["id"], 16) for each in self.check_goes_on()["members"] if not each["waits"]]
        self.assertEqual(listed, [*ranks, dead])
        liar.close()
        self.check_ends_well()

    def test_names_that_would_move_the_cursor_or_run_scripts_are_printed_as_text(self):
        self.start_job()
        liar = self.false_member(name=HOSTILE_NAME)
        self.wait_for(lambda status: len(status["members"]) == WORLD + 1)
        page = self.folder / "page"
        for words in (("status",), ("status", "--json"), ("status", "--watch", "--times", "1", "--page", page)):
            said = self.tool(*words)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertNotRegex(said.stdout + said.stderr, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.assertEqual(len([line for line in self.tool("status").stdout.splitlines() if "127.0.0.1:" in line]), WORLD + 1)
        self.assertIn(r"\x1b[2J", self.tool("status").stdout)
        self.assertNotIn("<script", page.read_text(encoding="utf-8"))
        liar.close()
        self.check_goes_on()
        self.check_ends_well()


class Flood:
    """Connections from other addresses of this machine that send nothing or half a message. Those that are closed are
    replaced at once. Each address opens as many as the next: strangers are limited per address and in all.
    """

    ADDRESSES = tuple(f"127.0.0.{last}" for last in range(9, 25))

    def __init__(self, ports):
        self.ports, self.addresses = ports, itertools.cycle(self.ADDRESSES)
        self.held, self.opened, self.is_over = [], 0, threading.Event()
        self.thread = threading.Thread(target=self._flood)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        for connection in self.held:
            connection.close()

    def _open(self, port, address):
        try:
            connection = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
            connection.setblocking(False)
            if self.opened % 2:
                connection.send(b"SWRV\2")
            self.held.append(connection)
            self.opened += 1
        except OSError:  # refused, or the process has ended
            pass

    def _flood(self):
        while not self.is_over.is_set():
            address = next(self.addresses)
            for port in self.ports:
                self._open(port, address)
            while len(self.held) > FLOOD * len(self.ports):
                self.held.pop(0).close()
            self.is_over.wait(0.002)  # leaves the processors to the job


class SomebodyWithoutTheTicket(Attack):
    def test_a_flood_of_connections_keeps_no_newcomer_out_and_stops_no_change(self):
        self.start_job(prefix=("prlimit", f"--nofile={FEW_FILES}:{FEW_FILES}"), SPILLWAY_CARRIER="tcp")
        ports = [port for process in self.job.processes for port in listening_ports(process)]
        self.assertGreaterEqual(len(ports), 2 * WORLD - STANDBYS, "each member's socket, and each rank's door")
        with Flood(ports) as flood:
            wait_until(lambda: flood.opened > FLOOD * len(ports), "a flood")
            self.check_goes_on()
            came = Started(["prlimit", f"--nofile={FEW_FILES}:{FEW_FILES}", TOOL, "job", "join", "--", *WORKER, "0"],
                           test=self, env=environment_with(self.variables))
            self.wait_for(lambda status: len(status["members"]) == WORLD + 1)
            said = self.tool("remove", "1", "--keep")  # makes new streams between all ranks
            self.assertEqual(said.returncode, 0, said.stderr)
            self.wait_for(lambda status: status["epoch"] == 2)
            self.check_goes_on(epoch=2)
            print(f"{flood.opened} connections were opened at {len(ports)} sockets, from "
                  f"{len(Flood.ADDRESSES)} addresses")
        self.check_ends_well()
        self.assertEqual(came.wait_for_end(), 0)

    def test_somebody_who_guesses_the_ticket_is_told_nothing(self):
        self.start_job()
        stream = Stream(first_address(self.ticket()), os.urandom(16))
        self.addCleanup(stream.close)
        self.assertRaises(ConnectionError, stream.hear)
        self.check_goes_on()
        self.check_ends_well()

    def test_slow_clients_of_metrics_keep_nobody_from_reading_them(self):
        port = free_port()
        self.start_job(SPILLWAY_METRICS_LISTEN=f"127.0.0.1:{port}")
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(SLOW_CLIENTS)]
        for client in clients:
            self.addCleanup(client.close)
            client.setblocking(False)
        ended = set()

        def dribble():
            """Sends each one a byte of a request that never ends."""
            for client in clients:
                try:
                    client.send(b"G")
                    if not client.recv(1000):
                        ended.add(client)
                except BlockingIOError:
                    pass
                except OSError:
                    ended.add(client)
            return len(ended) == len(clients)

        for _ in range(10):
            dribble()
            self.assertIn("spillway_job_epoch", metrics_at(port))
        wait_until(dribble, "the end of all slow clients")
        self.check_goes_on()
        self.check_ends_well()


if __name__ == "__main__":
    contain()
    del sys.argv[1:3]
    unittest.main()
