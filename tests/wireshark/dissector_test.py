#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Wireshark dissector, driven by tshark: golden and hand-made packets field by field, cuts at every kind of
place, thousands of mutated packets, and a capture of real trims in the lab.

    tests/wireshark/dissector_test.py PATH_TO_SPILLWAY

Skips without tshark: exit code 77.
"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import packets
from harness.patience import wait_until
from harness.processes import Started, environment_with, run
from harness.tiers import TierLoader, long_tier
from mutations import mutated_frames
from packets import BITMAP, CREDIT, LEAVE, PROBE, STOP, WAIT, control_packet, frame, golden_packet
from tshark_case import DISSECTOR, Captures, is_true

SCENARIO = pathlib.Path(__file__).resolve().parents[2] / "experiments/incast_lab/incast.scn"
TOOL = pathlib.Path()
LAST_PORT = 0x5150
LAST_SEGMENT = re.compile(rb"\x0a\x4d\x00\x02\x0a\x4d\x00\x01..\x51\x50", re.DOTALL)
UNVERIFIED = "(not verifiable without the run's key)"


class GoldenPackets(Captures):
    def test_every_header_field_is_the_one_that_was_written(self):
        # The inputs are those of lib/packetize/golden_test.cc.
        expected = {"type": 1, "version": 4, "flags": "0x00", "job": 0x0102, "epoch": 0x04,
                    "source": 0x4142, "destination": 0x7172, "operation": 0x161718,
                    "signature": "0x2122232425262728", "signature.kind": 8, "signature.type": 18,
                    "signature.reduction": 2, "piece": 0x3132, "phase": 1, "priority": 5, "importance": 2,
                    "path": 9, "packet": 3, "timestamp": 0x525354, "planes": 16, "row": 0,
                    "slot": 3, "tail": 0, "number": 0x66676B}
        self.write([frame(golden_packet("planes16"))])
        told = self.one(*expected)
        self.assertEqual(dict(zip(expected, told)), {name: str(value) for name, value in expected.items()})

    def test_what_is_computed_agrees_with_the_document(self):
        names = packets.golden_names()
        self.write([frame(golden_packet(name)) for name in names])
        rows = self.fields("coordinates.first", "coordinates.count", "head_bytes", "sent_bytes", "bytes",
                           "planes_present", "whole_planes", "trimmed")
        for name, row in zip(names, rows):
            packet = golden_packet(name)
            layout = packets.PlanesLayout(packet)
            told = [values[0] for values in row]
            self.assertEqual([float(value) for value in told[:7]],
                             [layout.first, layout.count, layout.head_bytes, len(packet), len(packet),
                              layout.planes, layout.planes], name)
            self.assertFalse(is_true(told[7]), name)

    def test_tags_are_shown_and_not_verified(self):
        for name in packets.golden_names():
            self.write([frame(golden_packet(name))])
            sent, present = self.one("check.sent", "check.present")
            self.assertEqual(sent, present, name)
            self.assertEqual(self.tshark("-V").stdout.count(UNVERIFIED), int(sent), name)

    def test_what_is_encrypted_is_not_taken_for_numbers(self):
        open_packet, closed = golden_packet("planes16"), golden_packet("planes16_encrypted")
        self.write([frame(open_packet), frame(closed)])
        rows = self.fields("flags.encrypted", "scale", "plane_data", "encrypted_scale", "encrypted_planes")
        told = [[is_true(row[0][0]), *(len(values) for values in row[1:])] for row in rows]
        parts = len(rows[0][2])
        self.assertEqual(told, [[False, 1, parts, 0, 0], [True, 0, 0, 1, parts]])
        self.assertEqual(rows[1][3], [closed[40:44].hex()])
        line = self.fields("_ws.col.Info")[1][0][0]
        self.assertTrue(line.endswith("planes 16/16 whole (encrypted)"), line)

    def test_scales_of_rows_that_are_zero_or_not_finite(self):
        names = ("zero_row", "non_finite_row", "spike_row")
        self.write([frame(golden_packet(name)) for name in names])
        zero, not_finite, spike = [row[0][0] for row in self.fields("scale")]
        self.assertEqual((float(zero), not_finite.lower().lstrip("-")), (0.0, "nan"))
        self.assertGreater(float(spike), 0.0)

    def test_the_line_of_a_packet_says_what_became_of_it(self):
        packet = golden_packet("planes16")
        layout = packets.PlanesLayout(packet)
        cut = layout.head_end + 3
        self.write([frame(packet), frame(packet, dscp=48), frame(packet[:cut], dscp=48), frame(packet[:50])])
        lines = [row[0][0] for row in self.fields("_ws.col.Info")]
        start = (f"PLANES src={0x4142} dst={0x7172} operation={0x161718} signature=0x2122232425262728 "
                 f"piece={0x3132} #3 planes ")
        self.assertEqual(lines, [start + "16/16 whole", start + "16/16 diverted",  # ", whole" is the next value
                                 start + f"{layout.usable(cut)[1]:.3g}/16 trimmed",
                                 start + "0/16 cut in its head"])
        self.assertEqual([is_true(row[0][0]) for row in self.fields("diverted", only="spillway.diverted")],
                         [False, True])


