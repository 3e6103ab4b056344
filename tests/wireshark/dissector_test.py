#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Wireshark dissector, driven by tshark: golden packets and hand-made ones field by field, cuts at
every kind of place, thousands of mutated packets, and a capture of real trims in the lab.

    tests/wireshark/dissector_test.py PATH_TO_SPILLWAY

Without tshark it skips: exit code 77.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import unittest

import packets
from mutations import mutated_frames
from packets import BITMAP, CREDIT, LEAVE, PROBE, STOP, WAIT, control_packet, frame, golden_packet
from tshark_case import DISSECTOR, Captures, is_true

SCENARIO = pathlib.Path(__file__).resolve().parents[2] / "experiments/incast_lab/incast.scn"
TOOL = pathlib.Path()
BAD, GOOD, UNVERIFIED = "0", "1", "2"
SALT = 0x12345678


class GoldenPackets(Captures):
    def test_every_header_field_is_the_one_that_was_written(self):
        # The inputs are those of src/packetize/golden_test.cc.
        expected = {"type": 1, "version": 1, "flags": "0x00", "job": 0x0102, "epoch": 0x0304,
                    "source": 0x4142, "operation": 0x11121314, "signature": 0x2122, "piece": 0x3132, "phase": 1,
                    "priority": 5, "importance": 2, "path": 9, "packet": 3, "timestamp": 0x51525354,
                    "codec": 1, "planes": 16, "row": 0, "slot": 3}
        self.write([frame(golden_packet("planes16_crc"))])
        told = self.one(*expected)
        self.assertEqual(dict(zip(expected, told)), {name: str(value) for name, value in expected.items()})

    def test_what_is_computed_agrees_with_the_document(self):
        names = packets.golden_names()
        self.write([frame(golden_packet(name)) for name in names])
        rows = self.fields("coordinates.first", "coordinates.count", "head_bytes", "sent_bytes", "bytes",
                           "planes_present", "whole_planes", "trimmed")
        for name, row in zip(names, rows):
            packet = golden_packet(name)
            layout = packets.DataLayout(packet)
            told = [values[0] for values in row]
            self.assertEqual([float(value) for value in told[:7]],
                             [layout.first, layout.count, layout.head_bytes, len(packet), len(packet),
                              layout.planes, layout.planes], name)
            self.assertFalse(is_true(told[7]), name)

    def test_checks_match_once_packets_agree_on_the_salt(self):
        names = packets.golden_names()
        self.write([frame(golden_packet(name)) for name in names])
        rows = self.fields("check.status", "check.sent", "check.salt", "check.kind")
        found = dict(zip(names, rows))
        for name in set(names) - {"planes16_keyed"}:
            status, sent, salt, kind = found[name]
            self.assertEqual((status, kind), ([GOOD] * int(sent[0]), ["CRC32C"]), name)
            self.assertEqual(salt, found["planes8_crc"][2])
        status, sent, salt, kind = found["planes16_keyed"]
        self.assertEqual((status, salt, kind), ([UNVERIFIED] * int(sent[0]), [], ["keyed tags"]))

    def test_scales_of_rows_that_are_zero_or_not_finite(self):
        names = ("zero_row", "non_finite_row", "spike_row")
        self.write([frame(golden_packet(name)) for name in names])
        zero, not_finite, spike = [row[0][0] for row in self.fields("scale")]
        self.assertEqual((float(zero), not_finite.lower().lstrip("-")), (0.0, "nan"))
        self.assertGreater(float(spike), 0.0)

    def test_a_single_packet_has_none_to_agree_with(self):
        self.write([frame(golden_packet("zero_row"))])
        self.assertEqual(self.one("check.status"), [UNVERIFIED])

    def test_the_line_of_a_packet_says_what_became_of_it(self):
        packet = golden_packet("planes16_crc")
        layout = packets.DataLayout(packet)
        cut = layout.head_end + 3
        self.write([frame(packet), frame(packet, dscp=48), frame(packet[:cut], dscp=48), frame(packet[:50])])
        lines = [row[0][0] for row in self.fields("_ws.col.Info")]
        start = f"DATA src={0x4142} operation={0x11121314} signature={0x2122} piece={0x3132} #3 planes "
        self.assertEqual(lines, [start + "16/16 whole", start + "16/16 diverted",  # ", whole" is the next value
                                 start + f"{layout.usable(cut)[1]:.3g}/16 trimmed",
                                 start + "0/16 cut in its head"])
        self.assertEqual([is_true(row[0][0]) for row in self.fields("diverted", only="spillway.diverted")],
                         [False, True])


