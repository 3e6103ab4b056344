#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway doctor` as its users see it: on this host, over loopback, and between lab hosts.

    tests/cli/doctor_test.py PATH_TO_SPILLWAY
"""
import json
import os
import pathlib
import re
import signal
import socket
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import Limit, wait_until
from harness.processes import Started, run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
LOCAL = {"kernel", "cap-net_admin", "cap-net_raw", "cap-bpf", "user-namespaces", "bpffs", "btf",
         "iproute2", "mtu", "net.core.rmem_max", "net.core.wmem_max", "gso", "gro", "batching",
         "marks-ipv4", "marks-ipv6", "receive-stamps", "clocksource", "clock-read", "gpu"}
WAY = {"round-trip", "clock-offset", "path-mtu", "dscp-there", "dscp-back", "ecn-there", "ecn-back",
       "trim", "stale-lengths"}
EXIT_CODES = {"ok": 0, "note": 0, "warning": 3, "error": 4}

# Host 0 listens until all others are done; these begin together. They share a folder.
IN_THE_LAB = r"""
cd "$FOLDER"
touch "here$RANK"
while [ "$(ls here* | wc -l)" -lt "$WORLD_SIZE" ]; do sleep 0.02; done
if [ "$RANK" = 0 ]; then
  "$TOOL" doctor --listen > listener.txt & listener=$!
  while [ "$(ls done* 2>/dev/null | wc -l)" -lt $((WORLD_SIZE - 1)) ]; do sleep 0.02; done
  kill -TERM $listener
  wait $listener
else
  "$TOOL" doctor --peer 10.77.0.1:7078 --json > "told$RANK.json"
  touch "done$RANK"
