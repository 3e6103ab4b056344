#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernel switch and the receivers' fix-up, between real interfaces.

    tests/lab/kernel_switch_test.py PATH_TO_SPILLWAY

Runs in its own network namespaces. Everything is skipped without the right to load programs.
"""
import collections
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.namespaces import in_namespace, ip
from harness.patience import Limit, wait_until
from harness.processes import Started, run
from kernel_rights import require_kernel_programs

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
NAME = f"test{os.getpid()}"
RATE, QUEUE_BYTES = 10e6, 32 << 10  # a port's, unless a test overrides them
SLOW = "100kbit", 100e3  # a port rate that this process exceeds many times over on any machine, however busy
PORT = 7077
WIRE_BYTES = 24  # preamble, checksum and gap of a frame

# A Spillway data packet's header (docs/wire.md): 32768 coordinates a row, 16 planes, 22 quanta,
# 80 bytes of head.
HEADER = bytes([0x41]) + bytes(31) + bytes([15, 0x50, 0, 0, 0, 22, 20, 0]) + bytes([0, 0, 0x80, 0x3F])
# Another, of a whole row: 8192 coordinates, 8 planes, 256 quanta, which are encoded as 0.
WHOLE_ROW = HEADER[:32] + bytes([13, 0x48, 0, 0, 0, 0]) + HEADER[38:]
SUM = 0x8  # type of a sum packet

SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM, ETHTOOL_GFLAGS, ETHTOOL_SGRO = 0x17, 0x25, 0x2C
RXVLAN = 0x100  # a flag of an interface's offloads

SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 8, 23, 3
VLAN_IS_VALID = 0x10

NETLINK_LINKS, NETLINK_TC = 1, 8  # groups that are notified of changes

Q, AD = bytes.fromhex("8100002a"), bytes.fromhex("88a80063")
TAGS = {"plain": b"", "q": Q, "ad": AD, "ad and q": AD + Q, "three tags": AD + Q + Q}
# Stations behind hosts 0 and 1 with other addresses than the hosts: their kernels do not answer for them.
ADDRESS = [bytes.fromhex(f"02535700020{i}") for i in range(2)]
EVERYBODY = b"\xff" * 6
# Stations whose frames show that everything before them has passed the switch.
MARKER = [bytes.fromhex(f"0253570003{i:02x}") for i in range(2)]


def checksum(data):
    total = sum(int.from_bytes(data[i:i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(receiver, sender, tags, payload=HEADER + bytes(1300)):
    """A datagram over IPv4 without a UDP checksum."""
    ip = bytearray(bytes.fromhex("4524000000010000401100000a4e00020a4e0001"))
    ip[2:4] = (28 + len(payload)).to_bytes(2, "big")
    ip[10:12] = checksum(ip).to_bytes(2, "big")
    udp = bytes.fromhex("1ba51ba5") + (8 + len(payload)).to_bytes(2, "big") + bytes(2)
    return receiver + sender + tags + bytes.fromhex("0800") + ip + udp + payload


def part(rank, word):
    """One rank's sum packet of job 1 for rank 0; two ranks complete the sum. All words are alike (docs/wire.md)."""
    header = bytearray(88)
    header[0] = 0x40 | SUM
    header[2:4] = (1).to_bytes(2, "little")
    header[4:6] = rank.to_bytes(2, "little")
    header[32], header[38], header[40] = 1, 2, 1 << rank
    return bytes(header) + word.to_bytes(8, "little") * 168


def trimmed(whole, tags, size=256):
    """The frame after a switch's trim: with its tags, and lengths that agree with the trim."""
    cut, ip = bytearray(whole[:size]), 14 + len(tags)
    cut[ip + 1] = 48 << 2
    cut[ip + 2:ip + 4] = (size - ip).to_bytes(2, "big")
    cut[ip + 10:ip + 12] = bytes(2)
    cut[ip + 10:ip + 12] = checksum(cut[ip:ip + 20]).to_bytes(2, "big")
    cut[ip + 24:ip + 26] = (size - ip - 20).to_bytes(2, "big")
    return bytes(cut)


def tool(*arguments, before=()):
    return run([*before, TOOL, *arguments])