class Cuts(Captures):
    def check_cuts(self, name, make_frame):
        packet = golden_packet(name)
        layout = packets.DataLayout(packet)
        segment_end = layout.head_end + packets.TAIL_SEGMENT + layout.check
        sizes = sorted({*range(packets.HEADER, len(packet), 37), layout.head_end - 1, layout.head_end,
                        *range(segment_end - 1, len(packet), packets.TAIL_SEGMENT + layout.check), len(packet)})
        self.write([make_frame(packet[:size], packet) for size in sizes])
        rows = self.fields("bytes", "sent_bytes", "trimmed", "check.present", "planes_present",
                           "check.status")
        self.assertEqual(len(rows), len(sizes))
        for size, row in zip(sizes, rows):
            checks, planes = layout.usable(size)
            self.assertEqual([int(row[0][0]), int(row[1][0]), is_true(row[2][0]), int(row[3][0])],
                             [size, len(packet), size < len(packet), checks])
            self.assertAlmostEqual(float(row[4][0]), planes, places=4)
            verified = UNVERIFIED if layout.check == 8 else GOOD
            self.assertEqual(row[5], [verified] * checks, size)

    def test_with_lengths_that_were_put_right(self):
        self.check_cuts("planes16_crc", lambda cut, whole: frame(cut))
        self.check_cuts("planes16_keyed", lambda cut, whole: frame(cut))

    def test_with_a_stale_udp_length(self):
        self.check_cuts("planes32_crc", lambda cut, whole: frame(cut, udp_bytes=len(whole)))

    def test_with_stale_ip_and_udp_lengths(self):
        for ipv6 in (False, True):
            self.check_cuts("planes12_last_packet",
                            lambda cut, whole: frame(cut, len(whole), len(whole), ipv6=ipv6))

    def test_what_the_capture_left_out_is_no_trim(self):
        packet = golden_packet("planes16_crc")
        layout = packets.DataLayout(packet)
        kept = layout.head_end + 10
        self.write([frame(packet), frame(packet)], kept_bytes=42 + kept)
        for row in self.fields("trimmed", "bytes", "captured_bytes", "planes_present", "check.status"):
            self.assertFalse(is_true(row[0][0]))
            self.assertEqual(row[1:], [[str(len(packet))], [str(kept)], ["16"], [GOOD]])
        self.assertEqual(self.count("spillway.expert.snapped && !spillway.expert.trimmed"), 2)

    def test_both_at_once(self):
        packet = golden_packet("planes16_crc")
        cut = packets.DataLayout(packet).head_end + 2
        self.write([frame(packet[:cut], len(packet), len(packet), dscp=48)], kept_bytes=42 + 60)
        trimmed, *sizes = self.one("trimmed", "sent_bytes", "bytes", "captured_bytes")
        self.assertTrue(is_true(trimmed))
        self.assertEqual([int(size) for size in sizes], [len(packet), cut, 60])


class Damage(Captures):
    def damaged(self, name, place):
        packet = bytearray(golden_packet(name))
        packet[place] ^= 0x10
        return bytes(packet)

    def check_status(self, packet, expected):
        good = frame(golden_packet("planes16_crc"))
        self.write([good, good, frame(packet), good])
        rows = self.fields("check.status", "_ws.expert.message")
        self.assertEqual(rows[2][0], expected)
        self.assertEqual(["Bad check" in "".join(row[1]) for row in rows], [False, False, True, False])

    def test_in_the_header_or_the_head_it_is_the_first_check_that_fails(self):
        for place in (21, 100):
            self.check_status(self.damaged("planes16_crc", place), [BAD, GOOD, GOOD, GOOD])

    def test_in_a_tail_segment_it_is_its_own(self):
        layout = packets.DataLayout(golden_packet("planes16_crc"))
        self.check_status(self.damaged("planes16_crc", layout.head_end + 600), [GOOD, GOOD, BAD, GOOD])

    def test_another_seed_looks_like_damage_and_tells_its_salt(self):
        wait = [frame(control_packet(WAIT, b"", SALT, sequence=i)) for i in range(3)]
        self.write([*wait, frame(control_packet(WAIT, b"", 0xBEEF))])
        rows = self.fields("check.status", "check.salt")
        self.assertEqual(rows, 3 * [[[GOOD], [f"0x{SALT:08x}"]]] + [[[BAD], ["0x0000beef"]]])


