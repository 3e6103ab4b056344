# SPDX-License-Identifier: Apache-2.0
"""Packets that no sender makes, for a dissector that must survive any bytes. The same seed gives the same packets."""
import random
import struct

import packets
from packets import BITMAP, CREDIT, LEAVE, PROBE, STOP, WAIT, control_packet, frame, golden_packet


def _seeds():
    bits = struct.pack("<IIII", 5, 200, 9, 9) + bytes(range(25))
    credit = struct.pack("<IBBH", 9, 3, 0, 0) + 3 * packets.path_report(1, 2, 3, 4, 5, 6, 7)
    bodies = {PROBE: struct.pack("<IIIIB3x", 9, 2, 3, 4, 1), STOP: struct.pack("<IB3x", 9, 1), BITMAP: bits,
              CREDIT: credit, WAIT: b"", LEAVE: struct.pack("<HBx", 3, 1)}
    mismatch = struct.pack("<HBxQHHBBBx", 1, 2, 7, 0, 1, 20, 7, 6) + b"barrier" + bytes(range(20))
    return [golden_packet(name) for name in packets.golden_names()] + [
        packets.bytes_packet(1280), packets.bytes_packet(30, 0), control_packet(LEAVE, mismatch)] + [
        control_packet(kind, body) for kind, body in bodies.items()]


def _mutated(chance, packet):
    packet = bytearray(packet)
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        # Mostly where the fields are.
        place = chance.randrange(min(72, len(packet)) if chance.random() < 0.8 else len(packet))
        packet[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    if chance.random() < 0.4:
        packet = packet[:chance.randrange(len(packet) + 1)]
    if chance.random() < 0.05:
        packet += chance.randbytes(chance.randrange(600))
    return bytes(packet)


def mutated_frames(seed, count):
    """Random bytes, and damaged packets of every kind, in frames whose lengths may be stale."""
    chance = random.Random(seed)
    seeds = _seeds()
    for _ in range(count):
        packet = _mutated(chance, chance.choice(seeds))
        if chance.random() < 0.1:
            packet = chance.randbytes(chance.randrange(200))
        claimed = chance.choice((None, None, None, 1460, 8964))
        yield frame(packet, udp_bytes=claimed, ip_bytes=chance.choice((None, claimed)),
                    port=chance.choice((packets.PORT, packets.PORT, 5555)),
                    dscp=chance.choice((0, 48)), ipv6=chance.random() < 0.3)
