#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The switch in the kernel and the receivers' fix-up, between real interfaces.

    tests/lab/kernel_switch_test.py PATH_TO_SPILLWAY

Works in network namespaces of its own. Without the right to load programs everything is skipped.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from kernel_rights import require_kernel_programs

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
NAME = f"test{os.getpid()}"

# A Spillway data packet's header (docs/wire.md): 32768 coordinates a row, 16 planes, 22 quanta,
# 80 bytes of head.
HEADER = (bytes([0x21]) + bytes(31) + bytes([0x1F, 0x50, 0, 0, 0, 22, 20, 0]) + bytes(4) +
          bytes([0, 0, 0x80, 0x3F]))
# Another, of a whole row: 8192 coordinates, 8 planes, 256 quanta, which 0 stands for.
WHOLE_ROW = HEADER[:32] + bytes([0x1D, 0x48, 0, 0, 0, 0]) + HEADER[38:]
SUM = 0x8  # type of a sum packet

# Frames as on a wire, with whole checksums; and eth0 able to take what XDP sends it.
OFFLOADS = r"""
import ctypes, fcntl, socket, struct
ETHTOOL_STXCSUM, ETHTOOL_SGRO, SIOCETHTOOL = 0x17, 0x2C, 0x8946
for command, value in ((ETHTOOL_STXCSUM, 0), (ETHTOOL_SGRO, 1)):
    setting = (ctypes.c_uint32 * 2)(command, value)
    request = struct.pack("16sP16x", b"eth0", ctypes.addressof(setting))
    fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), SIOCETHTOOL, request)
"""

# Sends Spillway's and others' datagrams as fast as it can, at one DSCP.
SENDER = r"""
import socket, sys, time
target, seconds, payload = sys.argv[1], float(sys.argv[2]), bytes.fromhex(sys.argv[3])
family = socket.AF_INET6 if ":" in target else socket.AF_INET
sender = socket.socket(family, socket.SOCK_DGRAM)
if family == socket.AF_INET6:
    sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 9 << 2)
else:
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 9 << 2)
end, sent = time.monotonic() + seconds, 0
while time.monotonic() < end:
    for _ in range(16):
        try:
            sender.sendto(payload, (target, 7077)); sent += 1
        except OSError:
            pass
print(sent)
"""

# Counts datagrams by length until its input ends and none has come for a while.
RECEIVER = r"""
import collections, json, select, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
receiver = socket.socket(family, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
receiver.bind((sys.argv[1], 7077))
receiver.settimeout(float(sys.argv[2]))
lengths = collections.Counter()
print("ready", flush=True)
while True:
    try:
        lengths[len(receiver.recv(65536))] += 1
    except TimeoutError:
        if select.select([sys.stdin], [], [], 0)[0]:
            break
print(json.dumps(lengths))
"""

# Frames as they are on the wire: says a few of its own and, once its input ends and none has come
# for a while, tells which came from one address. The kernel hands over the outermost VLAN tag beside
# its frame.
TALKER = r"""
import json, socket, struct, sys
said, source = json.loads(sys.argv[1]), bytes.fromhex(sys.argv[2])
SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
talker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
for option in (PACKET_AUXDATA, PACKET_IGNORE_OUTGOING):
    talker.setsockopt(SOL_PACKET, option, 1)
talker.bind(("eth0", 3))
for frame in said:
    talker.send(bytes.fromhex(frame))
print("ready", flush=True)
sys.stdin.read()
talker.settimeout(0.5)
heard = []
try:
    while True:
        frame, notes, _, _ = talker.recvmsg(65536, 256)
        status, _, _, _, _, tag, kind = struct.unpack("IIIHHHH", notes[0][2])
        if status & 0x10:
            frame = frame[:12] + struct.pack(">HH", kind, tag) + frame[12:]
        if frame[6:12] == source:
            heard.append(frame.hex())
except TimeoutError:
    pass
print(json.dumps(heard))
"""

# Flags of an interface's offloads: 0x100 is rxvlan, 0x80 is txvlan.
FLAGS = r"""
import ctypes, fcntl, socket, struct, sys
setting = (ctypes.c_uint32 * 2)(0x25, 0)
request = struct.pack("16sP16x", sys.argv[1].encode(), ctypes.addressof(setting))
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)
print(setting[1])
"""
RXVLAN = 0x100

