#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The network lab as its users see it: real namespaces, real sockets, real signals.

    tests/lab/lab_test.py PATH_TO_SPILLWAY
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import wait_until
from harness.processes import Started, environment_with, run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
NOBODY = 65534

# Every rank sends its number to rank 0, which answers with their sum. Rank 0 may listen late: the others retry.
SUM_OVER_TCP = r"""
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(address)
    peers = [server.accept()[0] for _ in range(world - 1)]
    total = sum(int(peer.recv(16)) for peer in peers)
    for peer in peers:
        peer.sendall(str(total).encode())
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.sendall(str(rank).encode())
    total = int(peer.recv(16))
print("sum", total)
"""

# Rank 1 sends `BYTES` to rank 0, which prints the duration.
TRANSFER = r"""
import os, socket, time
size = int(os.environ["BYTES"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    begin, got = time.monotonic(), 0  # before anything can be under way
    peer = socket.create_server(address).accept()[0]
    while got < size:
        got += len(peer.recv(1 << 20))
    print("seconds", time.monotonic() - begin)
    peer.sendall(b"x")
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.sendall(bytes(size))
    peer.recv(1)
"""


def lab(*arguments, prefix=(), **options):
    return run([*prefix, TOOL, "lab", *arguments], env=environment_with(), **options)


# Not sys.executable, which may be executable only for its owner.
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable


def python(code):
    return ["--", PYTHON, "-c", code]


def interfaces():
    return re.sub(r"\s+", " ", run(["ip", "-o", "link"]).stdout)


