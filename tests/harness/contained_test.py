#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that a test makes in contained.sh ends with it, however it is killed: processes, namespaces, pinned
files.

    tests/harness/contained_test.py

Namespaces need root; skips without it: exit code 77.
"""
import os
import pathlib
import signal
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.patience import wait_until
from harness.processes import run

SKIPPED = 77
CONTAINED = HERE / "contained.sh"
PINNED = pathlib.Path("/sys/fs/bpf/spillway-contained-test")
NAMESPACE = "spillway-contained-test"
# Leaves a process behind, in its own namespace, that ignores all signals but KILL; then hangs.
LITTERS = f"""
set -e
ip netns add {NAMESPACE}
mkdir {PINNED} 2>/dev/null || true
ip netns exec {NAMESPACE} setsid bash -c 'trap "" TERM INT HUP; echo ready; while true; do sleep 1; done' &
wait
"""


def descendants(pid):
    """All its descendants, with process ids as seen from here."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found[1:]


def network_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def networks():
    """Network namespaces that have processes."""
    return {network_of(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")}


class Contained(unittest.TestCase):
    def check_nothing_is_left(self, kill_with):
        before = networks()
        test = subprocess.Popen([CONTAINED, "bash", "-c", LITTERS], stdout=subprocess.PIPE, text=True)
        self.addCleanup(test.stdout.close)
        self.addCleanup(test.kill)
        self.assertEqual(test.stdout.readline(), "ready\n")
        started = descendants(test.pid)
        made = {network_of(pid) for pid in started} - before - {None}
        self.assertEqual(len(made), 2, "the test's own network, and the one that it made")
        test.send_signal(kill_with)
        test.wait()
        wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in started),
                   "the end of what a killed test started")
        self.assertFalse(networks() & made)
        self.assertNotIn(NAMESPACE, run(["ip", "netns", "list"]).stdout)
        self.assertFalse(PINNED.exists())

    def test_killed_at_once_it_leaves_nothing(self):
        self.check_nothing_is_left(signal.SIGKILL)

    def test_asked_to_end_it_leaves_nothing(self):
        self.check_nothing_is_left(signal.SIGTERM)

    def test_its_exit_code_is_the_commands(self):
        self.assertEqual(run([CONTAINED, "bash", "-c", "exit 77"]).returncode, 77)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("namespaces need root")
        sys.exit(SKIPPED)
    unittest.main()
