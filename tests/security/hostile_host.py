# SPDX-License-Identifier: Apache-2.0
"""The attackers' means: sockets on other hosts (network namespaces; needs root), a tap on every link, and datagrams
with any content and source.
"""
import contextlib
import select
import socket
import struct
import typing

from forged_packets import checksum
from harness.namespaces import in_namespace
from harness.patience import Limit

ETH_P_ALL, ETH_P_IP, ETH_P_IPV6 = 3, 0x0800, 0x86DD
OUTGOING = 4  # a packet socket's type of outgoing frames
ETHERNET, IPV4, IPV6, UDP = 14, 20, 40, 8  # bytes of headers


class Datagram(typing.NamedTuple):
    source: str
    source_port: int
    destination: str
    destination_port: int
    payload: bytes

    def changed(self, offset, layout, value):
        """A copy with another number at this place of the payload; `value` may be a function of the old one."""
        if callable(value):
            value = value(struct.unpack_from(layout, self.payload, offset)[0])
        payload = bytearray(self.payload)
        struct.pack_into(layout, payload, offset, value)
        return self._replace(payload=bytes(payload))

    def turned_round(self):
        return Datagram(self.destination, self.destination_port, self.source, self.source_port, self.payload)


def ip_and_udp(datagram):
    """Over IPv4 without a UDP checksum: a captured one may not have been filled in yet."""
    if ":" in datagram.source:
        return ip6_and_udp(datagram)
    udp = struct.pack("!HHHH", datagram.source_port, datagram.destination_port, 8 + len(datagram.payload), 0)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(datagram.payload), 1, 0x4000, 64, socket.IPPROTO_UDP, 0,
                         socket.inet_aton(datagram.source), socket.inet_aton(datagram.destination))
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return header + udp + datagram.payload


def ip6_and_udp(datagram):
    size = UDP + len(datagram.payload)
    ends = b"".join(socket.inet_pton(socket.AF_INET6, end) for end in (datagram.source, datagram.destination))
    ports = struct.pack("!HHH", datagram.source_port, datagram.destination_port, size)
    pseudo = ends + struct.pack("!II", size, socket.IPPROTO_UDP)
    total = checksum(pseudo + ports + b"\0\0" + datagram.payload) or 0xFFFF
    header = struct.pack("!IHBB", 6 << 28, size, socket.IPPROTO_UDP, 64) + ends
    return header + ports + struct.pack("!H", total) + datagram.payload


def parse_frame(frame):
    """The UDP datagram in it, or None."""
    if frame[12:15] == b"\x08\x00\x45" and frame[23] == socket.IPPROTO_UDP:
        family, ends, header = socket.AF_INET, frame[26:34], IPV4
    elif frame[12:14] == b"\x86\xdd" and frame[20] == socket.IPPROTO_UDP:
        family, ends, header = socket.AF_INET6, frame[22:54], IPV6
    else:
        return None
    at = ETHERNET + header
    if len(frame) <= at + UDP:
        return None
    source, destination = (socket.inet_ntop(family, end) for end in (ends[:len(ends) // 2], ends[len(ends) // 2:]))
    source_port, destination_port, size = struct.unpack_from("!HHH", frame, at)
    return Datagram(source, source_port, destination, destination_port, frame[at + UDP:at + size])


class Wiretap:
    """Sits at the switch of NetworkNamespaces: captures what hosts send, and sends them anything."""

    def __init__(self, network, hosts):
        self.hardware = {}  # hardware address by host address
        self.namespace = network.names["switch"]
        self.hosts = {network.address(host): host for host in hosts}
        self.sockets = {address: self._open(host, protocol=0) for address, host in self.hosts.items()}

    def _open(self, host, protocol):
        """A socket at the host's port of the switch; with protocol 0 it receives nothing."""
        def make():
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
            raw.bind((f"port{host}", protocol))
            return raw
        return in_namespace(self.namespace, make)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for raw in self.sockets.values():
            raw.close()

    def hear(self):
        """Datagrams between the hosts from now on, for as long as the caller asks for more. The limit applies to each
        next datagram, because a caller may take its time and want any number of them.
        """
        with contextlib.ExitStack() as ears:
            raws = [ears.enter_context(self._open(host, ETH_P_ALL)) for host in self.hosts.values()]
            limit = Limit()
            while limit.left() > 0:
                for raw in select.select(raws, [], [], limit.left())[0]:
                    datagram = self._hear_one(raw)
                    if datagram is not None:
                        yield datagram
                        limit = Limit()
        raise AssertionError("not all that was waited for was heard")

    def _hear_one(self, raw):
        frame, where = raw.recvfrom(65536)
        datagram = parse_frame(frame)
        if where[2] == OUTGOING or datagram is None or datagram.destination not in self.sockets:
            return None
        self.hardware[datagram.destination], self.hardware[datagram.source] = frame[0:6], frame[6:12]
        return datagram

    def send(self, datagram):
        """Sends it to its destination, as if its source had sent it."""
        stranger = b"\x02\0\0\0\0\1"
        frame = self.hardware[datagram.destination] + self.hardware.get(datagram.source, stranger)
        kind = ETH_P_IPV6 if ":" in datagram.source else ETH_P_IP
        self.sockets[datagram.destination].send(frame + struct.pack("!H", kind) + ip_and_udp(datagram))