class ControlPackets(Captures):
    def told_of(self, kind, body, *names):
        packet = control_packet(kind, body, SALT)
        self.write([frame(packet, dscp=50), frame(packet, dscp=50)])
        rows = self.fields("check.status", "_ws.expert.message", *names)
        self.assertEqual(rows[0], rows[1])
        self.assertEqual(rows[0][:2], [[GOOD], []])
        return [",".join(values) for values in rows[0][2:]]

    def test_the_header(self):
        names = ("type", "job", "epoch", "source", "operation", "signature", "piece", "phase", "path", "timestamp",
                 "destination", "message_source", "sequence", "generation")
        values = (6, 7, 8, 1, 300000, 12, 13, 2, 5, 0x89ABCDEF, 2, 3, 70000, 4)
        self.assertEqual(self.told_of(WAIT, b"", *names), [str(value) for value in values])

    def test_probe(self):
        body = struct.pack("<IIIB3x", 65536, 17, 70001, 1)
        names = ("probe.packets", "probe.important", "probe.transmitted", "probe.all_sent", "_ws.col.Info")
        told = self.told_of(PROBE, body, *names)
        self.assertEqual(told[:4], ["65536", "17", "70001", "1"])
        self.assertEqual(told[4], "PROBE src=1 operation=300000 signature=12 piece=13 dst=2 of=3 packets=65536 "
                                  "transmitted=70001 all sent")

    def test_stop(self):
        body = struct.pack("<IB3x", 990, 2)
        self.assertEqual(self.told_of(STOP, body, "stop.delivered", "stop.outcome"), ["990", "2"])

    def test_leave(self):
        told = self.told_of(LEAVE, struct.pack("<HBx", 9, 1), "leave.culprit", "leave.cause", "_ws.col.Info")
        self.assertEqual(told[:2], ["9", "1"])
        self.assertTrue(told[2].endswith("because of 9: silent"), told[2])

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
        body += packets.path_report(0, 250, 65535, 10, 20, 30, 40, 0xFFFFFFFF)
        body += packets.path_report(15, 1, 2, 11, 21, 31, 41, 51)
        names = ("credit.granted", "credit.path_count", "credit.answer", *(f"report.{name}" for name in (
            "path", "echo_sequence", "hold", "packets", "bytes", "marked", "trimmed", "echo")))
        self.assertEqual(self.told_of(CREDIT, body, *names),
                         ["4000", "2", "1", "0,15", "250,1", "65535,2", "10,11", "20,21", "30,31", "40,41",
                          "4294967295,51"])


NONSENSE = {
    "another version": b"\x21" + golden_packet("zero_row")[1:],
    "no such type": b"\x17" + golden_packet("zero_row")[1:],
    "an unknown flag": b"\x11\x80" + golden_packet("zero_row")[2:],
    "a byte too many": golden_packet("zero_row") + b"\0",
    "a row too long": golden_packet("planes16_crc")[:24] + b"\x10" + golden_packet("planes16_crc")[25:],
    "no planes": golden_packet("planes16_crc")[:25] + b"\x40" + golden_packet("planes16_crc")[26:],
    "a scale below zero": golden_packet("spike_row")[:35] + b"\xbf" + golden_packet("spike_row")[36:],
    "too short": golden_packet("zero_row")[:35],
    "a PROBE for no packets": control_packet(PROBE, bytes(16), SALT),
    "a STOP for no reason": control_packet(STOP, struct.pack("<IB3x", 1, 4), SALT),
    "a BITMAP beyond its message": control_packet(BITMAP, struct.pack("<IIIIB", 65535, 2, 0, 0, 0), SALT),
    "a CREDIT without its reports": control_packet(CREDIT, struct.pack("<IBBH", 1, 3, 0, 0), SALT),
    "a WAIT with a body": control_packet(WAIT, bytes(4), SALT),
    "nothing": b"",
}


