#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Running jobs under attack. In every attack all results are right to the last bit, the job ends normally, and the
attempts are counted.

    tests/security/attacks_test.py LIBRARY

At the rendezvous: strangers who come first as a rank, or as the host. On the network, which needs root and is skipped
without it: packets replayed, later, elsewhere, reflected, with numbers far ahead, and from an earlier run; forged
aborts; ICMP messages about old packets.
"""
import collections
import os
import pathlib
import signal
import socket
import struct
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from forged_packets import NO_PORT, TOO_BIG, icmp_message
from harness.metrics import disbelieved, metrics_in
from harness.namespaces import NetworkNamespaces, contain, in_namespace
from harness.patience import patience, wait_until
from harness.processes import RankProcesses, free_port, python
from hostile_host import Wiretap, ip_and_udp

WORLD = 3
STRANGER = WORLD
METRICS_PORT = 6000
SAMPLE = 20  # datagrams per pair of ranks and kind of packet
SENT_AT_ONCE = 16
MOST_UNREAD_BYTES = 64 << 10
LEAST_SHARE = 0.5  # of packets sent that arrive: a rank may lack room for some
QUOTED_BYTES = 528  # of a datagram in an ICMP message
JUST_NOW_S = 1.0  # a rank believes ICMP messages about data sent this recently

# Offsets in a packet (docs/wire.md).
JOB, SOURCE, DESTINATION, EPOCH, NUMBER = 2, 4, 6, 15, 16
PLANES, BYTES, LEAVE = 0x41, 0x49, 0x47
ABORTED = 3

# And at the rendezvous.
MAGIC, PROTOCOL = 0x56525753, 2
HELLO, REFUSAL, FAILURE, OPENING, CHALLENGE, PROOF = 1, 3, 4, 7, 8, 9
NO_KEY, SECRET = 0, 2


class Job(RankProcesses):
    """Ranks that can be started one by one."""

    def __init__(self, test, world, meeting, prefix=lambda rank: [], **variables):
        super().__init__(world, lambda rank: python(HERE / "attacked_rank.py", test.library), meeting, prefix,
                         variables=variables, starts_all=False)
        self.test = test
        test.addCleanup(self.__exit__)

    def wait_until_ready(self):
        self.expect_line("ready")

    def check_still_reducing(self):
        self.send_signal(signal.SIGUSR1)
        self.expect_line("still reducing")

    def end_well(self):
        """Ends the job; returns the ranks' logs."""
        self.send_signal(signal.SIGTERM)
        logs = {}
        for rank, process in self.by_rank.items():
            output, logs[rank] = process.finish()
            self.test.assertEqual(process.returncode, 0, f"rank {rank}: {output}{logs[rank]}")
            self.test.assertRegex(output, r"^[1-9]\d* results were right\n$")
        return logs


# ---------------------------------------------------------------- the rendezvous


def frame(kind, body):
    return struct.pack("<IHHI", MAGIC, PROTOCOL, kind, len(body)) + body


def frames_in(stream):
    """Kinds and bodies of the stream's frames; it must consist of whole frames."""
    said = []
    while stream:
        magic, _, kind, size = struct.unpack_from("<IHHI", stream)
        assert magic == MAGIC and len(stream) >= 12 + size, stream
        said.append((kind, stream[12:12 + size]))
        stream = stream[12 + size:]
    return said


def read_to_end(connection):
    connection.settimeout(patience())
    stream = b""
    try:
        while part := connection.recv(4096):
            stream += part
    except ConnectionError:  # it left without reading everything
        pass
    return stream


def connect(port):
    def try_it():
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            return None

    return wait_until(try_it, "somebody who listens")


def hello_of(rank, world):
    """The hello of a rank that shares no memory, without a secret."""
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
                self.assertEqual(body[0], 0)  # it is not final: its sender has proved nothing
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
            host.settimeout(patience())
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


