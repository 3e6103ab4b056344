#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway server` on the command line; tests/runtime/servers_test.py tests its service.

    tests/cli/server_test.py PATH_TO_SPILLWAY
"""
import os
import pathlib
import signal
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import patience
from harness.processes import Started, free_port, run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}


def server(*arguments, **variables):
    return run([TOOL, "server", *arguments], env={**ENVIRONMENT, **variables})


class CommandLine(unittest.TestCase):
    def test_help_has_examples_and_exit_codes(self):
        text = server("--help").stdout
        self.assertIn("spillway server --workers 4 --rendezvous", text)
        self.assertIn("Exit codes", text)

    def test_wrong_usage_exits_with_2(self):
        for arguments in ((), ("--workers", "0"), ("--workers", "two"), ("--workers", "1", "--servers", "0"),
                          ("--workers", "1", "--patience", "soon", "--rendezvous", "127.0.0.1:1")):
            self.assertEqual(server(*arguments).returncode, 2, arguments)

    def test_what_cannot_be_gets_a_sentence_and_exit_code_1(self):
        nowhere = server("--workers", "2")
        self.assertEqual(nowhere.returncode, 1)
        self.assertIn("SPILLWAY_COMM_ID", nowhere.stderr)
        outside = server("--workers", "2", "--servers", "2", "--index", "2", "--rendezvous", "127.0.0.1:1")
        self.assertEqual(outside.returncode, 1)
        self.assertIn("parameter server 2 of 2", outside.stderr)

    def test_workers_that_do_not_come_are_not_waited_for_forever(self):
        alone = server("--patience", "300ms", SPILLWAY_WORLD_SIZE="2",
                   SPILLWAY_COMM_ID=f"127.0.0.1:{free_port()}")
        self.assertEqual(alone.returncode, 1)
        self.assertIn("rank 0", alone.stderr)

    def test_an_interrupt_ends_the_wait(self):
        with socket.create_server(("127.0.0.1", 0)) as rank_0:
            port = rank_0.getsockname()[1]
            process = Started([TOOL, "server", "--workers", "1", "--rendezvous", f"127.0.0.1:{port}"], test=self,
                              env=ENVIRONMENT)
            rank_0.settimeout(patience())
            connection, _ = rank_0.accept()  # so the server waits for rank 0's answer
            with connection:
                process.send_signal(signal.SIGINT)
                process.finish()
        self.assertEqual(process.returncode, 128 + signal.SIGINT)


if __name__ == "__main__":
    unittest.main()
