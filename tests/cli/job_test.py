#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway job` on the command line, with a job of real processes.

    tests/cli/job_test.py PATH_TO_SPILLWAY PATH_TO_LIBRARY
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import patience, wait_until
from harness.processes import STEADY, Started, free_port, python, run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent
WORKER = python(HERE / "job_worker.py", HERE.parents[1] / "python")


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
        self.environment.update({**STEADY, "SPILLWAY_JOB_FILE": str(self.path / "ticket"), "SPILLWAY_LIBRARY": str(LIBRARY),
                                 "SPILLWAY_SOCKET_IFNAME": "=lo"})

    def tool(self, *arguments):
        return run([TOOL, "job", *arguments], env=self.environment)

    def start(self, processes, standbys):
        log = open(self.path / "log", "w")
        self.addCleanup(log.close)
        job = Started([TOOL, "job", "run", "-n", processes, "--", *WORKER, standbys], test=self, stdout=log,
                      stderr=subprocess.STDOUT, env=self.environment, start_new_session=True)
        self.wait_for(lambda status: len(status["members"]) == processes)
        return job

    def status(self):
        asked = self.tool("ls", "--json")
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def wait_for(self, condition):
        def status_that_fits():
            status = self.status()
            return status if status is not None and condition(status) else None

        try:
            return wait_until(status_that_fits, "the job's state")
        except AssertionError as error:
            self.fail(f"{error}: {self.status()}\n{(self.path / 'log').read_text()[-3000:]}")

    def check_ended(self, job):
        said = self.tool("end")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(job.wait_for_end(), 0)

    @staticmethod
    def process_of(status, rank):
        return int(next(each["name"] for each in status["members"] if each["rank"] == rank).rsplit(":", 1)[1])

    # ---- Without a job ----

    def test_help_has_examples_and_exit_codes(self):
        said = self.tool("--help").stdout
        self.assertIn("spillway job move 2", said)
        self.assertIn("Exit codes", said)

    def test_wrong_usage_exits_with_2(self):
        for arguments in ((), ("move",), ("move", "one"), ("run",), ("join",), ("drain",)):
            self.assertEqual(self.tool(*arguments).returncode, 2, arguments)

    def test_what_cannot_be_gets_a_sentence_and_exit_code_1(self):
        said = self.tool("ls")
        self.assertEqual((said.returncode, "no ticket in" in said.stderr), (1, True), said.stderr)
        said = self.tool("ls", "--ticket", "somewhere")
        self.assertEqual((said.returncode, "no job's ticket" in said.stderr), (1, True), said.stderr)
        said = self.tool("ls", "--ticket", "127.0.0.1:1/" + "0" * 32)
        self.assertEqual((said.returncode, "127.0.0.1:1" in said.stderr), (1, True), said.stderr)
        del self.environment["SPILLWAY_JOB_FILE"]
        self.assertIn("which job?", self.tool("ls").stderr)

    # ---- With one ----

    def test_a_job_is_listed_changed_and_ended(self):
        job = self.start(4, standbys=1)
        status = self.wait_for(lambda status: status["step"] > 3)
        self.assertEqual([each["rank"] for each in status["members"]], [0, 1, 2, None])
        moved = self.process_of(status, 1)
        said = self.tool("move", "1")
        self.assertEqual(said.returncode, 0, said.stderr)
        status = self.wait_for(lambda status: status["epoch"] == 2)
        self.assertNotEqual(self.process_of(status, 1), moved)
        self.assertIn("rank 1 moves", self.tool("ls").stdout)
        self.assertIn("from 0 to 2", self.tool("move", "9").stderr)
        self.assertIn("standbys", self.tool("move", "0", "1").stderr)
        self.assertIn("no rank of the job is on nowhere", self.tool("drain", "nowhere").stderr)
        page = self.path / "job.html"
        self.assertEqual(self.tool("watch", "--times", "1", "--page", str(page)).returncode, 0)
        self.assertIn("rank 1 moves", page.read_text())
        self.check_ended(job)

    def metrics_at(self, port):
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=patience()).read().decode()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        self.assertEqual(len(names), len(set(names)), text)
        return {re.sub(r'job="[0-9a-f]+",?', "", line.rsplit(" ", 1)[0]): float(line.rsplit(" ", 1)[1]) for line in lines}

    def test_a_job_grows_and_monitoring_sees_it_where_it_was(self):
        port = free_port()
        self.environment["SPILLWAY_METRICS_PORT"] = str(port)
        job = self.start(3, standbys=1)
        self.wait_for(lambda status: status["step"] > 3)
        before = self.metrics_at(port)
        self.assertEqual(before['spillway_job_members{standing="standby"}'], 1)
        self.assertEqual(self.metrics_at(port + 2)["spillway_job_rank{}"], -1)  # the standby's
        self.assertTrue(any(name.startswith("spillway_communicator_") for name in before), before)
        self.assertIn("1 standbys are in reach and 2 are needed", self.tool("grow", "2").stderr)
        said = self.tool("grow")
        self.assertEqual(said.returncode, 0, said.stderr)
        status = self.wait_for(lambda status: status["epoch"] == 2 and status["step"] > 6)
        self.assertEqual([each["rank"] for each in status["members"]], [0, 1, 2])
        self.assertIn("the job grows by 1", status["last_change"]["why"])
        after = self.metrics_at(port)
        self.assertEqual(after['spillway_job_members{standing="rank"}'], 3)
        self.assertEqual((after["spillway_job_epoch{}"], after["spillway_job_changes_total{}"]), (2, 1))
        self.assertEqual(after["spillway_job_interruptions_total{}"], 0)
        self.assertTrue(any(name.startswith("spillway_communicator_") for name in after), after)
        self.assertEqual(self.metrics_at(port + 2)["spillway_job_rank{}"], 2)
        self.check_ended(job)

    def test_a_killed_process_is_replaced_and_another_started(self):
        job = self.start(3, standbys=1)
        status = self.wait_for(lambda status: status["step"] > 3)
        os.kill(self.process_of(status, 0), signal.SIGKILL)
        status = self.wait_for(lambda status: status["epoch"] == 2 and status["step"] > 6)
        self.assertEqual([each["rank"] for each in status["members"]][:2], [0, 1])
        self.assertIn("rank 0 is gone", status["last_change"]["why"])
        # The one that was started for it is called in next. Until it has come, there is nobody.
        wait_until(lambda: self.tool("move", "1").returncode == 0, "a standby that rank 1 can move to")
        self.wait_for(lambda status: "rank 1 moves" in status["last_change"]["why"])
        self.check_ended(job)


if __name__ == "__main__":
    unittest.main()