def unread_bytes(process):
    """Bytes in the fullest UDP socket of the process's network namespace."""
    rows = pathlib.Path(f"/proc/{process.pid}/net/udp").read_text(encoding="ascii").splitlines()[1:]
    return max(int(row.split()[4].split(":")[1], 16) for row in rows)


def is_data(datagram):
    return datagram.payload[0] in (PLANES, BYTES)


def redirected(datagram, ports):
    """Sends it to the third rank, unchanged and as if addressed to it."""
    third = next(address for address in ports if address not in (datagram.source, datagram.destination))
    there = datagram._replace(destination=third, destination_port=ports[third])
    rank = sorted(ports).index(third)
    return [there, there.changed(DESTINATION, "<H", rank)]


def reflected(datagram, ports):
    """Sends it back to its source, unchanged and as if it were the answer."""
    back = datagram.turned_round()._replace(destination_port=ports[datagram.source])
    source, destination = struct.unpack_from("<HH", datagram.payload, SOURCE)
    return [back, back.changed(SOURCE, "<H", destination).changed(DESTINATION, "<H", source)]


def pushed(datagram):
    def push(word, by):  # the number has 24 bits; the path is behind it
        return word & 0xFF000000 | (word + by) & 0xFFFFFF

    return [datagram.changed(NUMBER, "<I", lambda now, by=by: push(now, by)) for by in (2**16 + 1, 2**23 - 1)]


def aborting(datagram, sender):
    """A forged LEAVE from the datagram's source: well-formed, with a random tag."""
    job, source, destination = struct.unpack_from("<HHH", datagram.payload, JOB)
    epoch, sequence = datagram.payload[EPOCH], 1 + os.urandom(1)[0]
    header = struct.pack("<BBHHHHHIIIQ", LEAVE, 0, job, source, destination, 0, 0, epoch << 24, sequence, 0, 0)
    body = struct.pack("<HHIHBB", 0, 0, 0, source, ABORTED, 0)
    return datagram._replace(source=sender, payload=header + body + os.urandom(8))


def of_now(old, like):
    """A datagram of an earlier run between this run's ports: unchanged, and as if it were from this run."""
    here = old._replace(source_port=like.source_port, destination_port=like.destination_port)
    job, = struct.unpack_from("<H", like.payload, JOB)
    return [here, here.changed(JOB, "<H", job).changed(EPOCH, "<B", like.payload[EPOCH])]


