#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway ps` on the command line; tests/runtime/servers_test.py has it serve.

    tests/cli/ps_test.py PATH_TO_SPILLWAY
"""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}


def ps(*arguments, **variables):
    return subprocess.run([TOOL, "ps", *arguments], capture_output=True, text=True, timeout=30,
                          env={**ENVIRONMENT, **variables})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class CommandLine(unittest.TestCase):
    def test_help_has_examples_and_exit_codes(self):
        text = ps("--help").stdout
        self.assertIn("spillway ps --workers 4 --rendezvous", text)
        self.assertIn("Exit codes", text)

    def test_wrong_usage_exits_with_2(self):
        for arguments in ((), ("--workers", "0"), ("--workers", "two"), ("--workers", "1", "--servers", "0"),
                          ("--workers", "1", "--patience", "soon", "--rendezvous", "127.0.0.1:1")):
            self.assertEqual(ps(*arguments).returncode, 2, arguments)

    def test_what_cannot_be_gets_a_sentence_and_exit_code_1(self):
        nowhere = ps("--workers", "2")
        self.assertEqual(nowhere.returncode, 1)
        self.assertIn("SPILLWAY_COMM_ID", nowhere.stderr)
        outside = ps("--workers", "2", "--servers", "2", "--index", "2", "--rendezvous", "127.0.0.1:1")
        self.assertEqual(outside.returncode, 1)
        self.assertIn("parameter server 2 of 2", outside.stderr)

    def test_workers_that_do_not_come_are_not_waited_for_forever(self):
        alone = ps("--patience", "300ms", SPILLWAY_WORLD_SIZE="2",
                   SPILLWAY_COMM_ID=f"127.0.0.1:{free_port()}")
        self.assertEqual(alone.returncode, 1)
        self.assertIn("rank 0", alone.stderr)

    def test_an_interrupt_ends_the_wait(self):
        process = subprocess.Popen([TOOL, "ps", "--workers", "1", "--rendezvous", f"127.0.0.1:{free_port()}"],
                                   env=ENVIRONMENT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=10), 128 + signal.SIGINT)


if __name__ == "__main__":
    unittest.main()
