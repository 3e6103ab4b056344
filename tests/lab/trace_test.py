#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packets traced through a lab and through an attached switch.

    tests/lab/trace_test.py PATH_TO_SPILLWAY

Runs in its own network namespaces. Everything is skipped without the right to load programs.
"""
import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.namespaces import ip
from harness.patience import Limit, patience, wait_until
from harness.processes import Started, environment_with, run
from kernel_rights import require_kernel_programs

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
SCENARIO = pathlib.Path(__file__).resolve().parents[2] / "experiments/incast_lab/incast.scn"
TRIM_BYTES = 256  # of the scenario
NAME = f"trace{os.getpid()}"
# Slow links and short queues: three senders overlap and overflow them on any machine.
JOB = ("--scenario", str(SCENARIO), "--rate", "100mbit", "--set", "switch.queue=32k", "--set",
       "switch.early-drop=0", "--set", "job.bytes=200KB")

# Sends a portion of data packets (docs/wire.md), numbered from 0 on, for each line that it reads.
SENDER = r"""
import itertools, socket, struct, sys
sender, numbers = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), itertools.count()
for line in sys.stdin:
    for number in itertools.islice(numbers, int(line)):
        header = struct.pack("<BBHHHHHIIIQ", 0x41, 0, 0, 1, 0, 0, number, 5, number, number, 0)
        header += struct.pack("<BBHBBBBf", 15, 0x50, 0, 0, 22, 20, 0, 1.0)
        sender.sendto(header + bytes(1300), (sys.argv[1], 7077))
"""
PACKETS, PORTION = 600, 100

# A broadcast frame: the switch learns where its sender is.
ANNOUNCEMENT = r"""
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
sender.sendto(b"here", ("255.255.255.255", 7))
"""


def tool(*arguments):
    return run([TOOL, *arguments], env=environment_with())


class Trace:
    """A Chrome trace, by packets: each packet's arrow leads from bar to bar."""

    def __init__(self, path):
        self.events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
        self.processes = {event["pid"]: event["args"]["name"] for event in self.events
                          if event["ph"] == "M" and event["name"] == "process_name"}
        self.bars = [event for event in self.events if event["ph"] == "X"]

    def paths(self):
        """Phases and bars per arrow, in the order of the file."""
        at = {(bar["pid"], bar["tid"], bar["ts"]): bar for bar in self.bars}
        paths = collections.defaultdict(lambda: ("", []))
        for event in self.events:
            if event["ph"] in "stf":
                phases, bars = paths[event["id"]]
                paths[event["id"]] = (phases + event["ph"],
                                      bars + [at[event["pid"], event["tid"], event["ts"]]])
        return list(paths.values())

    def count(self, name):
        return sum(bar["name"] == name for bar in self.bars)