def processes_with(mark):
    """Ids of processes that have `mark` in their command line."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def can_isolate():
    return lab("run", "--hosts", "2", "--isolation", "root", "--allow-late", "--quiet", "--", "true").returncode == 0


NEEDS_NAMESPACES = unittest.skipUnless(can_isolate(), "network namespaces need root")


class Usage(unittest.TestCase):
    def test_every_command_has_help_with_an_example(self):
        for verb in ([], ["run"], ["compare"], ["up"], ["ls"], ["exec"], ["down"], ["presets"]):
            result = lab(*verb, "--help")
            self.assertEqual(result.returncode, 0, verb)
            self.assertIn("Example", result.stdout, verb)

    def test_wrong_usage_exits_with_2(self):
        for arguments in (["run"], ["run", "--mode", "magic", "--", "true"], ["nonsense"]):
            self.assertEqual(lab(*arguments).returncode, 2, arguments)

    def test_what_makes_no_sense_gets_one_sentence_and_exit_code_1(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder) / "broken.scn"
            broken.write_text("topology one-switch hosts=2\nswitch colour=red\n")
            fast = pathlib.Path(folder) / "fast.scn"
            fast.write_text("topology one-switch hosts=2 rate=1tbit\n")
            for arguments, sentence in (
                (["--scenario", broken], "line 2.*colour"),
                (["--scenario", "missing.scn"], "cannot read missing.scn"),
                (["--scenario", fast], "too fast"),
                (["--scenario", fast, "--hosts", "3"], "too fast"),
            ):
                result = lab("run", *arguments, "--", "true")
                self.assertEqual(result.returncode, 1, (arguments, result.stderr))
                self.assertRegex(result.stderr, f"^spillway: [^\n]*{sentence}[^\n]*\n$")

    def test_values_that_no_network_has_are_wrong_usage(self):
        for option, value, sentence in (("--preset", "nonsense", "known are clean"), ("--rate", "fast", "is not a rate"),
                                         ("--env", "novalue", "NAME=VALUE"), ("--loss", "200%", "is not a share"),
                                         ("--rate", "1tbit", "too fast"), ("--mtu", "500", "from 576 to 9216"),
                                         ("--tcp", "nonsense", "available are")):
            result = lab("run", option, value, "--", "true")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"{option}: ", result.stderr)
            self.assertIn(sentence, result.stderr)

    def test_the_help_says_that_a_late_command_runs_once_more(self):
        self.assertIn("a late command runs once more", " ".join(lab("run", "--help").stdout.split()))

    def test_presets_are_listed_and_printed(self):
        listed = lab("presets").stdout
        for name in ("clean", "congested", "incast", "fast", "gray", "oversubscribed", "spray", "wan"):
            self.assertIn(name, listed)
            self.assertIn("topology ", lab("presets", name).stdout)


class Ranks:
    """Tests that hold for every kind of isolation."""
    isolation = "auto"
    prefix = ()

    def run_lab(self, *arguments):
        return lab("run", "--isolation", self.isolation, "--allow-late", *arguments, prefix=self.prefix)

    def test_ranks_reach_each_other_over_tcp(self):
        result = self.run_lab("--hosts", "3", *python(SUM_OVER_TCP))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] sum 3", "[1] sum 3", "[2] sum 3"])

    def test_the_exit_code_is_that_of_the_worst_rank(self):
        result = self.run_lab("--hosts", "2", "--", "sh", "-c", "exit $((RANK * 3))")
        self.assertEqual(result.returncode, 3)
        self.assertIn("rank 1 on host1 exited with 3", result.stderr)

    def test_when_one_rank_fails_the_others_are_ended(self):
        result = self.run_lab("--hosts", "2", "--grace", "0.2", "--", "sh", "-c",
                              "[ $RANK = 0 ] && exit 1; sleep infinity")
        self.assertEqual(result.returncode, 128 + signal.SIGTERM)

    def test_a_missing_command_is_named(self):
        result = self.run_lab("--hosts", "2", "--", "no-such-command")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "cannot run 'no-such-command' on host0")

    def test_ranks_find_what_was_promised_in_their_environment(self):
        result = self.run_lab("--hosts", "2", "--rate", "200mbit", "--env", "MINE=a b", "--quiet",
                              "--", "env")
        self.assertEqual(result.returncode, 0, result.stderr)
        ranks = {0: {}, 1: {}}
        for rank, name, value in re.findall(r"^\[(\d)\] (\w+)=(.*)$", result.stdout, re.MULTILINE):
            ranks[int(rank)][name] = value
        for rank, found in ranks.items():
            expected = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                        "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank), "NODE_RANK": str(rank),
                        "MASTER_PORT": "29500", "SPILLWAY_HOST_NAME": f"host{rank}",
                        "SPILLWAY_LINK_RATE": "200000000", "SPILLWAY_MTU": "1500",
                        "SPILLWAY_TRIM_BYTES": "384", "MINE": "a b"}
            self.assertEqual({name: found.get(name) for name in expected}, expected)
            self.assertEqual(len(found["SPILLWAY_PEERS"].split(",")), 2)
            self.check_addresses(rank, found)

    def check_addresses(self, rank, found):
        self.assertEqual(found["MASTER_ADDR"], "10.77.0.1")
        self.assertEqual(found["SPILLWAY_PEERS"], "10.77.0.1:7077,10.77.0.2:7077")
        self.assertEqual(found["SPILLWAY_LISTEN"], f"10.77.0.{rank + 1}:7077")


@NEEDS_NAMESPACES
class AsRoot(Ranks, unittest.TestCase):
    isolation = "root"

    def test_nothing_changes_in_the_callers_network(self):
        before = interfaces()
        result = self.run_lab("--hosts", "2", "--", "ip", "-o", "link")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("[1] ", result.stdout)
        self.assertRegex(result.stdout, r"eth0@")
        self.assertEqual(interfaces(), before)

    def test_ipv6_works_too(self):
        result = self.run_lab("--hosts", "2", *python(SUM_OVER_TCP.replace(
            'os.environ["MASTER_ADDR"]', '"fd77::1"').replace(
            "create_server(address)", "create_server(address, family=socket.AF_INET6)")))
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] sum 1", "[1] sum 1"], result.stderr)

    def test_json_tells_exit_codes_and_counters(self):
        result = self.run_lab("--hosts", "2", "--json", *python(SUM_OVER_TCP))
        told = json.loads(result.stdout)
        self.assertEqual(told["exit_codes"], [0, 0])
        self.assertEqual(told["isolation"], "root")
        self.assertGreater(told["fabric"]["frames_in"], 5)
        self.assertEqual([port["port"] for port in told["fabric"]["ports"]],
                         ["switch0->host0", "switch0->host1"])
        self.assertIn("[0] sum 1", result.stderr)

    def test_a_link_carries_no_more_than_its_rate(self):
        size = 5_000_000
        ideal = size * 8 / 100e6
        result = self.run_lab("--hosts", "2", "--rate", "100mbit", "--env", f"BYTES={size}",
                              *python(TRANSFER))
        seconds = float(re.search(r"seconds (\S+)", result.stdout).group(1))
        self.assertGreater(seconds, 0.9 * ideal)

    def test_the_summary_says_where_the_time_went_and_whether_the_fabric_kept_up(self):
        arguments = ("--hosts", "2", "--rate", "100mbit", "--env", "BYTES=4000000")
        result = self.run_lab(*arguments, "--json", *python(TRANSFER))
        self.assertEqual(result.returncode, 0, result.stderr)
        told = json.loads(result.stdout)
        self.assertRegex(told["time"]["busiest_link"], "^switch0->host[01]$")
        self.assertEqual(told["time"]["rate_bps"], 100_000_000)
        carried = told["time"]["use"] * told["time"]["elapsed_ms"] / 1e3 * 100e6 / 8
        self.assertGreater(carried, 3_900_000)
        self.check_use_over_time(told["time"])
        self.assertNotIn("idle_ms", told["time"])  # TCP counts nothing
        self.assertEqual(told["pace"]["kept_up"], told["pace"]["warning"] == "")
        self.assertLessEqual(told["pace"]["mean_late_us"], told["fabric"]["latest_us"] + 1)
        result = self.run_lab(*arguments, *python(TRANSFER))
        self.assertRegex(result.stderr, r"busiest link: switch0->host[01], used for \d+ % of")

    def check_use_over_time(self, time):
        """Its mean is the link's use, or less if a late fabric sent much at once: a bin is limited to the link's
        capacity. How much less depends on the machine. lab/time_account_test.cc checks what is in which bin,
        and lab/network/network_test.cc when the fabric is looked at."""
        bins, length, elapsed = time["use_over_time"], time["bin_ms"], time["elapsed_ms"]
        mean = sum(use * min(length, elapsed - at * length) for at, use in enumerate(bins)) / elapsed
        self.assertLessEqual(max(bins), 1.0)
        self.assertLess(mean, 1.01 * time["use"])
        self.assertGreater(mean, 0)

    def test_a_lossy_link_loses(self):
        result = self.run_lab("--hosts", "2", "--loss", "5%", "--json", "--env", "BYTES=2000000",
                              *python(TRANSFER))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(json.loads(result.stdout)["fabric"]["lost_to_faults"], 5)

    def test_the_switch_is_in_the_kernel_where_it_can_be(self):
        for arguments, dataplane in ((["--delay", "10us"], "bpf"),
                                     (["--delay", "10us", "--dataplane", "user"], "user"),
                                     (["--preset", "congested"], "user")):
            result = self.run_lab(*arguments, "--json", "--", "true")
            self.assertEqual(result.returncode, 0, result.stderr)
            told = json.loads(result.stdout)["dataplane"]
            if "has no eBPF programs" not in result.stderr:
                self.assertEqual(told, dataplane, arguments)
        result = self.run_lab("--preset", "congested", "--delay", "10us", "--dataplane", "bpf", "--", "true")
        self.assertEqual(result.returncode, 1)
        self.assertIn("tenant", result.stderr)

    def test_the_fabric_in_user_space_carries_the_same(self):
        result = self.run_lab("--hosts", "3", "--dataplane", "user", *python(SUM_OVER_TCP))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] sum 3", "[1] sum 3", "[2] sum 3"])

    def test_congestion_control_is_the_hosts_own(self):
        before = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text()
        result = self.run_lab("--hosts", "2", "--tcp", "reno", "--", "cat",
                              "/proc/sys/net/ipv4/tcp_congestion_control")
        self.assertEqual(sorted(result.stdout.splitlines()), ["[0] reno", "[1] reno"], result.stderr)
        self.assertEqual(pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(), before)


def unprivileged_prefix():
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return ()
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


class AsNobody(Ranks, unittest.TestCase):
    isolation = "user"
    prefix = unprivileged_prefix()

    def test_a_switch_in_the_kernel_takes_root(self):
        result = self.run_lab("--hosts", "2", "--dataplane", "bpf", "--", "true")
        self.assertEqual(result.returncode, 1)
        self.assertIn("needs root", result.stderr)

    @classmethod
    def setUpClass(cls):
        result = lab("run", "--hosts", "2", "--isolation", "user", "--allow-late", "--", "true", prefix=cls.prefix)
        if "does not allow user namespaces" in result.stderr or "Permission denied" in result.stderr:
            raise unittest.SkipTest(f"no unprivileged user can run the tool here: {result.stderr}")


class OnLoopback(Ranks, unittest.TestCase):
    isolation = "none"

    def check_addresses(self, rank, found):
        self.assertEqual(found["MASTER_ADDR"], "127.0.0.1")
        for address in (*found["SPILLWAY_PEERS"].split(","), found["SPILLWAY_LISTEN"]):
            self.assertRegex(address, r"^127\.0\.0\.1:\d+$")
        self.assertNotIn(found["SPILLWAY_LISTEN"], found["SPILLWAY_PEERS"].split(","))

    def test_it_says_what_crosses_the_fabric(self):
        result = self.run_lab("--hosts", "2", "--quiet", "--", "true")
        self.assertRegex(result.stderr, "^spillway: [^\n]*only Spillway's packets[^\n]*\n$")


class Endings(unittest.TestCase):
    """Whatever ends a lab, nothing of it is left."""

    def start(self, isolation):
        # A command line, of a rank and its child, that no other process has.
        self.mark = f"lab-test-{os.getpid()}-{time.monotonic_ns()}"
        script = f"sh -c 'echo child; sleep infinity; : {self.mark}' & echo ready; wait; : {self.mark}"
        process = Started([TOOL, "lab", "run", "--hosts", "2", "--isolation", isolation, "--allow-late", "--",
                           "sh", "-c", script], self, stderr=subprocess.DEVNULL)
        lines = [process.line() for _ in range(4)]
        self.assertEqual(sum("ready" in line for line in lines), 2, lines)
        return process

    def check_nothing_is_left(self):
        wait_until(lambda: not processes_with(self.mark), "the end of all ranks")
        names = [one["name"] for one in json.loads(lab("ls", "--json").stdout)]
        self.assertEqual(names, [])

    def isolations(self):
        return ["none", "user"] + (["root"] if can_isolate() else [])

    def test_signals_end_everything(self):
        for isolation in self.isolations():
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(isolation=isolation, signal=number):
                    process = self.start(isolation)
                    process.send_signal(number)
                    self.assertEqual(process.wait_for_end(), 128 + number)
                    self.check_nothing_is_left()

    def test_a_killed_lab_leaves_nothing_once_the_next_command_ran(self):
        for isolation in self.isolations():
            with self.subTest(isolation=isolation):
                process = self.start(isolation)
                process.kill()
                process.wait_for_end()
                wait_until(lambda: json.loads(lab("ls", "--json").stdout) == [], "no lab")
                self.check_nothing_is_left()


class InTheBackground(unittest.TestCase):
    name = f"lab-test-{os.getpid()}"

    def check_life(self, isolation, prefix=()):
        up = lab("up", "--name", self.name, "--hosts", "2", "--isolation", isolation, prefix=prefix)
        self.addCleanup(lab, "down", "--name", self.name, prefix=prefix)
        self.assertEqual(up.returncode, 0, up.stderr)
        self.assertIn("host1", up.stdout)
        second = lab("up", "--name", self.name, prefix=prefix)
        self.assertEqual(second.returncode, 1)
        self.assertIn("is running", second.stderr)
        told = {one["name"]: one for one in json.loads(lab("ls", "--json", prefix=prefix).stdout)}
        self.assertEqual(told[self.name]["hosts"], 2)
        self.assertEqual(told[self.name]["isolation"], isolation)
        self.assertIn(self.name, lab("ls", prefix=prefix).stdout)
        self.check_exec(prefix)
        down = lab("down", "--name", self.name, prefix=prefix)
        self.assertEqual(down.returncode, 0, down.stderr)
        self.assertEqual(json.loads(lab("ls", "--json", prefix=prefix).stdout), [])
        self.assertEqual(processes_with(self.name), [])

    def check_exec(self, prefix):
        everywhere = lab("exec", "--name", self.name, "all", *python(SUM_OVER_TCP), prefix=prefix)
        self.assertEqual(sorted(everywhere.stdout.splitlines()), ["[0] sum 1", "[1] sum 1"],
                         everywhere.stderr)
        one = lab("exec", "--name", self.name, "host1", "--", "sh", "-c",
                  "cat; echo $SPILLWAY_HOST_NAME; exit 5", prefix=prefix, input="typed\n")
        self.assertEqual((one.stdout, one.returncode), ("typed\nhost1\n", 5), one.stderr)
        wrong = lab("exec", "--name", self.name, "host9", "--", "true", prefix=prefix)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("host0, host1, all", wrong.stderr)

    @NEEDS_NAMESPACES
    def test_as_root(self):
        before = interfaces()
        self.check_life("root")
        self.assertEqual(interfaces(), before)

    def test_as_nobody(self):
        prefix = unprivileged_prefix()
        probe = lab("run", "--hosts", "2", "--isolation", "user", "--allow-late", "--", "true", prefix=prefix)
        if probe.returncode != 0:
            self.skipTest(f"no unprivileged user can run the tool here: {probe.stderr}")
        self.check_life("user", prefix)

    def test_on_loopback(self):
        self.check_life("none")

    def test_without_a_lab_the_commands_say_so(self):
        for verb in (["exec", "host0", "--", "true"], ["down"]):
            result = lab(*verb)
            self.assertEqual(result.returncode, 1)
            self.assertIn("no lab is running", result.stderr)


if __name__ == "__main__":
    unittest.main()