@unittest.skipIf(os.geteuid() != 0, "network namespaces need root")
class OnTheNetwork(Attacks):
    def setUp(self):
        self.network = self.enterContext(NetworkNamespaces(WORLD + 1, splits_bursts=True))
        self.tap = self.enterContext(Wiretap(self.network, range(WORLD)))
        self.addresses = [self.network.address(rank) for rank in range(WORLD)]

    def start_job(self):
        job = Job(self, WORLD, f"{self.addresses[0]}:5000", self.network.enter,
                  SPILLWAY_METRICS_LISTEN=METRICS_PORT)
        job.start(*range(WORLD))
        job.wait_until_ready()
        return job

    def hear(self):
        """A sample of the ranks' traffic: data and control packets of every pair."""
        sample = collections.defaultdict(list)
        for one in self.tap.hear():
            some = sample[self.flow_of(one)]
            if len(some) < SAMPLE:
                some.append(one)
            if len(sample) == 2 * WORLD * (WORLD - 1) and all(len(some) == SAMPLE for some in sample.values()):
                return [one for some in sample.values() for one in some]

    @staticmethod
    def flow_of(datagram):
        return datagram.source, datagram.destination, is_data(datagram)

    def counts(self):
        """Counts by rank and reason."""
        texts = metrics_in(METRICS_PORT, [self.network.names[rank] for rank in range(WORLD)])
        return {(rank, reason): count for rank, text in enumerate(texts) for reason, count in disbelieved(text).items()}

    def wait_for_fresh_counts(self, expected, is_done):
        """Ranks update their counts only from time to time. Once they have counted a canary, a datagram sent now,
        they have counted everything sent before. Its reason differs from those of this attack and the next one.
        """
        canary = "repeated" if any(reason == "stranger" for _, reason in expected) else "stranger"
        stranger = self.network.address(STRANGER)
        canaries = [one if canary == "repeated" else aborting(one, stranger) for one in self.data_to_each]
        before = self.counts()

        def are_fresh():
            for one in canaries:
                self.tap.send(one)
            now = self.counts()
            return all(now[rank, canary] > before[rank, canary] for rank in range(WORLD))

        wait_until(lambda: is_done() or are_fresh(), "fresh counts")

    def attack(self, job, name, send, expected):
        """Sends, and waits until each rank has counted all that arrived, once each. `expected` are counts by rank and
        reason. The job continues meanwhile.
        """
        before = self.counts()

        def counted():
            now = self.counts()
            return {which: now[which] - before[which] for which in expected}

        send()
        job.check_still_reducing()
        for _ in range(2):  # ICMP messages and datagrams wait in different queues
            self.wait_for_fresh_counts(expected, lambda: counted() == expected)
        now = counted()
        print(f"{name}: {now}" + ("" if now == expected else f" of {expected}"))
        for which, count in now.items():
            self.assertLessEqual(count, expected[which], name)
            self.assertGreater(count, expected[which] * LEAST_SHARE, name)

    def attack_with(self, job, name, forged, reason_of):
        expected = collections.Counter((self.addresses.index(one.destination), reason_of(one)) for one in forged)
        self.attack(job, name, lambda: self.send_all(job, forged, self.tap.send), expected)

    def send_all(self, job, packets, send):
        """Sends no faster than ranks read, as they would run out of room."""
        for number, packet in enumerate(packets):
            if number % SENT_AT_ONCE == 0:
                wait_until(lambda: max(map(unread_bytes, job.processes)) < MOST_UNREAD_BYTES, "ranks that read")
            send(packet)

    def test_whatever_is_sent_the_job_goes_on(self):
        first = self.start_job()
        earlier = self.hear()
        first.end_well()

        job = self.start_job()
        heard = self.hear()
        heard_at = time.monotonic()
        ports = {one.destination: one.destination_port for one in heard}
        flows = {self.flow_of(one): one for one in heard}
        self.data_to_each = list({one.destination: one for one in heard if is_data(one)}.values())
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
            self.attack_with(job, name, [packet for one in heard for packet in forge(one)], reason_of)
        old = [packet for one in earlier for packet in of_now(one, flows[self.flow_of(one)])]
        self.attack_with(job, "replay of an earlier run", old, lambda _: "bad")
        wait_until(lambda: time.monotonic() > heard_at + JUST_NOW_S, "the end of just now")
        self.forge_icmp(job, earlier, heard, flows)
        job.end_well()

    def forge_icmp(self, job, earlier, heard, flows):
        """From a host that is on no path: about datagrams of an earlier run, and about old ones of this run."""
        quoted = [of_now(one, flows[self.flow_of(one)])[1] for one in earlier]
        quoted += [one for one in heard if is_data(one)]
        raw = in_namespace(self.network.names[STRANGER],
                           lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
        self.addCleanup(raw.close)
        messages = [(icmp_message(code, ip_and_udp(one)[:QUOTED_BYTES]), (one.source, 0))
                    for one in quoted for code in (TOO_BIG, NO_PORT)]
        expected = collections.Counter(
            (self.addresses.index(one.source), reason) for one in quoted for reason in ("forged_refusal", "icmp"))
        self.attack(job, "forged ICMP", lambda: self.send_all(job, messages, lambda one: raw.sendto(*one)), expected)


if __name__ == "__main__":
    contain()
    Attacks.library = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
