#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Running jobs under attack. Whatever is tried, all results are right to the last bit, the job ends well, and what was
tried is counted.

    tests/runtime/attacks_test.py LIBRARY

At the rendezvous: strangers who come first as a rank, or as the host. On the network, which needs root and is skipped
without: packets played again, later, elsewhere, backwards, with numbers far ahead, and those of an earlier run; made-up
aborts; ICMP messages about packets of long ago.
"""
import collections
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from forged_packets import NO_PORT, TOO_BIG, icmp_message
from hostile_host import Wiretap, in_namespace, ip_and_udp
from network_namespaces import NetworkNamespaces
from rank_processes import free_port, python, rank_environment

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE_S = 60  # of the test: whatever takes longer hangs
WORLD = 3
STRANGER = WORLD
SETTLED_S = 8  # ranks write down what they have counted every second, later on a busy machine
LEAST_SHARE = 0.5  # of packets sent that come through: a rank may have no room for some
QUOTED_BYTES = 528  # of a datagram in an ICMP message

# Where things stand in a packet (docs/wire.md).
JOB, EPOCH, SOURCE, DESTINATION, SEQUENCE, NUMBER = 2, 4, 6, 8, 36, 40
DATA, LEAVE = 0x21, 0x27
ABORTED = 3

# And at a rendezvous.
MAGIC, PROTOCOL = 0x56525753, 2
HELLO, REFUSAL, FAILURE, OPENING, CHALLENGE, PROOF = 1, 3, 4, 7, 8, 9
NO_KEY, SECRET = 0, 2


class Job:
    """Ranks that can be started one by one."""

    def __init__(self, test, world, meeting, prefix=lambda rank: [], **environment):
        self.test, self.world, self.meeting, self.prefix = test, world, meeting, prefix
        self.environment = environment
        self.ranks = {}

    def start(self, *ranks):
        for rank in ranks:
            self.ranks[rank] = subprocess.Popen(
                self.prefix(rank) + python(HERE / "attacked_rank.py", self.test.library), stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
                env={**rank_environment(rank, self.world, self.meeting, one_machine=False), **self.environment})
            self.test.addCleanup(self._end, self.ranks[rank])
        return self

    @staticmethod
    def _end(process):
        process.kill()
        process.communicate()

    def _expect_line(self, line):
        for rank, process in self.ranks.items():
            said = process.stdout.readline()
            self.test.assertEqual(said, line + "\n", f"rank {rank}: {said or process.communicate()}")

    def wait_until_ready(self):
        self._expect_line("ready")

    def check_still_reducing(self):
        for process in self.ranks.values():
            process.send_signal(signal.SIGUSR1)
        self._expect_line("still reducing")

    def end_well(self):
        """What the ranks wrote to their logs."""
        for process in self.ranks.values():
            process.send_signal(signal.SIGTERM)
        logs = {}
        for rank, process in self.ranks.items():
            output, logs[rank] = process.communicate(timeout=PATIENCE_S)
            self.test.assertEqual(process.returncode, 0, f"rank {rank}: {output}{logs[rank]}")
            self.test.assertRegex(output, r"^[1-9]\d* results were right\n$")
        return logs


# ---------------------------------------------------------------- the rendezvous


def frame(kind, body):
    return struct.pack("<IHHI", MAGIC, PROTOCOL, kind, len(body)) + body


def frames_in(stream):
    """Kinds and bodies of what was said; it must be frames to the last byte."""
    said = []
    while stream:
        magic, _, kind, size = struct.unpack_from("<IHHI", stream)
        assert magic == MAGIC and len(stream) >= 12 + size, stream
        said.append((kind, stream[12:12 + size]))
        stream = stream[12 + size:]
    return said


def read_to_end(connection):
    connection.settimeout(PATIENCE_S)
    stream = b""
    try:
        while part := connection.recv(4096):
            stream += part
    except ConnectionError:  # it left without reading all
        pass
    return stream


def connect(port):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def hello_of(rank, world):
    """Of a rank that shares nothing, as one says it where there is no secret."""
    card = f"127.0.0.1:{free_port()} 1500 0 here".encode()
    version = b"1"
    who = os.urandom(16 + 32 + 8) + struct.pack("<IIII", world, rank, 60_000, 60_000)
    return who + bytes([len(version)]) + version + struct.pack("<I", len(card)) + card


class Attacks(unittest.TestCase):
    library = None


class AtTheRendezvous(Attacks):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        secret = pathlib.Path(folder.name, "secret")
        secret.touch(mode=0o600)
        secret.write_text("a secret of this job, drawn for it", encoding="utf-8")
        self.port = free_port()
        self.job = Job(self, 2, f"127.0.0.1:{self.port}", SPILLWAY_SECRET_FILE=str(secret))

    def say_as_guest(self, *frames):
        with connect(self.port) as stranger:
            stranger.sendall(b"".join(frames))
            return frames_in(read_to_end(stranger))

    def test_a_stranger_who_comes_first_as_rank_1_takes_nobodys_place(self):
        self.job.start(0)
        silent = [connect(self.port) for _ in range(40)]
        hello = frame(HELLO, hello_of(1, 2))
        heard = self.say_as_guest(hello)
        heard += self.say_as_guest(frame(OPENING, bytes([NO_KEY]) + os.urandom(32)), hello)
        guess = frame(PROOF, os.urandom(32))
        heard += self.say_as_guest(frame(OPENING, bytes([SECRET]) + os.urandom(32)), guess, hello)
        self.assertEqual([kind for kind, _ in heard], [REFUSAL, REFUSAL, CHALLENGE, REFUSAL])
        for kind, body in heard:
            if kind == REFUSAL:
                self.assertEqual(body[0], 0)  # it is not final: who said it has proved nothing
                self.assertNotRegex(body[1:].decode(), r"127\.0\.0|rank 0|of 2|world")
        self.job.start(1)
        self.job.wait_until_ready()
        log = self.job.end_well()[0]
        self.assertRegex(log, r"turned away: 1 spoke something else; 1 had a secret .*; 1 did not prove")
        for connection in silent:
            connection.close()

    def test_a_stranger_who_poses_as_the_host_hears_nothing_and_is_not_believed(self):
        refusal = frame(REFUSAL, b"\1go away, for good")
        answers = [frame(CHALLENGE, bytes([SECRET]) + os.urandom(64)),
                   frame(CHALLENGE, bytes([NO_KEY]) + os.urandom(32)), refusal, frame(FAILURE, b"it is over")]
        with socket.create_server(("127.0.0.1", self.port)) as host:
            host.settimeout(PATIENCE_S)
            self.job.start(1)
            for answer in answers:
                connection, _ = host.accept()
                with connection:
                    connection.sendall(answer)
                    said = frames_in(read_to_end(connection))
                self.assertEqual([(kind, len(body)) for kind, body in said], [(OPENING, 33)], answer)
        self.job.start(0)
        self.job.wait_until_ready()
        self.job.end_well()


# ---------------------------------------------------------------- the network


def is_data(datagram):
    return datagram.payload[0] == DATA


def redirected(datagram, ports):
    """To the third rank, as it was and as if it were for that one."""
    third = next(address for address in ports if address not in (datagram.source, datagram.destination))
    there = datagram._replace(destination=third, destination_port=ports[third])
    rank = sorted(ports).index(third)
    return [there, there.changed(DESTINATION, "<H", rank)]


def reflected(datagram, ports):
    """To who sent it, as it was and as if it were the answer."""
    back = datagram.turned_round()._replace(destination_port=ports[datagram.source])
    source, destination = struct.unpack_from("<HH", datagram.payload, SOURCE)
    return [back, back.changed(SOURCE, "<H", destination).changed(DESTINATION, "<H", source)]


def pushed(datagram):
    return [datagram.changed(NUMBER if is_data(datagram) else SEQUENCE, "<I", lambda now, by=by: (now + by) % 2**32)
            for by in (2**16 + 1, 2**31 - 1)]


def aborting(datagram, sender):
    """A LEAVE in the name of who sent the datagram, well-formed, with a tag that is drawn."""
    _, _, job, epoch, source, destination = struct.unpack_from("<BBHHHH", datagram.payload)
    header = struct.pack("<BBHHHHHIQBBHI", LEAVE, 0, job, epoch, source, destination, 0, 0, 0, 0, 0, 0, 0)
    sequence = 1 + os.urandom(1)[0]
    body = struct.pack("<HHIIHBB", 0, 0, sequence, 0, source, ABORTED, 0)
    return datagram._replace(source=sender, payload=header + body + os.urandom(8))


def of_now(old, like):
    """A datagram of an earlier run between the ports of this one: as it was, and as if it were of this one."""
    here = old._replace(source_port=like.source_port, destination_port=like.destination_port)
    job, epoch = struct.unpack_from("<HH", like.payload, JOB)
    return [here, here.changed(JOB, "<H", job).changed(EPOCH, "<H", epoch)]


@unittest.skipIf(os.geteuid() != 0, "network namespaces need root")
class OnTheNetwork(Attacks):
    def setUp(self):
        self.network = self.enterContext(NetworkNamespaces(WORLD + 1))
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.tap = self.enterContext(Wiretap(self.network, range(WORLD)))
        self.addresses = [self.network.address(rank) for rank in range(WORLD)]

    def start_job(self):
        job = Job(self, WORLD, f"{self.addresses[0]}:5000", self.network.enter, SPILLWAY_GSO="0",
                  SPILLWAY_METRICS_FILE=f"{self.folder}/%r.prom", SPILLWAY_METRICS_SECONDS="1")
        job.start(*range(WORLD)).wait_until_ready()
        return job

    def hear(self):
        """A sample of what the ranks say to each other, data and control packets of every pair."""
        heard = self.tap.hear(seconds=0.7, most=600)
        pairs = {(one.source, one.destination, is_data(one)) for one in heard}
        self.assertEqual(len(pairs), 2 * WORLD * (WORLD - 1), sorted(pairs))
        return heard

    def counts(self, rank):
        text = pathlib.Path(self.folder, f"{rank}.prom").read_text(encoding="utf-8")
        return {reason: int(count) for reason, count in
                re.findall(r'disbelieved_total{.*reason="(\w+)"} (\d+)', text)}

    def attack(self, name, send, expected):
        """Sends, and waits until each rank has counted what came: everything once, unless it got lost on its way to it.
        `expected` are counts by rank and reason.
        """
        before = [self.counts(rank) for rank in range(WORLD)]
        send()
        counted, changed_at = None, time.monotonic()
        while counted != expected and time.monotonic() < changed_at + SETTLED_S:
            time.sleep(0.1)
            now = {(rank, reason): self.counts(rank)[reason] - before[rank][reason] for rank, reason in expected}
            changed_at = changed_at if now == counted else time.monotonic()
            counted = now
        print(f"{name}: {counted}" + ("" if counted == expected else f" of {expected}"))
        for which, count in counted.items():
            self.assertLessEqual(count, expected[which], name)
            self.assertGreater(count, expected[which] * LEAST_SHARE, name)

    def attack_with(self, name, forged, reason_of):
        expected = collections.Counter((self.addresses.index(one.destination), reason_of(one)) for one in forged)
        self.attack(name, lambda: self.send_all(forged), expected)

    def send_all(self, datagrams):
        for number, datagram in enumerate(datagrams):
            self.tap.send(datagram)
            if number % 16 == 0:
                time.sleep(0.002)  # receivers need not have room for them at once

    def sample(self, heard, most=20):
        """Some of each pair of ranks and kind of packet."""
        chosen = {}
        for one in heard:
            chosen.setdefault((one.source, one.destination, is_data(one)), []).append(one)
        return [one for some in chosen.values() for one in some[:most]]

    def test_whatever_is_sent_the_job_goes_on(self):
        first = self.start_job()
        earlier = self.sample(self.hear())
        first.end_well()

        job = self.start_job()
        heard = self.sample(self.hear())
        ports = {one.destination: one.destination_port for one in heard}
        flows = {(one.source, one.destination, is_data(one)): one for one in heard}
        stranger = self.network.address(STRANGER)
        attacks = [
            ("abort by a stranger", lambda one: [aborting(one, stranger)], lambda _: "stranger"),
            ("abort in a rank's name", lambda one: [aborting(one, one.source)], lambda _: "bad"),
            ("replay", lambda one: [one], lambda one: "repeated" if is_data(one) else "bad"),
            ("redirect", lambda one: redirected(one, ports), lambda _: "bad"),
            ("reflect", lambda one: reflected(one, ports), lambda _: "bad"),
            ("sequence push", pushed, lambda _: "bad"),
        ]
        for name, forge, reason_of in attacks:
            self.attack_with(name, [packet for one in heard for packet in forge(one)], reason_of)
            job.check_still_reducing()
        old = [packet for one in earlier for packet in of_now(one, flows[one.source, one.destination, is_data(one)])]
        self.attack_with("replay of an earlier run", old, lambda _: "bad")
        job.check_still_reducing()
        self.forge_icmp(earlier, heard, flows)
        job.check_still_reducing()
        job.end_well()

    def forge_icmp(self, earlier, heard, flows):
        """From a host that is on no path: about datagrams of an earlier run, and of this one, but of a while ago."""
        quoted = [of_now(one, flows[one.source, one.destination, is_data(one)])[1] for one in earlier]
        quoted += [one for one in heard if is_data(one)]
        time.sleep(1.0)  # "just now" is over
        raw = in_namespace(self.network.names[STRANGER],
                           lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
        self.addCleanup(raw.close)

        def send():
            for one in quoted:
                for code in (TOO_BIG, NO_PORT):
                    raw.sendto(icmp_message(code, ip_and_udp(one)[:QUOTED_BYTES]), (one.source, 0))

        self.attack("forged ICMP", send, collections.Counter(
            (self.addresses.index(one.source), reason) for one in quoted for reason in ("forged_refusal", "icmp")))


if __name__ == "__main__":
    Attacks.library = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
