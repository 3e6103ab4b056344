# SPDX-License-Identifier: Apache-2.0
"""Spillway packets, the frames around them and the capture files they lie in, made by hand.

Written from docs/wire.md alone, so that the dissector is compared with the document.
"""
import pathlib
import struct

DATA, PROBE, STOP, BITMAP, CREDIT, WAIT, LEAVE = range(1, 8)
HEADER = 36
TAIL_SEGMENT = 512
PORT = 7077
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


def golden_packet(name):
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


def golden_names():
    return sorted(path.stem for path in GOLDEN.glob("*.hex"))


# ------------------------------------------------------------------ checks


def _crc_entry(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_TABLE = [_crc_entry(byte) for byte in range(256)]


def crc32c(data, salt=0):
    state = ~salt & 0xFFFFFFFF
    for byte in data:
        state = _CRC_TABLE[(state ^ byte) & 0xFF] ^ state >> 8
    return ~state & 0xFFFFFFFF


# ------------------------------------------------------------------ packets


def control_packet(kind, body, salt, **fields):
    """`fields` beside the body: those of the header, with defaults that tell them apart."""
    at = {"job": 7, "epoch": 8, "source": 1, "operation": 300000, "signature": 12, "piece": 13, "phase": 2,
          "path": 5, "timestamp": 0x89ABCDEF, "destination": 2, "message_source": 3,
          "sequence": 70000, "generation": 4, **fields}
    packet = struct.pack("<BBHHHIHHBBHIHHII", 1 << 4 | kind, 0, at["job"], at["epoch"], at["source"],
                         at["operation"], at["signature"], at["piece"], at["phase"] << 6, at["path"], 0,
                         at["timestamp"], at["destination"], at["message_source"], at["sequence"],
                         at["generation"]) + body
    return packet + struct.pack("<I", crc32c(packet, salt))


def path_report(path, echo_sequence, hold_us, *counters):
    """`counters`: packets, bytes, marked, trimmed, echo_us."""
    return struct.pack("<BBHIIIII", path, echo_sequence, hold_us, *counters)


class DataLayout:
    """Where the parts of a data packet lie, from its header."""

    def __init__(self, packet):
        code, planes, _, slot, quanta, head_words = struct.unpack_from("<BBHBBB", packet, 24)
        length = 1 << (code & 15)
        self.first = slot * quanta * 32
        self.count = min(quanta * 32, length - self.first)
        self.planes = planes & 63
        self.plane_bytes = self.count // 8
        self.check = 8 if packet[1] & 1 else 4
        self.head_bytes = head_words * 4
        self.head_end = HEADER + self.check + self.head_bytes

    def usable(self, size):
        """Of a packet cut to `size`: checks that are there, and planes under them."""
        if size < self.head_end:
            return 0, 0.0
        checks, planes, at = 1, self.head_bytes, self.head_end
        while planes < self.planes * self.plane_bytes:
            segment = min(TAIL_SEGMENT, self.planes * self.plane_bytes - planes)
            at += segment + self.check
            if at > size:
                break
            checks, planes = checks + 1, planes + segment
        return checks, planes / self.plane_bytes


# ------------------------------------------------------------------ frames and captures


def frame(payload, ip_bytes=None, udp_bytes=None, dscp=0, port=PORT, ipv6=False):
    """An Ethernet frame; `ip_bytes` and `udp_bytes` are payload sizes that its headers claim."""
    claimed = len(payload) if udp_bytes is None else udp_bytes
    udp = struct.pack("!HHHH", 40000, port, 8 + claimed, 0) + payload
    claimed = 8 + (len(payload) if ip_bytes is None else ip_bytes)
    if ipv6:
        network = struct.pack("!IHBB16s16s", 6 << 28 | dscp << 22, claimed, 17, 64, bytes(15) + b"\1",
                              bytes(15) + b"\2")
    else:
        network = struct.pack("!BBHHHBBH4s4s", 0x45, dscp << 2, 20 + claimed, 1, 0, 64, 17, 0,
                              b"\x0a\x4d\0\1", b"\x0a\x4d\0\2")
    return bytes(range(12)) + (b"\x86\xdd" if ipv6 else b"\x08\0") + network + udp


def write_capture(path, frames, kept_bytes=None):
    """`kept_bytes`: how much of each frame the capture keeps; None: all of it."""
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for number, one in enumerate(frames):
            kept = one[:kept_bytes]
            out.write(struct.pack("<IIII", number, 0, len(kept), len(one)) + kept)