def attached_programs():
    """Programs attached to this namespace's interfaces, as iproute2 sees them."""
    links = run(["ip", "-details", "link", "show"], check=True).stdout
    disciplines = run(["tc", "qdisc", "show"], check=True).stdout
    return links.count("prog/xdp"), disciplines.count("clsact")


def ethtool(interface, command, value=0):
    setting = (ctypes.c_uint32 * 2)(command, value)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(setting))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)
    return setting[1]


def namespace_of(host):
    return f"spillway-{os.getpid()}-{host}"


def udp_socket(host, target):
    """A host's socket whose datagrams have one DSCP."""
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    made = in_namespace(namespace_of(host), lambda: socket.socket(family, socket.SOCK_DGRAM))
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 9 << 2)
    else:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 9 << 2)
    return made


class Traffic(contextlib.ExitStack):
    """Datagrams to host 0, sent as fast as this process can, and the ones that host 0 receives, by length.

    The hosts resolve each other's addresses before the measured time begins.
    """

    BURST = 32

    def __init__(self, target="10.78.0.1", payload=HEADER + bytes(1300), senders=(1, 2), port=PORT):
        super().__init__()
        self.target, self.payload, self.port = target, payload, port
        self.frame_bits = 8 * (len(payload) + (62 if ":" in target else 42) + WIRE_BYTES)
        self.receiver = self.enter_context(udp_socket(0, target))
        self.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.receiver.bind((target, port))
        self.receiver.setblocking(False)
        self.senders = [self.enter_context(udp_socket(host, target)) for host in senders]
        self.lengths, self.heard = collections.Counter(), set()
        self.sent = 0
        self._find_each_other()
        self.began, self.sent_before = time.monotonic(), self.sent

    def _find_each_other(self):
        limit = Limit()
        for number, sender in enumerate(self.senders, 1):
            while len(self.heard) < number:
                if limit.left() == 0:
                    raise AssertionError(f"sender {number} does not reach {self.target}")
                self._send(sender)
                select.select([self.receiver], [], [], 0.02)
                self.receive()

    def _send(self, sender):
        try:
            sender.sendto(self.payload, (self.target, self.port))
            self.sent += 1
        except OSError:
            pass

    def receive(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                datagram, source = self.receiver.recvfrom(65536)
                self.lengths[len(datagram)] += 1
                self.heard.add(source[:2])

    def send_burst(self):
        for sender in self.senders:
            for _ in range(self.BURST):
                self._send(sender)
        self.receive()

    def send_until(self, is_enough, what):
        limit = Limit()
        while not is_enough(self):
            if limit.left() == 0:
                raise AssertionError(f"not {what}: {self.lengths} of {self.sent}")
            self.send_burst()
        return self

    def excess(self, rate=RATE):
        """Frames sent beyond what a link of this rate and its queue had room for."""
        room_bits = rate * (time.monotonic() - self.began) + 8 * QUEUE_BYTES
        return self.sent - self.sent_before - room_bits / self.frame_bits


class Station:
    """Frames on the wire of a host: those it sends, and those it receives from others."""

    def __init__(self, test, host):
        def make():
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            for option in (PACKET_AUXDATA, PACKET_IGNORE_OUTGOING):
                made.setsockopt(SOL_PACKET, option, 1)
            made.bind(("eth0", ETH_P_ALL))
            return made

        self.marker = MARKER[host]
        self.socket = in_namespace(namespace_of(host), make)
        test.addCleanup(self.socket.close)
        self.heard = []

    def say(self, *frames):
        for one in frames:
            self.socket.send(one)

    def listen(self):
        """Reads what has arrived. The kernel delivers the outermost VLAN tag beside its frame."""
        with contextlib.suppress(BlockingIOError):
            while True:
                one, notes, _, _ = self.socket.recvmsg(65536, 256, socket.MSG_DONTWAIT)
                status, _, _, _, _, tag, kind = struct.unpack("IIIHHHH", notes[0][2])
                if status & VLAN_IS_VALID:
                    one = one[:12] + struct.pack(">HH", kind, tag) + one[12:]
                self.heard.append(one)

    def heard_from(self, source):
        return [one for one in self.heard if one[6:12] == source]

    def reach(self, other):
        """Returns once the other station has received a frame of this one that is sent now: earlier frames have then
        passed the switch."""
        mark = os.urandom(8)

        def is_heard():
            other.say(frame(EVERYBODY, other.marker, b"", b"hello"))
            self.say(frame(other.marker, self.marker, b"", HEADER + mark))  # every kind of switch forwards it
            other.listen()
            return any(mark in one for one in other.heard_from(self.marker))

        wait_until(is_heard, "a frame through the switch")


class KernelSwitch(unittest.TestCase):
    """Three hosts, each a namespace, around ports p0 to p2 in this one."""

    PORTS = 3

    @classmethod
    def setUpClass(cls):
        ip("link", "set", "lo", "up")
        for i in range(cls.PORTS):
            host = namespace_of(i)
            ip("netns", "add", host)
            ip("link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("link", "set", f"p{i}", "up")
            ip("-n", host, "link", "set", "eth0", "address", f"02:53:57:00:01:0{i}", "up")
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "address", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
            ip("-n", host, "address", "add", f"fd78::{i + 1}/64", "dev", "eth0", "nodad")
            ip("-n", host, "link", "set", "eth0", "gso_max_segs", "1")
            in_namespace(host, cls.set_offloads)
        ip("link", "add", "bridge0", "type", "bridge")
        ip("link", "set", "bridge0", "up")
        for i in range(cls.PORTS):
            ip("link", "set", f"p{i}", "master", "bridge0")

    @staticmethod
    def set_offloads():
        """Frames as on a wire, with complete checksums; and eth0 able to receive what XDP sends it."""
        ethtool("eth0", ETHTOOL_STXCSUM, 0)
        ethtool("eth0", ETHTOOL_SGRO, 1)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.chmod(self.folder.name, 0o755)
        self.addCleanup(lambda: tool("switch", "detach", "--name", NAME))

    def config(self, interfaces=("p0", "p1", "p2"), rate=f"{RATE / 1e6:.0f}mbit", extra=""):
        path = pathlib.Path(self.folder.name) / "switch.scn"
        lines = [f"topology one-switch hosts={len(interfaces)} rate={rate} delay=1us",
                 f"switch mode=spillway queue={QUEUE_BYTES} ecn=0 early-drop=0 trim=256 priorities=1" + extra]
        lines += [f"port host=host{i} interface={name}" for i, name in enumerate(interfaces)]
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def attach(self, *arguments, **config):
        return tool("switch", "attach", "--config", self.config(**config), "--name", NAME,
                    *arguments)

    def stats(self):
        done = tool("switch", "stats", "--name", NAME, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return {port["port"]: port for port in json.loads(done.stdout)["ports"]}

    def send(self, is_enough, what, **traffic):
        """The packets that host 0 receives from the others until there are enough."""
        with Traffic(**traffic) as sending:
            return sending.send_until(is_enough, what)

    # -------------------------------------------------------------- forwarding

    def check_trims(self, traffic, head, whole):
        port = self.stats()["switch0->host0"]
        self.assertGreater(port["packets"]["trimmed"], 100, port)
        self.assertGreater(port["packets"]["admitted"], 100, port)
        self.assertEqual(set(traffic.lengths), {whole, head})
        self.assertLessEqual(sum(traffic.lengths.values()), traffic.sent)

    def test_trims_at_the_ports_rate(self):
        for hook in ("xdp", "tc"):
            for target, header in (("10.78.0.1", HEADER), ("fd78::1", WHOLE_ROW)):
                with self.subTest(hook=hook, target=target):
                    done = self.attach("--hook", hook)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    head, whole = 256 - (62 if ":" in target else 42), len(header) + 1300
                    with Traffic(target, header + bytes(1300)) as traffic:
                        traffic.send_until(lambda so_far: min(so_far.lengths[head], so_far.lengths[whole]) > 100,
                                           "whole frames and heads")
                        # Whole frames are those that the link had room for in that time, and never more.
                        passed = traffic.lengths[whole] - traffic.sent_before
                        self.assertLess(passed, traffic.sent - traffic.sent_before - traffic.excess() + 1)
                    self.check_trims(traffic, head, whole)
                    self.assertEqual(tool("switch", "detach", "--name", NAME).returncode, 0)
                    self.assertEqual(attached_programs(), (0, 0))

    def test_xdp_forwards_by_itself(self):
        """Once all stations have sent, no bridge is needed."""
        self.assertEqual(self.attach("--hook", "xdp", rate="10gbit").returncode, 0)
        for host in range(self.PORTS):
            ip("-n", namespace_of(host), "neighbour", "flush", "all")
        with Traffic() as traffic:  # all have resolved each other's addresses
            try:
                for i in range(self.PORTS):
                    ip("link", "set", f"p{i}", "nomaster")
                traffic.receive()
                traffic.lengths.clear()
                traffic.send_until(lambda so_far: so_far.lengths[len(HEADER) + 1300] > 1000, "whole frames")
            finally:
                for i in range(self.PORTS):
                    ip("link", "set", f"p{i}", "master", "bridge0")

    def test_leaves_others_alone_or_queues_them(self):
        slow, rate = SLOW
        for others, limited in (("pass", False), ("queue", True)):
            with self.subTest(others=others):
                self.assertEqual(self.attach("--hook", "tc", "--others", others, rate=slow).returncode, 0)
                traffic = self.send(lambda so_far: so_far.excess(rate) > 200, "more than the link takes",
                                    payload=bytes(1400))
                port = self.stats()["switch0->host0"]
                if limited:
                    self.assertGreater(port["packets"]["queue full"], 100)
                    self.assertEqual(port["untouched"], 0)
                else:
                    self.assertEqual(port["packets"]["queue full"], 0)
                    self.assertGreaterEqual(port["untouched"], traffic.lengths[1400])
                tool("switch", "detach", "--name", NAME)

    def test_survives_what_started_it(self):
        """Once attached it works without a process, and a new one finds settings and counts."""
        self.assertEqual(self.attach("--hook", "tc").returncode, 0)
        self.send(lambda so_far: so_far.lengths.total() > 100, "frames")
        first = self.stats()["switch0->host0"]["sent_packets"]
        self.assertGreater(first, 0)
        self.kill_a_watcher()
        self.send(lambda so_far: so_far.lengths.total() > 100, "frames")
        self.assertGreater(self.stats()["switch0->host0"]["sent_packets"], first)
        metrics = tool("switch", "stats", "--name", NAME, "--prometheus").stdout
        self.assertIn('spillway_switch_packets_total{port="switch0->host0",class="0",verdict="trimmed"}',
                      metrics)

    def kill_a_watcher(self):
        """Kills it in the middle of its work: once it has shown something on its terminal."""
        screen, terminal = os.openpty()
        self.addCleanup(os.close, screen)
        self.addCleanup(os.close, terminal)
        with Started([TOOL, "switch", "stats", "--name", NAME, "--watch"], stdout=terminal):
            wait_until(lambda: select.select([screen], [], [], 0)[0], "what a watcher shows")

    def test_slots_survive_what_attached_them(self):
        """A sum that one part began is completed by the next, whichever processes came and went meanwhile."""
        for hook in (("--hook", "xdp"), ("--hook", "tc", "--forward")):
            with self.subTest(hook=hook):
                done = self.attach(*hook, "--slots", "64", "--job-limit", "1=8", rate="1gbit")
                self.assertEqual(done.returncode, 0, done.stderr)
                listener, talker = self.stations()
                listener.say(frame(EVERYBODY, ADDRESS[0], b"", b"hello"))
                listener.reach(talker)
                talker.say(frame(ADDRESS[0], ADDRESS[1], b"", part(1, 5)))
                talker.reach(listener)
                job = self.sums_of_job(1)
                self.assertEqual((job["held"], job["limit"], job["packets"]["claims"]), (1, 8, 1))
                talker.say(frame(ADDRESS[0], ADDRESS[1], b"", part(2, 7)))
                talker.reach(listener)
                sums = [one[42:] for one in listener.heard_from(ADDRESS[1])]
                self.assertEqual([one[88:] for one in sums], [(12).to_bytes(8, "little") * 168])
                self.assertEqual(sums[0][40], 0b110)
                self.assertEqual(self.sums_of_job(1)["held"], 0)
                self.assertEqual(tool("switch", "detach", "--name", NAME).returncode, 0)
                self.assertEqual(attached_programs(), (0, 0))

    def sums_of_job(self, number):
        done = tool("switch", "stats", "--name", NAME, "--json")
        jobs = json.loads(done.stdout)["adders"][0]["jobs"]
        return next(job for job in jobs if job["job"] == number)

    def test_keeps_forwarding_under_a_flood_of_garbage(self):
        """Ten times the port's rate in small packets: other senders still get through."""
        slow, rate = SLOW
        self.assertEqual(self.attach("--hook", "tc", "--others", "queue", rate=slow).returncode, 0)
        with Traffic(senders=(1,)) as traffic, Traffic(payload=os.urandom(40), senders=(2,), port=PORT + 1) as flood:
            traffic.lengths.clear()
            limit = Limit()
            while traffic.lengths[256 - 42] + traffic.lengths[len(HEADER) + 1300] <= 100:
                self.assertGreater(limit.left(), 0, f"{traffic.lengths} of {traffic.sent}")
                flood.send_until(lambda so_far: so_far.excess(10 * rate) > 500, "a flood that fills the queue")
                traffic.send_burst()
            self.assertGreater(self.stats()["switch0->host0"]["packets"]["queue full"], 0)

    # -------------------------------------------------------------- tags, and the way back

    SWITCHES = {"xdp": ("--hook", "xdp"), "tc that forwards": ("--hook", "tc", "--forward"),
                "tc and a bridge": ("--hook", "tc"), "user space": None}

    @contextlib.contextmanager
    def switch(self, kind):
        """A switch whose ports trim packets longer than 1000 bytes; yields a function that ends it and returns its
        counts."""
        config = self.config(rate="1gbit")
        path = pathlib.Path(config)
        path.write_text(path.read_text().replace(f"queue={QUEUE_BYTES}", "queue=1000"))
        if kind != "tc and a bridge":
            for i in range(self.PORTS):
                ip("link", "set", f"p{i}", "nomaster")
        running = None
        try:
            if self.SWITCHES[kind]:
                done = tool("switch", "attach", "--config", config, "--name", NAME,
                            *self.SWITCHES[kind])
                self.assertEqual(done.returncode, 0, done.stderr)
            else:
                running = Started([TOOL, "switch", "run", config, "--json"], stderr=None)
                wait_until(self.has_packet_sockets, "the switch's sockets")
            yield lambda: self.end(running)
        finally:
            if running:
                running.end()
            tool("switch", "detach", "--name", NAME)
            for i in range(self.PORTS):
                ip("link", "set", f"p{i}", "master", "bridge0")

    def has_packet_sockets(self):
        return len(pathlib.Path("/proc/net/packet").read_text().splitlines()) > self.PORTS

    @staticmethod
    def end(running):
        if running:
            running.send_signal(signal.SIGTERM)
            return json.loads(running.finish()[0])
        return json.loads(tool("switch", "stats", "--name", NAME, "--json").stdout)

    def stations(self):
        return Station(self, 0), Station(self, 1)

    def test_trims_tagged_frames_alike_everywhere(self):
        """Tags stay, and lengths agree with the trim; frames with too many tags pass untouched."""
        for kind in self.SWITCHES:
            with self.subTest(switch=kind), self.switch(kind) as end:
                hellos = [frame(EVERYBODY, ADDRESS[0], tags, b"hello") for tags in TAGS.values()]
                listener, talker = self.stations()
                listener.say(*hellos)
                listener.reach(talker)
                whole = {name: frame(ADDRESS[0], ADDRESS[1], tags) for name, tags in TAGS.items()}
                whole["three tags"] = frame(ADDRESS[0], ADDRESS[1], TAGS["three tags"],
                                            HEADER + bytes(800))  # fits: other frames are not trimmed
                talker.say(*whole.values())
                talker.reach(listener)
                came = listener.heard_from(ADDRESS[1])
                expected = {trimmed(whole[name], tags) for name, tags in TAGS.items()
                            if name != "three tags"}
                if kind != "xdp":  # xdp leaves it to a bridge, and there is none
                    expected.add(whole["three tags"])
                self.assertEqual(set(came), expected)
                port = {port["port"]: port for port in end()["ports"]}["switch0->host0"]
                self.assertEqual(port["packets"]["trimmed"], 4)

    def test_never_sends_back_where_it_came_from(self):
        neighbour = bytes.fromhex("025357000299")  # also behind host 1's port
        for kind in self.SWITCHES:
            with self.subTest(switch=kind), self.switch(kind) as end:
                said = []
                for tags in (b"", Q, AD + Q):
                    said += [frame(EVERYBODY, neighbour, tags, b"hello"),
                             frame(neighbour, ADDRESS[1], tags)]
                listener, talker = self.stations()
                talker.say(*said)
                talker.reach(listener)
                listener.reach(talker)  # after anything that came back
                self.assertEqual(talker.heard_from(ADDRESS[1]), [])
                self.assertEqual(listener.heard_from(ADDRESS[1]), [])
                stats = end()
                if kind != "tc and a bridge":  # there the bridge decides
                    self.assertEqual(stats["same_port"], 3)

    def vlan_offload(self, name):
        return ethtool(name, ETHTOOL_GFLAGS) & RXVLAN

    def test_turns_vlan_offload_off_for_xdp_and_gives_it_back(self):
        self.assertEqual(self.vlan_offload("p0"), RXVLAN)
        for hook, while_attached in (("tc", RXVLAN), ("xdp", 0)):
            done = self.attach("--hook", hook)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.vlan_offload("p0"), while_attached, hook)
            self.assertEqual("txvlan off" in done.stderr, hook == "xdp", done.stderr)
            self.assertEqual(tool("switch", "detach", "--name", NAME).returncode, 0)
            self.assertEqual(self.vlan_offload("p0"), RXVLAN, hook)
        self.assertEqual(self.attach("--hook", "xdp", interfaces=("p0", "nosuch")).returncode, 1)
        self.assertEqual(self.vlan_offload("p0"), RXVLAN)

    # -------------------------------------------------------------- the fix-up

    def test_fixup_brings_heads_to_sockets(self):
        for lengths_mode in ("stale", "udp-stale"):
            for target in ("10.78.0.1", "fd78::1"):
                with self.subTest(lengths=lengths_mode, target=target):
                    self.check_fixup(lengths_mode, target)

    def check_fixup(self, lengths_mode, target):
        head = 256 - (62 if ":" in target else 42)
        done = self.attach("--hook", "tc", extra=f" lengths={lengths_mode}")
        self.assertEqual(done.returncode, 0, done.stderr)
        traffic = self.send(lambda _: self.stats()["switch0->host0"]["packets"]["trimmed"] > 100, "trims",
                            target=target)
        self.assertNotIn(head, traffic.lengths, "the kernel takes stale lengths?")
        on_host = ["ip", "netns", "exec", namespace_of(0), "nsenter",
                   f"--mount=/proc/{os.getpid()}/ns/mnt"]
        done = tool("fixup", "attach", "--interface", "eth0", before=on_host)
        self.assertEqual(done.returncode, 0, done.stderr)
        try:
            lengths = self.send(lambda so_far: so_far.lengths[head] > 100, "heads", target=target).lengths
            counts = json.loads(tool("fixup", "--json").stdout)
            self.assertGreaterEqual(counts[0]["fixed"], lengths[head])
            self.assertEqual(counts[0]["refused"], 0)
        finally:
            self.assertEqual(tool("fixup", "detach", "--interface", "eth0", before=on_host).returncode, 0)
        self.assertEqual(tool("switch", "detach", "--name", NAME).returncode, 0)

    # -------------------------------------------------------------- failures

    def test_attaches_all_ports_or_none(self):
        for hook in ("xdp", "tc"):
            done = self.attach("--hook", hook, interfaces=("p0", "p1", "nosuch"))
            self.assertEqual(done.returncode, 1)
            self.assertIn("no interface nosuch", done.stderr)
            self.assertEqual(attached_programs(), (0, 0))
            self.assertIn("no switch named", tool("switch", "stats", "--name", NAME).stderr)

    def test_replaces_nothing(self):
        for hook in ("tc", "xdp"):
            self.assertEqual(self.attach("--hook", hook, interfaces=("p1", "p2")).returncode, 0)
            before = attached_programs(), self.filters()
            done = tool("switch", "attach", "--config", self.config(), "--hook", hook, "--name",
                        NAME + "b")
            self.assertEqual(done.returncode, 1)
            self.assertIn("another program is attached", done.stderr)
            self.assertEqual((attached_programs(), self.filters()), before)
            self.assertIn("spillway", self.filters())
            if hook == "tc":
                self.assertEqual(tool("switch", "detach", "--name", NAME).returncode, 0)
        done = self.attach("--hook", "xdp", interfaces=("p0", "p2"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("is attached", done.stderr)

    def filters(self):
        """The programs on the ports' egress."""
        return "".join(
            run(["tc", "filter", "show", "dev", f"p{i}", "egress"]).stdout for i in range(self.PORTS))

    def test_detaches_after_an_interface_is_gone(self):
        ip("link", "add", "gone0", "type", "veth", "peer", "name", "gone1")
        self.assertEqual(self.attach("--hook", "xdp", interfaces=("p0", "gone0")).returncode, 0)
        ip("link", "delete", "gone0")
        self.assertEqual(tool("switch", "detach", "--name", NAME).returncode, 0)
        self.assertEqual(attached_programs(), (0, 0))

    def test_names_interfaces_without_xdp_in_their_driver(self):
        for name in ("general0", "general1"):
            ip("link", "add", name, "type", "bridge")
            self.addCleanup(ip, "link", "delete", name)
        done = self.attach("--hook", "xdp", interfaces=("general0", "general1"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("general0: its driver has no XDP", done.stderr)
        self.assertIn("general1: its driver has no XDP", done.stderr)
        self.assertEqual(tool("switch", "detach", "--name", NAME).returncode, 0)
        self.assertEqual(attached_programs(), (0, 0))

    def test_can_be_detached_after_a_kill(self):
        """Whenever attach is killed, detach finds what it left: before and after it has pinned something, and while
        it changes interfaces, which the kernel reports."""
        self.assertEqual(self.attach().returncode, 0)
        all_pins = self.pins()
        self.assertEqual(tool("switch", "detach", "--name", NAME).returncode, 0)
        stages = [(pins, 0) for pins in (0, all_pins // 2)] + [(0, changes) for changes in (1, 4)]
        for pins, changes in stages:
            with self.subTest(pins=pins, changes=changes):
                self.kill_attach_at(pins, changes)
                done = tool("switch", "detach", "--name", NAME)
                self.assertTrue(done.returncode == 0 or "no switch named" in done.stderr, done.stderr)
                self.assertEqual(attached_programs(), (0, 0))
        self.assertEqual(self.attach().returncode, 0)

    @staticmethod
    def pins():
        return sum(len(files) for _, _, files in os.walk("/sys/fs/bpf"))

    def kill_attach_at(self, pins, changes):
        """Or once it has ended, if it is faster than this process."""
        told = 0
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
            kernel.bind((0, NETLINK_LINKS | NETLINK_TC))
            kernel.setblocking(False)
            with Started([TOOL, "switch", "attach", "--config", self.config(), "--name", NAME]) as maker:
                while maker.poll() is None and (self.pins() < pins or told < changes):
                    with contextlib.suppress(BlockingIOError):
                        kernel.recv(65536)
                        told += 1

    def test_says_what_it_lacks(self):
        if shutil.which("setpriv"):
            done = tool("switch", "attach", "--config", self.config(), "--name", NAME, before=NOBODY)
            self.assertEqual(done.returncode, 1)
            self.assertIn("CAP_BPF", done.stderr)
        done = self.attach("--hook", "tc", "--slots", "64")
        self.assertEqual(done.returncode, 1)
        self.assertIn("use --hook xdp, or add --forward", done.stderr)
        done = self.attach("--slots", "64", "--job-limit", "7=100")
        self.assertEqual(done.returncode, 2)
        self.assertIn("job 7 may hold 100 slots, but there are 64", done.stderr)
        for line, word in (("tenant from=host0 to=host1 protocol=udp rate=50%", "tenant"),
                           ("fault kind=bursty link=switch0->host0 share=1%", "fault")):
            path = pathlib.Path(self.config())
            path.write_text(path.read_text() + line + "\n")
            done = tool("switch", "attach", "--config", str(path), "--name", NAME)
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stderr)
            self.assertIn("spillway switch run", done.stderr)
        done = tool("switch", "attach", "--config", self.config(), "--name", "../etc")
        self.assertEqual(done.returncode, 1)
        self.assertIn("letters", done.stderr)


if __name__ == "__main__":
    require_kernel_programs(TOOL)
    unittest.main(verbosity=2)
