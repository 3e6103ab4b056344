# SPDX-License-Identifier: Apache-2.0
"""Hand-made Spillway packets, their frames and capture files.

Written from docs/wire.md alone, so that the dissector is compared with the document.
"""
import pathlib
import struct

PLANES, PROBE, STOP, BITMAP, CREDIT, WAIT, LEAVE = range(1, 8)
BYTES = 9
VERSION = 4
PLANES_HEADER = 44
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


def u24(value):
    return struct.pack("<I", value)[:3]


def header(kind, signature=b"", **fields):
    """`fields` have defaults that tell them apart."""
    at = {"flags": 0, "job": 7, "epoch": 8, "source": 1, "destination": 2, "piece": 13, "packet": 0, "operation": 300000,
          "number": 70000, "phase": 2, "path": 5, "timestamp": 0xABCDEF, **fields}
    return struct.pack("<BBHHHHH3sB3sB3sB", VERSION << 4 | kind, at["flags"], at["job"], at["source"], at["destination"],
                       at["piece"], at["packet"], u24(at["operation"]), at["epoch"], u24(at["number"]), at["path"],
                       u24(at["timestamp"]), at["phase"] << 6) + signature


def control_packet(kind, body, **fields):
    """`fields` are header fields. The tag is arbitrary: checking it needs the run's key."""
    at = {"message_source": 3, "reserved": 0, "generation": 4, **fields}
    return header(kind, struct.pack("<Q", SEND_SIGNATURE), **fields) + struct.pack(
        "<HHI", at["message_source"], at["reserved"], at["generation"]) + body + bytes(range(CHECK))


def bytes_packet(count, packet=17):
    """A packet of raw bytes; bytes and tags are arbitrary."""
    signature = struct.pack("<Q", SEND_SIGNATURE) if packet == 0 else b""
    return header(BYTES, signature, packet=packet, phase=3) + b"h" * CHECK + b"B" * count + b"t" * CHECK


def path_report(path, *counters):
    """`counters`: hold_us, packets, marked, usable, echo_us, echo_number."""
    return struct.pack("<B3xIIIQII", path, *counters)


class PlanesLayout:
    """Offsets of the parts of a packet of planes, from its header."""

    def __init__(self, packet):
        row_log2, planes, _, slot, quanta, head_words, tail = struct.unpack_from("<BBHBBBB", packet, 32)
        length, quanta = 1 << row_log2, quanta or 256
        self.first = slot * quanta * 32
        self.count = min(quanta * 32, length - self.first)
        self.planes = planes & 63
        self.plane_bytes = self.count // 8
        self.head_bytes = head_words * 4
        self.head_end = PLANES_HEADER + CHECK + self.head_bytes
        self.segment = TAIL_SEGMENT if tail == 1 else max(1, self.planes * self.plane_bytes - self.head_bytes)

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
