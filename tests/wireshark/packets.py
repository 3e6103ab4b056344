# SPDX-License-Identifier: Apache-2.0
"""Hand-made Spillway packets, their frames and capture files.

Written from docs/wire.md alone, so that the dissector is compared with the document.
"""
import pathlib
import struct

DATA, PROBE, STOP, BITMAP, CREDIT, WAIT, LEAVE = range(1, 8)
DATA_HEADER = 48
CHECK = 8
TAIL_SEGMENT = 512
PORT = 7077
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


def golden_packet(name):
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


def golden_names():
    return sorted(path.stem for path in GOLDEN.glob("*.hex"))


# ------------------------------------------------------------------ packets


SEND_SIGNATURE = 9 << 58 | 3 << 52 | 0x00ABCD << 24 | 0x123456  # of bfloat16, with tag 0xABCD


def control_packet(kind, body, **fields):
    """`fields` are header fields, with defaults that tell them apart. The tag is arbitrary: checking it needs the
    run's key."""
    at = {"flags": 0, "job": 7, "epoch": 8, "source": 1, "destination": 2, "piece": 13, "operation": 300000,
          "signature": SEND_SIGNATURE, "phase": 2, "path": 5, "timestamp": 0x89ABCDEF, "message_source": 3,
          "reserved": 0, "sequence": 70000, "generation": 4, **fields}
    return struct.pack("<BBHHHHHIQBBHIHHII", 3 << 4 | kind, at["flags"], at["job"], at["epoch"], at["source"],
                       at["destination"], at["piece"], at["operation"], at["signature"], at["phase"] << 6,
                       at["path"], 0, at["timestamp"], at["message_source"], at["reserved"],
                       at["sequence"], at["generation"]) + body + bytes(range(CHECK))


def bytes_packet(quanta, head_words):
    """A data packet of raw bytes; bytes and tags are arbitrary."""
    head, tail = head_words * 4, quanta * 128 - head_words * 4
    header = struct.pack("<BBHHHHHIQBBHIBBHBBBBII", 3 << 4 | DATA, 0, 7, 8, 1, 2, 13, 300000, SEND_SIGNATURE,
                         3 << 6, 5, 17, 1, 2 << 4 | 15, 32, 0, 0, quanta, head_words, 0, 18, 0)
    return header + b"h" * CHECK + b"H" * head + (b"T" * tail + b"t" * CHECK if tail else b"")


def path_report(path, *counters):
    """`counters`: hold_us, packets, marked, usable, echo_us, echo_number."""
    return struct.pack("<B3xIIIQII", path, *counters)


class DataLayout:
    """Offsets of a data packet's parts, from its header."""

    def __init__(self, packet):
        code, planes, _, slot, quanta, head_words = struct.unpack_from("<BBHBBB", packet, 32)
        length, quanta = 1 << (code & 15), quanta or 256
        self.first = slot * quanta * 32
        self.count = min(quanta * 32, length - self.first)
        self.planes = planes & 63
        self.plane_bytes = self.count // 8
        self.head_bytes = head_words * 4
        self.head_end = DATA_HEADER + CHECK + self.head_bytes
        is_bytes = code >> 4 == 2
        self.segment = max(1, self.planes * self.plane_bytes - self.head_bytes) if is_bytes else TAIL_SEGMENT

    def usable(self, size):
        """For a packet cut to `size`: the number of checks in it, and of planes under them."""
        if size < self.head_end:
            return 0, 0.0
        checks, planes, at = 1, self.head_bytes, self.head_end
        while planes < self.planes * self.plane_bytes:
            segment = min(self.segment, self.planes * self.plane_bytes - planes)
            at += segment + CHECK
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