Q, AD = bytes.fromhex("8100002a"), bytes.fromhex("88a80063")
TAGS = {"plain": b"", "q": Q, "ad": AD, "ad and q": AD + Q, "three tags": AD + Q + Q}
# Stations behind hosts 0 and 1 that are not the hosts' own: their kernels say nothing about them.
ADDRESS = [bytes.fromhex(f"02535700020{i}") for i in range(2)]
EVERYBODY = b"\xff" * 6


def checksum(data):
    total = sum(int.from_bytes(data[i:i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(receiver, sender, tags, payload=HEADER + bytes(1300)):
    """A datagram over IPv4; its UDP checksum is left out."""
    ip = bytearray(bytes.fromhex("4524000000010000401100000a4e00020a4e0001"))
    ip[2:4] = (28 + len(payload)).to_bytes(2, "big")
    ip[10:12] = checksum(ip).to_bytes(2, "big")
    udp = bytes.fromhex("1ba51ba5") + (8 + len(payload)).to_bytes(2, "big") + bytes(2)
    return receiver + sender + tags + bytes.fromhex("0800") + ip + udp + payload


def part(rank, word):
    """A sum packet of job 1 for rank 0 that two ranks make whole, all words alike (docs/wire.md)."""
    header = bytearray(88)
    header[0] = 0x20 | SUM
    header[2:4] = (1).to_bytes(2, "little")
    header[6:8] = rank.to_bytes(2, "little")
    header[32], header[38], header[40] = 1, 2, 1 << rank
    return bytes(header) + word.to_bytes(8, "little") * 168


def trimmed(whole, tags, size=256):
    """What a switch leaves of such a frame: its tags, and lengths that agree with the cut."""
    cut, ip = bytearray(whole[:size]), 14 + len(tags)
    cut[ip + 1] = 48 << 2
    cut[ip + 2:ip + 4] = (size - ip).to_bytes(2, "big")
    cut[ip + 10:ip + 12] = bytes(2)
    cut[ip + 10:ip + 12] = checksum(cut[ip:ip + 20]).to_bytes(2, "big")
    cut[ip + 24:ip + 26] = (size - ip - 20).to_bytes(2, "big")
    return bytes(cut)


def tool(*arguments, before=()):
    return subprocess.run([*before, str(TOOL), *arguments], capture_output=True, text=True,
                          timeout=120, check=False)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def attached_programs():
    """What is attached to this namespace's interfaces, as iproute2 sees it."""
    links = subprocess.run(["ip", "-details", "link", "show"], capture_output=True, text=True,
                           check=True).stdout
    disciplines = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True,
                                 check=True).stdout
    return links.count("prog/xdp"), disciplines.count("clsact")


class KernelSwitch(unittest.TestCase):
    """Three hosts, each a namespace, around ports p0 to p2 in this one."""

    PORTS = 3

    @classmethod
    def setUpClass(cls):
        ip("link", "set", "lo", "up")
        for i in range(cls.PORTS):
            host = f"spillway-{os.getpid()}-{i}"
            ip("netns", "add", host)
            ip("link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("link", "set", f"p{i}", "up")
            ip("-n", host, "link", "set", "eth0", "address", f"02:53:57:00:01:0{i}", "up")
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "address", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
            ip("-n", host, "address", "add", f"fd78::{i + 1}/64", "dev", "eth0", "nodad")
            ip("-n", host, "link", "set", "eth0", "gso_max_segs", "1")
            subprocess.run(["ip", "netns", "exec", host, "python3", "-c", OFFLOADS], check=True)
        ip("link", "add", "bridge0", "type", "bridge")
        ip("link", "set", "bridge0", "up")
        for i in range(cls.PORTS):
            ip("link", "set", f"p{i}", "master", "bridge0")

    @classmethod
    def tearDownClass(cls):
        for i in range(cls.PORTS):
            subprocess.run(["ip", "netns", "delete", f"spillway-{os.getpid()}-{i}"], check=False)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.chmod(self.folder.name, 0o755)
        self.addCleanup(lambda: tool("switch", "detach", "--name", NAME))

    def config(self, interfaces=("p0", "p1", "p2"), rate="100mbit", extra=""):
        path = pathlib.Path(self.folder.name) / "switch.scn"
        lines = [f"topology one-switch hosts={len(interfaces)} rate={rate} delay=1us",
                 "switch mode=spillway queue=32k ecn=0 early-drop=0 trim=256 priorities=1" + extra]
        lines += [f"port host=host{i} interface={name}" for i, name in enumerate(interfaces)]
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def attach(self, *arguments, **config):
        return tool("switch", "attach", "--config", self.config(**config), "--name", NAME,
                    *arguments)

    def on(self, host, script, *arguments):
        return subprocess.Popen(
            ["ip", "netns", "exec", f"spillway-{os.getpid()}-{host}", "python3", "-c", script,
             *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stats(self):
        done = tool("switch", "stats", "--name", NAME, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return {port["port"]: port for port in json.loads(done.stdout)["ports"]}

    def send(self, target="10.78.0.1", payload=HEADER + bytes(1300), senders=(1, 2), seconds=0.6):
        """What host 0 receives of what the senders send, by length, and how many were sent."""
        receiver = self.on(0, RECEIVER, target, "0.5")
        self.assertEqual(receiver.stdout.readline().strip(), "ready")
        sending = [self.on(host, SENDER, target, str(seconds), payload.hex()) for host in senders]
        sent = sum(int(sender.communicate(timeout=60)[0]) for sender in sending)
        lengths = json.loads(receiver.communicate(timeout=60)[0])
        return {int(length): count for length, count in lengths.items()}, sent

    # -------------------------------------------------------------- forwarding

    def check_trims(self, lengths, sent, target):
        headers = 62 if ":" in target else 42
        port = self.stats()["switch0->host0"]
        self.assertGreater(port["packets"]["trimmed"], 100, port)
        self.assertGreater(port["packets"]["admitted"], 100, port)
        self.assertGreater(lengths[len(HEADER) + 1300], 100)
        self.assertGreater(lengths[256 - headers], 100)
        self.assertEqual(set(lengths), {len(HEADER) + 1300, 256 - headers})
        # Whole frames are those the link had room for in that time, and never more.
        wire_bytes = (len(HEADER) + 1300 + headers + 24)
        self.assertLess(lengths[len(HEADER) + 1300] * wire_bytes * 8, 100e6)
        self.assertLessEqual(sum(lengths.values()), sent)

    def test_trims_at_the_ports_rate(self):
        for hook in ("xdp", "tc"):
            for target, header in (("10.78.0.1", HEADER), ("fd78::1", WHOLE_ROW)):
                with self.subTest(hook=hook, target=target):
                    done = self.attach("--hook", hook)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    lengths, sent = self.send(target, header + bytes(1300))
                    self.check_trims(lengths, sent, target)
                    self.assertEqual(tool("switch", "detach", "--name", NAME).returncode, 0)
                    self.assertEqual(attached_programs(), (0, 0))

    def test_xdp_forwards_by_itself(self):
        """Once everybody has been heard no bridge is needed."""
        self.assertEqual(self.attach("--hook", "xdp", rate="10gbit").returncode, 0)
        for host in range(self.PORTS):
            subprocess.run(["ip", "-n", f"spillway-{os.getpid()}-{host}", "neighbour", "flush", "all"],
                           check=True)
        self.send(seconds=0.2)
        try:
            for i in range(self.PORTS):
                ip("link", "set", f"p{i}", "nomaster")
            lengths, _ = self.send(seconds=0.5)
        finally:
            for i in range(self.PORTS):
                ip("link", "set", f"p{i}", "master", "bridge0")
        self.assertGreater(lengths.get(len(HEADER) + 1300, 0), 1000)

    def test_leaves_others_alone_or_queues_them(self):
        for others, limited in (("pass", False), ("queue", True)):
            with self.subTest(others=others):
                self.assertEqual(self.attach("--hook", "tc", "--others", others).returncode, 0)
                lengths, sent = self.send(payload=bytes(1400))
                port = self.stats()["switch0->host0"]
                if limited:
                    self.assertGreater(port["packets"]["queue full"], 100)
                    self.assertEqual(port["untouched"], 0)
                else:
                    self.assertEqual(port["packets"]["queue full"], 0)
                    self.assertGreaterEqual(port["untouched"], lengths[1400])
                    self.assertGreater(sent * 1466 * 8, 100e6, "the senders were too slow to tell")
                tool("switch", "detach", "--name", NAME)

    def test_survives_what_started_it(self):
        """Once attached it works without a process, and a new one finds settings and counts."""
        self.assertEqual(self.attach("--hook", "tc").returncode, 0)
        self.send(seconds=0.3)
        first = self.stats()["switch0->host0"]["sent_packets"]
        self.assertGreater(first, 0)
        watcher = subprocess.Popen([str(TOOL), "switch", "stats", "--name", NAME, "--watch"],
                                   stdout=subprocess.DEVNULL)
        time.sleep(0.3)
        watcher.send_signal(signal.SIGKILL)
        watcher.wait()
        self.send(seconds=0.3)
        self.assertGreater(self.stats()["switch0->host0"]["sent_packets"], first)
        metrics = tool("switch", "stats", "--name", NAME, "--prometheus").stdout
        self.assertIn('spillway_switch_packets_total{port="switch0->host0",class="0",verdict="trimmed"}',
                      metrics)

    def test_slots_survive_what_attached_them(self):
        """A sum that one part began is whole with the next, whoever came and went meanwhile."""
        for hook in (("--hook", "xdp"), ("--hook", "tc", "--forward")):
            with self.subTest(hook=hook):
                done = self.attach(*hook, "--slots", "64", "--job-limit", "1=8", rate="1gbit")
                self.assertEqual(done.returncode, 0, done.stderr)
                listener = self.talk(0, [frame(EVERYBODY, ADDRESS[0], b"", b"hello")], ADDRESS[1])
                self.heard(self.talk(1, [frame(ADDRESS[0], ADDRESS[1], b"", part(1, 5))], ADDRESS[0]))
                job = self.sums_of_job(1)
                self.assertEqual((job["held"], job["limit"], job["packets"]["claims"]), (1, 8, 1))
                self.heard(self.talk(1, [frame(ADDRESS[0], ADDRESS[1], b"", part(2, 7))], ADDRESS[0]))
                sums = [one[42:] for one in self.heard(listener)]
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
        """Ten times the port's rate in small packets: whoever else sends still gets through."""
        self.assertEqual(self.attach("--hook", "tc", "--others", "queue", rate="4mbit").returncode, 0)
        flood = self.on(2, SENDER, "10.78.0.1", "2.0", os.urandom(40).hex())
        time.sleep(0.3)
        lengths, sent = self.send(senders=(1,), seconds=0.8)
        flooded = int(flood.communicate(timeout=60)[0])
        port = self.stats()["switch0->host0"]
        self.assertGreater(flooded * (40 + 42 + 24) * 8 / 2.0, 10 * 4e6, "no flood")
        heads = lengths.get(256 - 42, 0)
        whole = lengths.get(len(HEADER) + 1300, 0)
        self.assertGreater(heads + whole, 100, port)
        self.assertGreater(sent, 0)

    # -------------------------------------------------------------- tags, and the way back

    SWITCHES = {"xdp": ("--hook", "xdp"), "tc that forwards": ("--hook", "tc", "--forward"),
                "tc and a bridge": ("--hook", "tc"), "user space": None}

    @contextlib.contextmanager
    def switch(self, kind):
        """A switch whose ports trim whatever is longer than 1000 bytes; yields how to end it, which
        gives its counts."""
        config = self.config(rate="1gbit")
        path = pathlib.Path(config)
        path.write_text(path.read_text().replace("queue=32k", "queue=1000"))
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
                running = subprocess.Popen([str(TOOL), "switch", "run", config, "--json"],
                                           stdout=subprocess.PIPE, text=True)
                self.wait_for_packet_sockets()
            yield lambda: self.end(running)
        finally:
            if running and running.poll() is None:
                running.kill()
                running.communicate()
            tool("switch", "detach", "--name", NAME)
            for i in range(self.PORTS):
                ip("link", "set", f"p{i}", "master", "bridge0")

    def wait_for_packet_sockets(self):
        until = time.monotonic() + 30
        while len(pathlib.Path("/proc/net/packet").read_text().splitlines()) <= self.PORTS:
            self.assertLess(time.monotonic(), until, "the switch does not come up")
            time.sleep(0.05)

    @staticmethod
    def end(running):
        if running:
            running.send_signal(signal.SIGTERM)
            return json.loads(running.communicate(timeout=60)[0])
        return json.loads(tool("switch", "stats", "--name", NAME, "--json").stdout)

    def talk(self, host, said, source):
        talker = self.on(host, TALKER, json.dumps([one.hex() for one in said]), source.hex())
        self.assertEqual(talker.stdout.readline().strip(), "ready")
        return talker

    def heard(self, talker):
        return [bytes.fromhex(one) for one in json.loads(talker.communicate(timeout=60)[0])]

    def test_trims_tagged_frames_alike_everywhere(self):
        """Tags stay, lengths agree with the cut; what has too many tags goes on untouched."""
        for kind in self.SWITCHES:
            with self.subTest(switch=kind), self.switch(kind) as end:
                hellos = [frame(EVERYBODY, ADDRESS[0], tags, b"hello") for tags in TAGS.values()]
                listener = self.talk(0, hellos, ADDRESS[1])
                whole = {name: frame(ADDRESS[0], ADDRESS[1], tags) for name, tags in TAGS.items()}
                whole["three tags"] = frame(ADDRESS[0], ADDRESS[1], TAGS["three tags"],
                                            HEADER + bytes(800))  # fits: others' are not trimmed
                self.heard(self.talk(1, whole.values(), ADDRESS[0]))
                came = self.heard(listener)
                expected = {trimmed(whole[name], tags) for name, tags in TAGS.items()
                            if name != "three tags"}
                if kind != "xdp":  # which leaves it to a bridge, and there is none
                    expected.add(whole["three tags"])
                self.assertEqual(set(came), expected)
                port = {port["port"]: port for port in end()["ports"]}["switch0->host0"]
                self.assertEqual(port["packets"]["trimmed"], 4)

    def test_never_sends_back_where_it_came_from(self):
        neighbour = bytes.fromhex("025357000299")  # behind host 1's port, too
        for kind in self.SWITCHES:
            with self.subTest(switch=kind), self.switch(kind) as end:
                said = []
                for tags in (b"", Q, AD + Q):
                    said += [frame(EVERYBODY, neighbour, tags, b"hello"),
                             frame(neighbour, ADDRESS[1], tags)]
                listener = self.talk(0, [], ADDRESS[1])
                self.assertEqual(self.heard(self.talk(1, said, ADDRESS[1])), [])
                self.assertEqual(self.heard(listener), [])
                stats = end()
                if kind != "tc and a bridge":  # the bridge forwards, or does not
                    self.assertEqual(stats["same_port"], 3)

    def vlan_offload(self, name):
        return int(subprocess.run(["python3", "-c", FLAGS, name], check=True, capture_output=True,
                                  text=True).stdout) & RXVLAN

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
        lengths, _ = self.send(target, seconds=0.3)
        self.assertGreater(self.stats()["switch0->host0"]["packets"]["trimmed"], 100)
        self.assertNotIn(head, lengths, "the kernel takes stale lengths?")
        on_host = ["ip", "netns", "exec", f"spillway-{os.getpid()}-0", "nsenter",
                   f"--mount=/proc/{os.getpid()}/ns/mnt"]
        done = tool("fixup", "attach", "--interface", "eth0", before=on_host)
        self.assertEqual(done.returncode, 0, done.stderr)
        try:
            lengths, _ = self.send(target, seconds=0.3)
            self.assertGreater(lengths.get(head, 0), 100, lengths)
            counts = json.loads(tool("fixup", "stats", "--json").stdout)
            self.assertGreaterEqual(counts[0]["fixed"], lengths[head])
            self.assertEqual(counts[0]["refused"], 0)
        finally:
            self.assertEqual(tool("fixup", "detach", "--interface", "eth0", before=on_host).returncode, 0)
        self.assertEqual(tool("switch", "detach", "--name", NAME).returncode, 0)

    # -------------------------------------------------------------- what goes wrong

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
        """The programs on the ports' ways out."""
        return "".join(
            subprocess.run(["tc", "filter", "show", "dev", f"p{i}", "egress"], capture_output=True,
                           text=True, check=False).stdout for i in range(self.PORTS))

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
        """Whenever attach is killed, detach finds what there is of it."""
        for milliseconds in (20, 150, 250, 280, 310, 340, 400):
            maker = subprocess.Popen([str(TOOL), "switch", "attach", "--config", self.config(),
                                      "--name", NAME], stdout=subprocess.DEVNULL)
            time.sleep(milliseconds / 1000)
            maker.kill()
            maker.wait()
            done = tool("switch", "detach", "--name", NAME)
            self.assertTrue(done.returncode == 0 or "no switch named" in done.stderr, done.stderr)
            self.assertEqual(attached_programs(), (0, 0))
        self.assertEqual(self.attach().returncode, 0)

    def test_says_what_it_lacks(self):
        if shutil.which("setpriv"):
            done = tool("switch", "attach", "--config", self.config(), "--name", NAME, before=NOBODY)
            self.assertEqual(done.returncode, 1)
            self.assertIn("CAP_BPF", done.stderr)
        done = self.attach("--hook", "tc", "--slots", "64")
        self.assertEqual(done.returncode, 1)
        self.assertIn("use --hook xdp, or add --forward", done.stderr)
        done = self.attach("--slots", "64", "--job-limit", "7=100")
        self.assertEqual(done.returncode, 1)
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