class InALab(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "trace.json"

    def run_incast(self, *arguments):
        rank = (str(TOOL), "bench", "incast", *JOB, "--rounds", "2", "--as-rank", "spillway", "--rank-folder",
                str(self.folder))
        done = tool("trace", *JOB, "--out", str(self.path), "--json", *arguments, "--", *rank)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check_lanes(self, trace):
        """Bars in one row must not overlap."""
        free = collections.defaultdict(float)
        for bar in sorted(trace.bars, key=lambda bar: bar["ts"]):
            row = bar["pid"], bar["tid"]
            self.assertGreaterEqual(bar["ts"], free[row] - 0.0005)
            free[row] = bar["ts"] + bar["dur"]

    def check_order(self, trace):
        self.check_lanes(trace)
        for phases, bars in trace.paths():
            self.assertIn(phases, ("sf", "stf"))
            times = [bar["ts"] for bar in bars]
            self.assertEqual(times, sorted(times), bars)
            end = bars[1]["ts"] + bars[1]["dur"]
            if phases == "stf":
                self.assertAlmostEqual(end, bars[2]["ts"], places=2)

    def trimmed_paths(self, trace):
        return [bars for _, bars in trace.paths()
                if len(bars) == 3 and bars[2]["args"].get("arrived") == "trimmed"]

    def check_names(self, trace, bars):
        sender, port, receiver = (trace.processes[bar["pid"]] for bar in bars)
        self.assertIn(sender, ("host1", "host2", "host3"))
        self.assertTrue(port.endswith("->host0"), port)
        self.assertEqual(receiver, "host0")
        self.assertRegex(bars[0]["name"],
                         r"^(PLANES|BYTES) [123]>0 operation \d+ piece \d+ #\d+$")
        self.assertEqual((bars[1]["args"]["packet"], bars[2]["name"]), (bars[0]["name"],) * 2)

    def test_over_a_switch_in_the_kernel(self):
        outcome = self.run_incast("--dataplane", "bpf")
        told, counted = outcome["trace"], outcome["fabric"]["packets"]
        self.assertEqual((told["left_out"], told["missed"]), (0, 0))
        trace = Trace(self.path)
        self.check_order(trace)
        trimmed = self.trimmed_paths(trace)
        self.assertGreater(len(trimmed), 10)
        for bars in trimmed:
            self.check_names(trace, bars)
            self.assertEqual(bars[1]["name"], "trimmed")
            self.assertEqual(bars[1]["args"]["bytes"], bars[0]["args"]["bytes"])
            self.assertEqual(bars[1]["args"]["bytes_left"], TRIM_BYTES)
            self.assertEqual(bars[2]["args"]["bytes"], TRIM_BYTES)
        self.assertEqual(len(trimmed), told["packets"]["trimmed"])
        for name in ("marked", "trimmed", "diverted", "early drop", "control full"):
            if name in counted:
                self.assertEqual(trace.count(name), counted[name], name)
        self.assertGreater(told["packets"]["whole"] + told["packets"]["marked"], 100)
        self.assertLess(told["median_us"], told["p99_us"])
        self.assertTrue(any(event["ph"] == "C" and event["args"]["bytes"] > 10000 for event in trace.events))
        self.assertTrue(any(bar["name"].startswith("CREDIT 0>") for bar in trace.bars))

    def test_over_a_fabric_in_user_space(self):
        outcome = self.run_incast("--dataplane", "user")
        trace = Trace(self.path)
        self.check_order(trace)
        trimmed = self.trimmed_paths(trace)
        self.assertGreater(len(trimmed), 10)
        for bars in trimmed:
            self.check_names(trace, bars)
            self.assertEqual(bars[1]["name"], "fabric")
            self.assertEqual(bars[2]["args"]["bytes"], TRIM_BYTES)
        self.assertEqual(len(trimmed), outcome["trace"]["packets"]["trimmed"])
        self.assertEqual(len(trimmed), outcome["fabric"]["packets"]["trimmed"])
        self.assertIn("user space", json.loads(self.path.read_text())["otherData"]["note"])

    def test_keeps_no_more_than_it_is_told_to(self):
        outcome = self.run_incast("--dataplane", "bpf", "--packets", "50")
        self.assertEqual(sum(outcome["trace"]["packets"].values()), 50)
        self.assertGreater(outcome["trace"]["left_out"], 50)

    def test_is_written_when_interrupted(self):
        done = tool("trace", "--hosts", "2", "--allow-late", "--out", str(self.path), "--", "sh", "-c",
                    "[ $RANK = 1 ] || kill -INT $(ps -o ppid= $$)")
        self.assertEqual(done.returncode, 130, done.stderr)
        self.assertIn("no Spillway packets were seen", done.stderr)
        self.assertEqual(Trace(self.path).bars, [])

    def test_says_what_it_cannot(self):
        done = tool("trace", "--allow-late", "--out", "/nosuch/trace.json", "--", "true")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write /nosuch/trace.json", done.stderr)
        done = tool("trace", "--allow-late", "--isolation", "none", "--out", str(self.path), "--", "true")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--isolation none", done.stderr)


class OfASwitch(unittest.TestCase):
    """Two hosts around ports p0 and p1 of a switch in this namespace."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "trace.json"
        self.config = pathlib.Path(folder.name) / "switch.scn"
        self.config.write_text("topology one-switch hosts=2 rate=4mbit delay=1us\n"
                               f"switch mode=trim queue=32k trim={TRIM_BYTES}\n"
                               "port host=host0 interface=p0\nport host=host1 interface=p1\n")
        for host in range(2):
            space = self.space(host)
            ip("netns", "add", space)
            self.addCleanup(ip, "netns", "delete", space)
            ip("link", "add", f"p{host}", "type", "veth", "peer", "name", "eth0", "address",
               f"02:00:00:00:00:0{host}", "netns", space)
            self.addCleanup(ip, "link", "delete", f"p{host}")
            ip("link", "set", f"p{host}", "up")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "address", "add", f"10.78.0.{host + 1}/24", "dev", "eth0")
            ip("-n", space, "route", "add", "default", "dev", "eth0")
            ip("-n", space, "neighbour", "add", f"10.78.0.{2 - host}", "lladdr",
               f"02:00:00:00:00:0{1 - host}", "dev", "eth0")

    def space(self, host):
        return f"spillway-{NAME}-{host}"

    def attach(self, *arguments):
        done = tool("switch", "attach", "--config", str(self.config), "--name", NAME, "--hook", "tc",
                    "--forward", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.addCleanup(tool, "switch", "detach", "--name", NAME)

    def on(self, host, script, *arguments):
        return ["ip", "netns", "exec", self.space(host), sys.executable, "-c", script, *arguments]

    def send(self, host):
        """Sends all packets; returns how many were lost before the switch, once it has decided about the rest. A
        portion follows when the last one is through: all namespaces share a processor's backlog, which is short."""
        before, lost_before = self.decided(), self.lost(host)
        with Started(self.on(host, SENDER, f"10.78.0.{2 - host}"), stdin=subprocess.PIPE) as sender:
            for sent in range(PORTION, PACKETS + 1, PORTION):
                sender.tell(str(PORTION))
                wait_until(lambda: self.decided() - before + self.lost(host) - lost_before >= sent,
                           "decisions about all packets")
        return self.lost(host) - lost_before

    def lost(self, host):
        """Packets that left a host and did not reach the switch's port."""
        told = run(["ip", "-netns", self.space(host), "-stats", "-json", "link", "show", "eth0"], check=True).stdout
        return json.loads(told)[0]["stats64"]["tx"]["dropped"]

    def start_trace(self):
        tracing = Started([TOOL, "trace", "--switch", NAME, "--for", f"{patience(600):.0f}s", "--json", "--out",
                           self.path], self)
        # The file appears once the reader is attached to the switch.
        wait_until(lambda: self.path.exists() or tracing.poll() is not None, "a trace that has begun")
        self.assertIsNone(tracing.poll())
        return tracing

    def test_what_it_decides(self):
        """Repeated if packets were lost before the switch, because other traffic filled the backlog."""
        self.attach("--trace")
        run(self.on(0, ANNOUNCEMENT), check=True)
        self.send(1)  # nobody reads the switch's events about these
        limit = Limit(20)
        while (lost := self.trace_packets()) > 0:
            self.assertGreater(limit.left(), 0, f"{lost} packets were lost again before the switch")

    def trace_packets(self):
        """Checks the trace, unless packets were lost; returns the number of lost packets."""
        self.path.unlink(missing_ok=True)
        before = self.trimmed()
        tracing = self.start_trace()
        lost = self.send(1)
        tracing.send_signal(signal.SIGINT)
        told = json.loads(tracing.finish()[0])
        self.assertEqual(tracing.returncode, 0)
        if lost > 0:
            return lost
        trace = Trace(self.path)
        self.assertEqual(len(trace.bars), PACKETS)
        self.assertEqual(sum(told["packets"].values()), PACKETS)
        self.assertGreater(told["packets"]["trimmed"], 100)
        self.assertEqual(told["packets"]["trimmed"], self.trimmed() - before)
        self.assertEqual({bar["args"]["packet"] for bar in trace.bars},
                         {f"PLANES 1>0 operation 5 piece 0 #{number}"
                          for number in range(PACKETS)})
        for bar in trace.bars:
            self.assertEqual(trace.processes[bar["pid"]], "switch0->host0")
        return lost

    def verdicts(self):
        """Packets of the port to host 0, by verdict."""
        ports = json.loads(tool("switch", "stats", "--name", NAME, "--json").stdout)["ports"]
        return next(port["packets"] for port in ports if port["port"] == "switch0->host0")

    def decided(self):
        return sum(self.verdicts().values())

    def trimmed(self):
        return self.verdicts()["trimmed"]

    def test_one_that_tells_nothing(self):
        self.attach()
        done = tool("trace", "--switch", NAME, "--out", str(self.path))
        self.assertEqual(done.returncode, 1)
        self.assertIn("attach it with --trace", done.stderr)
        self.assertFalse(self.path.exists())


if __name__ == "__main__":
    require_kernel_programs(TOOL)
    unittest.main(verbosity=2)