class Recognition(Captures):
    def test_nonsense_at_the_port_is_shown_as_malformed(self):
        self.write([frame(packet) for packet in NONSENSE.values()])
        malformed = self.fields("frame.number", only="spillway.expert.malformed")
        told = {list(NONSENSE)[int(row[0][0]) - 1] for row in malformed}
        self.assertEqual(told, set(NONSENSE) - {"nothing"})  # which tshark does not hand over

    def test_elsewhere_packets_are_known_by_their_looks(self):
        taken = [golden_packet(name) for name in packets.golden_names()]
        taken += [control_packet(WAIT, b"", SALT), control_packet(STOP, struct.pack("<IB3x", 1, 0), SALT)]
        self.write([frame(packet, port=5555) for packet in [*taken, *NONSENSE.values()]])
        numbers = [int(row[0][0]) for row in self.fields("frame.number", only="spillway")]
        self.assertEqual(numbers, list(range(1, len(taken) + 1)))

    def test_the_port_is_a_preference(self):
        self.write([frame(NONSENSE["no such type"], port=9000), frame(NONSENSE["no such type"])])
        rows = self.fields("frame.number", only="spillway", options=["-o", "spillway.port:9000"])
        self.assertEqual(rows, [[["1"]]])


class Fuzz(Captures):
    SEED = 20240607
    PACKETS = 4000

    def check(self, kept_bytes):
        self.write(mutated_frames(self.SEED, self.PACKETS), kept_bytes=kept_bytes)
        done = self.tshark("-V", "-O", "spillway", passes=())
        self.assertNotIn("Lua", done.stdout + done.stderr, f"seed {self.SEED}")
        self.assertEqual(done.stdout.count("\nFrame "), self.PACKETS - 1)
        for name in ("DATA", "PROBE", "STOP", "BITMAP", "CREDIT", "WAIT", "No reader takes this packet"):
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


class InTheLab(Captures):
    TRIM_BYTES = 256  # of the scenario
    # Slow links and short queues: three senders overlap and overflow them on any machine.
    JOB = ("--scenario", str(SCENARIO), "--rate", "100mbit", "--set", "switch.queue=32k", "--set",
           "switch.early-drop=0", "--set", "job.bytes=300KB")

    def lab(self, *arguments):
        return subprocess.run([TOOL, "lab", *arguments], capture_output=True, text=True, timeout=60,
                              check=False)

    def start_lab(self, name):
        up = self.lab("up", "--name", name, *self.JOB)
        if up.returncode != 0:
            self.skipTest(f"no lab here: {up.stderr.strip()}")
        self.addCleanup(self.lab, "down", "--name", name)
        if not any(one["name"] == name and one["isolation"] != "none"
                   for one in json.loads(self.lab("ps", "--json").stdout)):
            self.skipTest("network namespaces are not allowed here")

    def start_capture(self, name):
        capture = subprocess.Popen([TOOL, "lab", "exec", "--name", name, "host0", "--", "dumpcap", "-q", "-i",
                                    "eth0", "-w", self.path], stderr=subprocess.PIPE, text=True)
        self.addCleanup(capture.stderr.close)
        self.addCleanup(capture.wait)
        self.addCleanup(capture.terminate)
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
        capture.terminate()
        capture.wait(timeout=20)

    def test_trims_of_a_real_incast(self):
        self.capture_incast()
        names = ("type", "trimmed", "frame.len", "ip.dsfield.dscp", "planes_present", "head_bytes",
                 "coordinates.count", "planes", "check.status", "check.present")
        rows = [dict(zip(names, row)) for row in self.fields(*names, only="spillway")]
        self.assertEqual(self.count("udp && !spillway || spillway.expert.malformed"), 0)
        types = {row["type"][0] for row in rows}
        self.assertLessEqual({"1", str(PROBE), str(STOP), str(CREDIT)}, types)
        for row in rows:
            self.assertEqual(set(row["check.status"]), {GOOD}, row)
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
        # The head is made to survive, and no tail segment fits in.
        self.assertEqual(row["check.present"], ["1"])
        planes = int(row["head_bytes"][0]) * 8 / int(row["coordinates.count"][0])
        self.assertAlmostEqual(float(row["planes_present"][0]), planes, places=4)


if __name__ == "__main__":
    if not shutil.which("tshark") or not shutil.which("dumpcap"):
        print("skipped: tshark is not installed")
        sys.exit(77)
    TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