fi
"""


def doctor(*arguments, **variables):
    return run([TOOL, "doctor", *arguments], env={**os.environ, **variables})


def patiently(check):
    """Repeats a failing check until the limit is over: a listener or prober that waits for a processor loses echoes,
    and warns about it."""
    limit = Limit(20)
    while True:
        try:
            return check()
        except AssertionError:
            if limit.left() == 0:
                raise


def by_check(told):
    return {finding["check"]: finding for finding in told["findings"]}


class Listening(Started):
    """A listener on loopback, at a port that the kernel chooses."""

    def __init__(self):
        super().__init__([TOOL, "doctor", "--listen", "127.0.0.1:0"])
        self.address = re.match(r"listening at (\S+)", self.line()).group(1)

    def has_read_all(self):
        """True if the kernel has no unread datagrams for it."""
        local = f":{int(self.address.split(':')[1]):04X}"
        sockets = [line.split() for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:]]
        (queued,) = [fields[4] for fields in sockets if fields[1].endswith(local)]
        return queued.endswith(":00000000")


class OnThisHost(unittest.TestCase):
    def test_json_has_every_check_and_the_exit_code_agrees(self):
        result = doctor("--json")
        told = json.loads(result.stdout)
        self.assertLessEqual(LOCAL, set(by_check(told)))
        counted = {name: 0 for name in EXIT_CODES}
        for finding in told["findings"]:
            self.assertEqual(set(finding), {"check", "severity", "finding", "remedy"})
            self.assertEqual(finding["remedy"] == "", finding["severity"] == "ok", finding)
            counted[finding["severity"]] += 1
        self.assertEqual({name: told["summary"][name] for name in EXIT_CODES}, counted)
        worst = [name for name in EXIT_CODES if counted[name]][-1]
        self.assertEqual(result.returncode, EXIT_CODES[worst])
        self.assertEqual(told["summary"]["fit"], result.returncode == 0)

    def test_text_has_remedies_below_and_no_colours_without_a_terminal(self):
        result = doctor()
        lines = result.stdout.splitlines()[:-1]
        for line, below in zip(lines, [*lines[1:], ""]):
            if not line.startswith((" ", "ok")):
                self.assertRegex(below, r"^ +do: \S")
        self.assertNotIn("\x1b", result.stdout)

    def test_help_tells_the_exit_codes(self):
        result = doctor("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("Example", result.stdout)
        self.assertIn("3 warnings, 4 errors", result.stdout)

    def test_wrong_usage_exits_with_2_and_what_cannot_be_done_with_1(self):
        for arguments in (["--for", "1s"], ["--listen", "--peer", "127.0.0.1:1"],
                          ["--trim-for", "2"], ["--trim-for", "1000s"], ["--trim-rate", "fast"],
                          ["--listen", "127.0.0.1:0", "--for", "soon"], ["--listen", "nonsense"],
                          ["--peer", "nonsense:"], ["--peer", "no such host"], ["--peer", "127.0.0.1:99999"]):
            result = doctor(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(next(word for word in reversed(arguments) if word.startswith("--")), result.stderr)


class OverLoopback(unittest.TestCase):
    def check_way_to(self, listener):
        result = doctor("--peer", listener.address, "--json", "--trim-for", "100ms")
        findings = by_check(json.loads(result.stdout))
        self.assertLessEqual(LOCAL | WAY, set(findings))
        for check in WAY:
            self.assertIn(findings[check]["severity"], ("ok", "note"), findings[check])

    def test_a_listener_answers_probers_until_it_is_told_to_stop(self):
        with Listening() as listener:
            for _ in range(2):
                patiently(lambda: self.check_way_to(listener))
            listener.send_signal(signal.SIGTERM)
            self.assertIn("questions answered, 0 not", listener.finish()[0])
            self.assertEqual(listener.returncode, 0)

    def test_garbage_is_counted_and_not_answered(self):
        with Listening() as listener:
            host, port = listener.address.split(":")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                for size in (1, 47, 48, 320, 1400):
                    sock.sendto(b"SPDR" + bytes(size), (host, int(port)))
                wait_until(listener.has_read_all, "the listener's reading of all datagrams")
                listener.send_signal(signal.SIGINT)
                self.assertIn("5 others", listener.finish()[0])
                self.assertEqual(listener.returncode, 0)
                with self.assertRaises(BlockingIOError):  # it has ended, so no answer is in flight
                    sock.recv(2000, socket.MSG_DONTWAIT)

    def test_where_nobody_listens_it_says_so(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            free = sock.getsockname()[1]
        result = doctor("--peer", f"127.0.0.1:{free}", "--json")
        self.assertEqual(result.returncode, 4)
        finding = by_check(json.loads(result.stdout))["round-trip"]
        self.assertEqual(finding["severity"], "error")
        self.assertIn("doctor --listen", finding["remedy"])

    def test_it_ends_by_itself_when_asked_to(self):
        self.assertEqual(doctor("--listen", "127.0.0.1:0", "--for", "100ms").returncode, 0)


class InTheLab(unittest.TestCase):
    def test_three_probers_at_once_find_the_trim_size(self):
        patiently(self.check_probers_at_once)

    def check_probers_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            lab = run([TOOL, "lab", "run", "--preset", "incast", "--allow-late", "--env", f"FOLDER={folder}", "--env",
                       f"TOOL={TOOL}", "--quiet", "--", "sh", "-c", IN_THE_LAB])
            if "only Spillway's packets" in lab.stderr:
                self.skipTest("this machine allows no network namespaces")
            self.assertEqual(lab.returncode, 0, lab.stderr)
            told = [by_check(json.loads(path.read_text()))
                    for path in sorted(pathlib.Path(folder).glob("told*.json"))]
        self.assertEqual(len(told), 3)
        for findings in told:
            self.assertLessEqual(WAY, set(findings))
        trims = [findings["trim"]["finding"] for findings in told]
        self.assertTrue(any("cut to 384 bytes, DSCP 48" in trim for trim in trims), trims)
        agreed = [findings["trim-configured"] for findings in told if "trim-configured" in findings]
        self.assertTrue(agreed and all(one["severity"] == "ok" for one in agreed), agreed)
        for findings in told:
            self.assertEqual(findings["path-mtu"]["finding"], "1500 bytes get through")
            for check in ("dscp-there", "dscp-back", "ecn-there", "ecn-back", "stale-lengths"):
                self.assertEqual(findings[check]["severity"], "ok", findings[check])


if __name__ == "__main__":
    unittest.main()