class Cuts(Captures):
    def tags_of(self, packet, layout):
        ends = range(layout.head_end + layout.segment, len(packet), layout.segment + packets.CHECK)
        places = [packets.PLANES_HEADER, *ends]
        if places[-1] + packets.CHECK != len(packet):
            places.append(len(packet) - packets.CHECK)
        return [packet[place:place + packets.CHECK].hex() for place in places]

    def check_cuts(self, name, make_frame):
        packet = golden_packet(name)
        layout = packets.PlanesLayout(packet)
        segment_end = layout.head_end + layout.segment + packets.CHECK
        sizes = sorted({*range(packets.PLANES_HEADER, len(packet), 37), layout.head_end - 1, layout.head_end,
                        *range(segment_end - 1, len(packet), layout.segment + packets.CHECK), len(packet)})
        self.write([make_frame(packet[:size], packet) for size in sizes])
        rows = self.fields("bytes", "sent_bytes", "trimmed", "check.present", "planes_present",
                           "check")
        self.assertEqual(len(rows), len(sizes))
        for size, row in zip(sizes, rows):
            checks, planes = layout.usable(size)
            self.assertEqual([int(row[0][0]), int(row[1][0]), is_true(row[2][0]), int(row[3][0])],
                             [size, len(packet), size < len(packet), checks])
            self.assertAlmostEqual(float(row[4][0]), planes, places=4)
            self.assertEqual(row[5], self.tags_of(packet, layout)[:checks], size)

    def test_with_lengths_that_were_put_right(self):
        self.check_cuts("planes16", lambda cut, whole: frame(cut))
        self.check_cuts("planes16_encrypted", lambda cut, whole: frame(cut))

    def test_with_a_stale_udp_length(self):
        self.check_cuts("planes32", lambda cut, whole: frame(cut, udp_bytes=len(whole)))

    def test_with_stale_ip_and_udp_lengths(self):
        for ipv6 in (False, True):
            self.check_cuts("planes12_last_packet",
                            lambda cut, whole: frame(cut, len(whole), len(whole), ipv6=ipv6))

    def test_of_bytes_are_shown_by_the_mark_of_the_switch(self):
        packet = packets.bytes_packet(1432)
        self.write([frame(packet, port=5555), frame(packet[:200], port=5555, dscp=48), frame(packets.bytes_packet(8, 0))])
        rows = self.fields("type", "bytes", "check.sent", "check.present", "byte_count", "trimmed", "signature.kind")
        told = [[",".join(values) for values in row[:5]] + [is_true(row[5][0]), row[6]] for row in rows]
        self.assertEqual(told, [["9", "1472", "2", "2", "1432", False, []], ["9", "200", "2", "1", "", True, []],
                                ["9", "56", "2", "2", "8", False, ["9"]]])
        self.write([frame(packet)])
        self.assertEqual(self.fields("check")[0][0], [(b"h" * packets.CHECK).hex(), (b"t" * packets.CHECK).hex()])
        self.assertEqual(self.one("number", "packet", "timestamp", "byte_data")[:3], ["70000", "17", str(0xABCDEF)])

    def test_quanta_of_a_whole_row_are_written_as_none(self):
        packet = bytearray(golden_packet("planes8"))
        packet[36:38] = b"\0\0"  # the first slot, of 256 quanta
        packet[39] = 1  # a check per segment
        layout = packets.PlanesLayout(packet)
        self.assertEqual((layout.count, layout.planes), (8192, 8))
        tail = 8192 - layout.head_bytes
        sent = layout.head_end + tail + -(-tail // packets.TAIL_SEGMENT) * packets.CHECK
        self.write([frame(bytes(packet))])
        self.assertEqual(self.one("sent_bytes", "trimmed")[0], str(sent))

    def test_what_the_capture_left_out_is_no_trim(self):
        packet = golden_packet("planes16")
        layout = packets.PlanesLayout(packet)
        kept = layout.head_end + 10
        self.write([frame(packet), frame(packet)], kept_bytes=42 + kept)
        for row in self.fields("trimmed", "bytes", "captured_bytes", "planes_present", "check"):
            self.assertFalse(is_true(row[0][0]))
            self.assertEqual(row[1:], [[str(len(packet))], [str(kept)], ["16"], [packet[44:52].hex()]])
        self.assertEqual(self.count("spillway.expert.snapped && !spillway.expert.trimmed"), 2)

    def test_both_at_once(self):
        packet = golden_packet("planes16")
        cut = packets.PlanesLayout(packet).head_end + 2
        self.write([frame(packet[:cut], len(packet), len(packet), dscp=48)], kept_bytes=42 + 60)
        trimmed, *sizes = self.one("trimmed", "sent_bytes", "bytes", "captured_bytes")
        self.assertTrue(is_true(trimmed))
        self.assertEqual([int(size) for size in sizes], [len(packet), cut, 60])


class ControlPackets(Captures):
    def told_of(self, kind, body, *names):
        self.write([frame(control_packet(kind, body), dscp=50)])
        row, = self.fields("check", "_ws.expert.message", *names)
        self.assertEqual(row[:2], [[bytes(range(packets.CHECK)).hex()], []])
        return [",".join(values) for values in row[2:]]

    def test_the_header(self):
        names = ("type", "job", "epoch", "source", "destination", "piece", "operation", "signature",
                 "signature.kind", "signature.type", "signature.tag", "phase", "path", "timestamp",
                 "message_source", "sequence", "generation")
        values = (6, 7, 8, 1, 2, 13, 300000, "0x243000abcd123456", 9, 3, 0xABCD, 2, 5, 0xABCDEF, 3, 70000, 4)
        self.assertEqual(self.told_of(WAIT, b"", *names), [str(value) for value in values])

    def test_probe(self):
        body = struct.pack("<IIIIB3x", 65536, 17, 70001, 80002, 1)
        names = ("probe.packets", "probe.important", "probe.transmitted", "probe.settled", "probe.all_sent",
                 "_ws.col.Info")
        told = self.told_of(PROBE, body, *names)
        self.assertEqual(told[:5], ["65536", "17", "70001", "80002", "1"])
        self.assertEqual(told[5], "PROBE src=1 dst=2 operation=300000 signature=0x243000abcd123456 piece=13 of=3 "
                                  "packets=65536 transmitted=70001 all sent")

    def test_stop(self):
        body = struct.pack("<IB3x", 990, 2)
        self.assertEqual(self.told_of(STOP, body, "stop.delivered", "stop.outcome"), ["990", "2"])

    def test_leave(self):
        told = self.told_of(LEAVE, struct.pack("<HBx", 9, 1), "leave.culprit", "leave.cause", "_ws.col.Info")
        self.assertEqual(told[:2], ["9", "1"])
        self.assertTrue(told[2].endswith("because of 9: silent"), told[2])

    def test_leave_because_of_calls_that_differ(self):
        first, second = b"all_reduce of 10 float32 (sum)", b"barrier"
        body = struct.pack("<HBxQHHBBBx", 1, 2, 1 << 33, 4, 1, len(first), len(second), 2) + first + second
        names = [f"mismatch.{name}" for name in ("operation", "rank", "call", "first_whole", "second_whole")]
        told = self.told_of(LEAVE, body, *names, "_ws.col.Info")
        self.assertEqual(told[:3], [str(1 << 33), "4,1", "all_reduce of 10 float32 (sum),barrier"])
        self.assertEqual([value in ("1", "True") for value in told[3:5]], [True, False])
        self.assertTrue(told[5].endswith("because of 1: runs another operation"), told[5])

    def test_bitmap(self):
        bits = bytes([0b11111010, 0x0F, 0x00, 0b00000111])  # missing: 100, 102, 112 to 123
        body = struct.pack("<IIII", 100, 27, 14, 20) + bits
        told = self.told_of(BITMAP, body, "bitmap.first", "bitmap.count", "bitmap.missing", "bitmap.allowed",
                            "bitmap.delivered", "bitmap.gap", "bitmap.bits")
        self.assertEqual(told, ["100", "27", "14", "20", "13", "100,102,112-123", bits.hex()])

    def test_a_bitmap_full_of_holes_is_cut_short(self):
        body = struct.pack("<IIII", 0, 8192, 4096, 0) + b"\x55" * 1024
        delivered, gaps = self.told_of(BITMAP, body, "bitmap.delivered", "bitmap.gap")
        self.assertEqual((delivered, len(gaps.split(","))), ("4096", 32))
        self.assertIn("4064 more", self.tshark("-V").stdout)

    def test_credit(self):
        body = struct.pack("<IBBH", 4000, 2, 1, 0)
        body += packets.path_report(0, 0xFFFFFFFF, 10, 30, 0xFFFFFFFFFFFFFFF7, 50, 250)
        body += packets.path_report(15, 2, 11, 31, 41, 51, 0xFFFFFFFE)
        names = ("credit.granted", "credit.path_count", "credit.answer", *(f"report.{name}" for name in (
            "path", "hold", "packets", "marked", "usable", "echo", "echo_number")))
        self.assertEqual(self.told_of(CREDIT, body, *names),
                         ["4000", "2", "1", "0,15", "4294967295,2", "10,11", "30,31",
                          "0xfffffffffffffff7,0x0000000000000029", "50,51", "250,4294967294"])


def changed(name, place, value):
    packet = bytearray(golden_packet(name))
    packet[place] = value
    return bytes(packet)


NONSENSE = {
    "another version": changed("zero_row", 0, 0x11),
    "no such type": changed("zero_row", 0, 0x48),
    "an unknown flag": changed("zero_row", 1, 0x80),
    "a byte too many": golden_packet("zero_row") + b"\0",
    "a row too long": changed("planes16", 32, 16),
    "no planes": changed("planes16", 33, 0x40),
    "unknown checks of the tail": changed("planes16", 39, 2),
    "a path beyond the stream": changed("planes16", 19, 65),
    "a scale below zero": changed("spike_row", 43, 0xBF),
    "too short": golden_packet("zero_row")[:43],
    "a PROBE for no packets": control_packet(PROBE, bytes(20)),
    "a STOP for no reason": control_packet(STOP, struct.pack("<IB3x", 1, 4)),
    "a BITMAP beyond its message": control_packet(BITMAP, struct.pack("<IIIIB", 65535, 2, 0, 0, 0)),
    "a CREDIT without its reports": control_packet(CREDIT, struct.pack("<IBBH", 1, 3, 0, 0)),
    "a WAIT with a body": control_packet(WAIT, bytes(4)),
    "a WAIT that is encrypted": control_packet(WAIT, b"", flags=1),
    "a WAIT with something reserved": control_packet(WAIT, b"", reserved=1),
    "a LEAVE for no cause": control_packet(LEAVE, struct.pack("<HBx", 1, 6)),
    "a LEAVE without its calls": control_packet(LEAVE, struct.pack("<HBx", 1, 2)),
    "a LEAVE with a call too long": control_packet(LEAVE, struct.pack("<HBxQHHBBBx", 1, 2, 0, 0, 1, 201, 0, 0)
                                                   + bytes(201)),
    "nothing": b"",
}


class Recognition(Captures):
    def test_nonsense_at_the_port_is_shown_as_malformed(self):
        self.write([frame(packet) for packet in NONSENSE.values()])
        malformed = self.fields("frame.number", only="spillway.expert.malformed")
        told = {list(NONSENSE)[int(row[0][0]) - 1] for row in malformed}
        self.assertEqual(told, set(NONSENSE) - {"nothing"})  # tshark does not pass it on

    def test_of_another_version_nothing_else_is_believed(self):
        self.write([frame(NONSENSE["another version"])])
        self.assertEqual(self.one("version", "type", "flags", "job", "signature"), ["1", "1", None, None, None])

    def test_elsewhere_packets_are_known_by_their_looks(self):
        taken = [golden_packet(name) for name in packets.golden_names()]
        taken += [control_packet(WAIT, b""), control_packet(STOP, struct.pack("<IB3x", 1, 0))]
        self.write([frame(packet, port=5555) for packet in [*taken, *NONSENSE.values()]])
        numbers = [int(row[0][0]) for row in self.fields("frame.number", only="spillway")]
        self.assertEqual(numbers, list(range(1, len(taken) + 1)))

    def test_the_port_is_a_preference(self):
        self.write([frame(NONSENSE["no such type"], port=9000), frame(NONSENSE["no such type"])])
        rows = self.fields("frame.number", only="spillway", options=["-o", "spillway.port:9000"])
        self.assertEqual(rows, [[["1"]]])


@long_tier
class Fuzz(Captures):
    SEED = 20240607
    PACKETS = 4000

    def check(self, kept_bytes):
        self.write(mutated_frames(self.SEED, self.PACKETS), kept_bytes=kept_bytes)
        done = self.tshark("-V", "-O", "spillway")
        self.assertNotIn("Lua", done.stdout + done.stderr, f"seed {self.SEED}")
        self.assertEqual(done.stdout.count("\nFrame "), self.PACKETS - 1)
        for name in ("PLANES", "BYTES", "PROBE", "STOP", "BITMAP", "CREDIT", "WAIT", "LEAVE", "No reader takes this packet"):
            self.assertGreater(done.stdout.count(name), 100, name)

    def test_no_bytes_break_it(self):
        self.check(None)

    def test_nor_does_what_a_capture_left_of_them(self):
        self.check(100)

    def test_an_error_in_the_script_would_be_noticed(self):
        broken = self.folder / "broken.lua"
        broken.write_text(DISSECTOR.read_text().replace(
            "local header = read_header(tvb)", "local header = read_header(nil)"))
        self.write([frame(golden_packet("zero_row"))])
        self.assertIn("Lua", self.tshark("-V", dissector=broken).stdout)


@long_tier
class InTheLab(Captures):
    TRIM_BYTES = 256  # of the scenario
    # Slow links and short queues: three senders overlap and overflow them on any machine.
    JOB = ("--scenario", str(SCENARIO), "--rate", "100mbit", "--set", "switch.queue=32k", "--set",
           "switch.early-drop=0", "--set", "job.bytes=300KB")

    def lab(self, *arguments):
        return run([TOOL, "lab", *arguments], env=environment_with())

    def start_lab(self, name):
        up = self.lab("up", "--name", name, *self.JOB)
        if up.returncode != 0:
            self.skipTest(f"no lab here: {up.stderr.strip()}")
        self.addCleanup(self.lab, "down", "--name", name)
        if not any(one["name"] == name and one["isolation"] != "none"
                   for one in json.loads(self.lab("ls", "--json").stdout)):
            self.skipTest("network namespaces are not allowed here")

    def start_capture(self, name):
        capture = Started([TOOL, "lab", "exec", "--name", name, "host0", "--", "dumpcap", "-q", "-i", "eth0", "-w",
                           self.path], self, stdout=subprocess.DEVNULL)
        said = ""
        while "File: " not in said:  # it captures from then on
            line = capture.stderr.readline()
            if not line:
                self.skipTest(f"dumpcap may not capture here: {said.strip()}")
            said += line
        return capture

    def capture_incast(self):
        name = f"dissector-test-{os.getpid()}"
        self.start_lab(name)
        capture = self.start_capture(name)
        rank = (str(TOOL), "bench", "incast", *self.JOB, "--rounds", "2", "--as-rank", "spillway",
                "--rank-folder", str(self.folder))
        ranks = self.lab("exec", "--name", name, "all", "--", *rank)
        self.assertEqual(ranks.returncode, 0, ranks.stderr)
        # A connection to a closed port: once its first segment is in the file, so is everything before it.
        self.lab("exec", "--name", name, "host1", "--", "python3", "-c",
                 f"import socket; socket.socket().connect_ex(('10.77.0.1', {LAST_PORT}))")
        wait_until(lambda: LAST_SEGMENT.search(self.path.read_bytes()), "the last segment in the capture")
        capture.terminate()
        capture.finish()

    def test_trims_of_a_real_incast(self):
        self.capture_incast()
        names = ("type", "trimmed", "frame.len", "ip.dsfield.dscp", "planes_present", "head_bytes",
                 "coordinates.count", "planes", "check", "check.present")
        rows = [dict(zip(names, row)) for row in self.fields(*names, only="spillway")]
        self.assertEqual(self.count("udp && !spillway || spillway.expert.malformed"), 0)
        types = {row["type"][0] for row in rows}
        self.assertLessEqual({"1", str(PROBE), str(STOP), str(CREDIT)}, types)
        for row in rows:
            self.assertEqual(len(row["check"]), int((row["check.present"] or ["1"])[0]), row)
        data = [row for row in rows if row["type"] == ["1"]]
        trimmed = [row for row in data if is_true(row["trimmed"][0])]
        self.assertGreater(len(trimmed), 10)
        self.assertGreater(len(data), len(trimmed))
        for row in trimmed:
            self.check_trimmed(row)
        for row in data:
            if not is_true(row["trimmed"][0]):
                self.assertEqual(float(row["planes_present"][0]), float(row["planes"][0]))

    def check_trimmed(self, row):
        self.assertEqual((row["frame.len"], row["ip.dsfield.dscp"]), ([str(self.TRIM_BYTES)], ["48"]))
        # The head is designed to survive, and no tail segment fits in.
        self.assertEqual(row["check.present"], ["1"])
        planes = int(row["head_bytes"][0]) * 8 / int(row["coordinates.count"][0])
        self.assertAlmostEqual(float(row["planes_present"][0]), planes, places=4)


if __name__ == "__main__":
    if not shutil.which("tshark") or not shutil.which("dumpcap"):
        print("skipped: tshark is not installed")
        sys.exit(77)
    TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(testLoader=TierLoader())
