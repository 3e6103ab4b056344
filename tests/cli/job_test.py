#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway job` on the command line, with a job of real processes.

    tests/cli/job_test.py PATH_TO_SPILLWAY PATH_TO_LIBRARY
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import Limit, patience, wait_until
from harness.processes import STEADY, Started, free_port, python, run
from harness.watched_job import WatchedJob

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "python"
WORKER = python(HERE / "job_worker.py", PACKAGE)
# As python/CMakeLists.txt looks for it.
TORCH_PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable


def has_torch():
    return run([TORCH_PYTHON, "-c", "import torch.distributed"]).returncode == 0


def newcomers_that(end):
    """Runs the words after FILE and COUNT. A process that should join the job notes its start in FILE instead, and ends,
    the first COUNT times."""
    return ["sh", "-c", 'if [ -n "$SPILLWAY_JOB" ]; then echo >> "$1"; '
                        f'[ "$(wc -l < "$1")" -gt "$2" ] || {end}; fi; shift 2; exec "$@"', "sh"]


FAILING_NEWCOMERS = newcomers_that("exit 3")
KILLED_NEWCOMERS = newcomers_that("kill -9 $$")
# Every second one exits, the others are killed.
MIXED_NEWCOMERS = newcomers_that('{ [ $(($(wc -l < "$1") % 2)) = 0 ] || kill -9 $$; exit 3; }')
# Newcomers that are still importing something when the job ends.
SLOW_NEWCOMERS = ["sh", "-c", '[ -z "$SPILLWAY_JOB" ] || exec sleep 1000; exec "$@"', "sh"]
MOST_STARTS = 3  # kMaxStarts of tools/cli/job_run.cc


class Command(WatchedJob, unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
        self.environment.update({**STEADY, "SPILLWAY_JOB_FILE": str(self.path / "ticket"), "SPILLWAY_LIBRARY": str(LIBRARY),
                                 "SPILLWAY_SOCKET_IFNAME": "=lo"})

    def tool(self, *arguments):
        return run([TOOL, "job", *arguments], env=self.environment)

    def start(self, processes, standbys, *step_seconds, prefix=(), worker=WORKER):
        log = open(self.path / "log", "w")
        self.addCleanup(log.close)
        job = Started([TOOL, "job", "run", "-n", processes, "--", *prefix, *worker, standbys, *step_seconds],
                      test=self, stdout=log,
                      stderr=subprocess.STDOUT, env=self.environment, start_new_session=True)
        self.wait_for(lambda status: len(status["members"]) == processes)
        return job

    def said(self):
        return (self.path / "log").read_text()[-3000:]

    def check_ended(self, job):
        said = self.tool("end")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(job.wait_for_end(), 0)

    def nonce(self):
        """The part of the ticket that only members may know."""
        return (self.path / "ticket").read_text().strip().rsplit("/", 1)[1]

    @staticmethod
    def process_of(status, rank):
        return int(next(each["name"] for each in status["members"] if each["rank"] == rank).rsplit(":", 1)[1])

    def test_a_newcomer_that_still_starts_does_not_keep_an_ended_job(self):
        del self.environment["SPILLWAY_SOCKET_IFNAME"]  # then the loopback interface is chosen
        job = self.start(3, 1, prefix=SLOW_NEWCOMERS)
        os.kill(self.process_of(self.status(), 1), signal.SIGKILL)
        self.wait_for(lambda status: len(status["members"]) == 2)
        self.check_ended(job)
        self.assertNotIn("no secret", self.said())
        self.assertNotIn("start 2 of", self.said())

    # ---- Without a job ----

    def test_help_has_examples_and_exit_codes(self):
        said = self.tool("--help").stdout
        self.assertIn("spillway job remove 2 --keep", said)
        self.assertIn("Exit codes", said)

    def test_wrong_usage_exits_with_2(self):
        for arguments in ((), ("remove",), ("remove", "one"), ("remove", "1", "--host", "here"), ("run",), ("join",),
                          ("status", "--page", "page")):
            self.assertEqual(self.tool(*arguments).returncode, 2, arguments)

    def check_refused(self, option, sentence, *arguments):
        said = self.tool(*arguments)
        self.assertEqual((said.returncode, option in said.stderr, sentence in said.stderr), (2, True, True), said.stderr)

    def test_a_wrong_ticket_is_wrong_usage(self):
        for verb in (("status",), ("grow",), ("join", "--", "true")):
            self.check_refused("--ticket", "no job's ticket", verb[0], "--ticket", "nonsense", *verb[1:])
        self.environment["SPILLWAY_JOB"] = "nonsense"
        self.check_refused("SPILLWAY_JOB", "no job's ticket", "status")
        del self.environment["SPILLWAY_JOB"], self.environment["SPILLWAY_JOB_FILE"]
        self.check_refused("--ticket", "which job?", "status")
        self.check_refused("--ticket", "which job?", "join", "--", "true")

    def test_wrong_numbers_are_refused_with_their_range(self):
        large = 20 * "9"
        for option, sentence, *arguments in (
                ("COUNT", "from 1 to 4096", "grow", "0"), ("COUNT", "from 1 to 4096", "grow", large),
                ("RANK", "from 0 to 4095", "remove", large), ("--times", "from 0 to 4294967295", "status", "--watch", "--times", large),
                ("--local-rank", "from 0 to 4095", "join", "--local-rank=-1", "--", "true")):
            self.check_refused(option, sentence, *arguments)

    def test_a_run_that_cannot_be_is_refused_before_it_starts(self):
        large = 20 * "9"
        for option, sentence, *arguments in (
                ("--processes", "from 1 to 4096", "-n", large), ("--world", "from 1 to 4096", "--world", large),
                ("--respawn", "from 0 to", "--respawn", large), ("--world", "from 3 to 4096", "-n", "3", "--world", "2"),
                ("--first", "from 0 to 1", "--first", "5", "--world", "2"),
                ("--first", "from 0 to 0", "--first", "1"), ("--master", "HOST:PORT", "--first", "1", "--world", "2"),
                ("--master", "'nonsense' is not HOST:PORT", "--master", "nonsense")):
            number = () if "-n" in arguments else ("-n", "1")
            self.check_refused(option, sentence, "run", *number, *arguments, "--", "true")
        self.assertNotIn("SPILLWAY_COMM_ID", self.tool("run", "-n", "1", "--master", "nonsense", "--", "true").stderr)

    def test_what_cannot_be_gets_a_sentence_and_exit_code_1(self):
        said = self.tool("status")
        self.assertEqual((said.returncode, "no ticket in" in said.stderr), (1, True), said.stderr)
        said = self.tool("status", "--ticket", "127.0.0.1:1/" + "0" * 32)
        self.assertEqual((said.returncode, "127.0.0.1:1" in said.stderr), (1, True), said.stderr)
        (self.path / "ticket").write_text("nonsense\n")
        (self.path / "ticket").chmod(0o600)
        said = self.tool("status")
        self.assertEqual((said.returncode, "no job's ticket" in said.stderr), (1, True), said.stderr)

    # ---- With a job ----

    def test_a_job_is_listed_changed_and_ended(self):
        job = self.start(4, standbys=1)
        status = self.wait_for(lambda status: status["step"] > 3)
        self.assertEqual([each["rank"] for each in status["members"]], [0, 1, 2, None])
        moved = self.process_of(status, 1)
        said = self.tool("remove", "1", "--keep")
        self.assertEqual(said.returncode, 0, said.stderr)
        status = self.wait_for(lambda status: status["epoch"] == 2)
        self.assertNotEqual(self.process_of(status, 1), moved)
        self.assertIn("rank 1 moves", self.tool("status").stdout)
        self.assertIn("from 0 to 2", self.tool("remove", "9", "--keep").stderr)
        self.assertIn("standbys", self.tool("remove", "0", "1", "--keep").stderr)
        self.assertIn("no rank of the job is on nowhere", self.tool("remove", "--host", "nowhere").stderr)
        page = self.path / "job.html"
        self.assertEqual(self.tool("status", "--watch", "--times", "1", "--page", str(page)).returncode, 0)
        self.assertIn("rank 1 moves", page.read_text())
        self.check_ended(job)

    def metrics_at(self, port):
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=patience()).read().decode()
        self.assertNotIn(self.nonce()[:8], text)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        self.assertEqual(len(names), len(set(names)), text)
        return {re.sub(r'job="[0-9a-f]+",?', "", line.rsplit(" ", 1)[0]): float(line.rsplit(" ", 1)[1]) for line in lines}

    def test_a_job_grows_and_monitoring_sees_it_where_it_was(self):
        """Ranks learn of the change two steps ahead, so it interrupts no step. On a busy machine that takes longer
        steps."""
        limit, step_s = Limit(20), 0.02
        while (interruptions := self.interruptions_of_growth(step_s)) > 0:
            self.assertGreater(limit.left(), 0, f"{interruptions} interruptions of steps of {step_s} s")
            step_s *= 4

    def reserved_ports(self, count):
        """The first of so many ports in a row. They are bound here until the test ends, so the kernel assigns them to no
        other socket; servers with SO_REUSEADDR, such as those of metrics, may listen there."""
        while True:
            first, reserved = free_port(), []
            try:
                for port in range(first, first + count):
                    reserved.append(socket.socket())
                    self.addCleanup(reserved[-1].close)
                    reserved[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    reserved[-1].bind(("127.0.0.1", port))
                return first
            except (OSError, OverflowError):  # one is taken, or there is no such port
                for each in reserved:
                    each.close()

    def interruptions_of_growth(self, step_s):
        port = self.reserved_ports(3)
        self.environment["SPILLWAY_METRICS_LISTEN"] = str(port)
        job = self.start(3, 1, step_s)
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
        self.assertTrue(any(name.startswith("spillway_communicator_") for name in after), after)
        self.assertEqual(self.metrics_at(port + 2)["spillway_job_rank{}"], 2)
        self.check_ended(job)
        return after["spillway_job_interruptions_total{}"]

    def test_a_newcomer_that_waits_is_listed(self):
        job = self.start(2, standbys=0)
        came = Started([TOOL, "job", "join", "--", *WORKER, "0"], test=self, env=self.environment)
        status = self.wait_for(lambda status: len(status["members"]) == 3)
        # On a stalled machine, ranks may have lost each other for a moment: the change has made it a standby.
        waits = status["epoch"] == 1
        self.assertEqual([(each["rank"], each["waits"]) for each in status["members"]],
                         [(0, False), (1, False), (None, waits)])
        listed = self.tool("status").stdout
        self.assertTrue("newcomer" in listed or self.status()["epoch"] > 1, listed)
        self.check_ended(job)
        self.assertEqual(came.wait_for_end(), 0)

    def test_a_newcomer_finds_the_job_though_the_tickets_first_member_died(self):
        job = self.start(3, standbys=1)
        status = self.wait_for(lambda status: status["step"] > 3)
        ticket = (self.path / "ticket").read_text().strip()
        self.assertEqual(len(ticket.rsplit("/", 1)[0].split(",")), 2)  # a ticket names ranks
        os.kill(self.process_of(status, 0), signal.SIGKILL)
        environment = {name: value for name, value in self.environment.items() if name != "SPILLWAY_JOB_FILE"}
        came = Started([TOOL, "job", "join", "--ticket", ticket, "--", *WORKER, "0"], test=self, env=environment)
        # Two ranks, the replacement of the dead one, and this one.
        self.wait_for(lambda status: status["epoch"] >= 2 and len(status["members"]) == 4)
        self.assertNotEqual((self.path / "ticket").read_text().strip(), ticket)
        self.check_ended(job)
        self.assertEqual(came.wait_for_end(), 0)

    def test_a_killed_process_is_replaced_and_another_started(self):
        job = self.start(3, standbys=1)
        status = self.wait_for(lambda status: status["step"] > 3)
        os.kill(self.process_of(status, 0), signal.SIGKILL)
        status = self.wait_for(lambda status: status["epoch"] == 2 and status["step"] > 6)
        self.assertEqual([each["rank"] for each in status["members"]][:2], [0, 1])
        self.assertIn("rank 0 is gone", status["last_change"]["why"])
        # Its replacement is called in next. Until that has come, there is no standby.
        wait_until(lambda: self.tool("remove", "1", "--keep").returncode == 0, "a standby that rank 1 can move to")
        self.wait_for(lambda status: "rank 1 moves" in status["last_change"]["why"])
        self.check_ended(job)

    def start_and_kill_a_rank(self, failures, newcomers=FAILING_NEWCOMERS):
        """The first newcomers to take its place fail, so many times."""
        starts = self.path / "starts"
        job = self.start(3, 1, prefix=(*newcomers, starts, failures))
        status = self.wait_for(lambda status: status["step"] > 3)
        os.kill(self.process_of(status, 1), signal.SIGKILL)
        return job, lambda: len(starts.read_text().splitlines())

    def test_a_replacement_that_ends_before_it_joins_is_started_again(self):
        job, count = self.start_and_kill_a_rank(failures=1)
        # The standby has become a rank, and the second newcomer has come.
        self.wait_for(lambda status: status["epoch"] >= 2 and len(status["members"]) == 3)
        self.assertEqual(count(), 2)
        said = f"ended with code 3 before it joined the job; 2 others go on; start 2 of {MOST_STARTS} for its place follows"
        self.assertIn(said, self.said())
        self.check_ended(job)

    def check_given_up(self, newcomers):
        job, count = self.start_and_kill_a_rank(MOST_STARTS + 10, newcomers)
        said = f"nothing more is started for its place after {MOST_STARTS} of {MOST_STARTS} starts"
        wait_until(lambda: said in self.said(), "that no more are started")
        status = self.wait_for(lambda status: status["epoch"] == 2)
        self.wait_for(lambda now: now["step"] > status["step"] + 5)
        self.assertEqual(count(), MOST_STARTS)
        self.check_ended(job)

    def test_replacements_that_never_join_are_given_up(self):
        self.check_given_up(FAILING_NEWCOMERS)

    def test_replacements_that_are_killed_before_they_join_are_given_up(self):
        self.check_given_up(KILLED_NEWCOMERS)
        self.assertIn(f"was ended by signal {signal.SIGKILL:d} before it joined the job", self.said())

    def test_no_change_of_their_ends_starts_the_count_again(self):
        self.check_given_up(MIXED_NEWCOMERS)

    def test_a_torch_script_that_is_asked_to_end_leaves_no_traceback(self):
        if not has_torch():
            self.skipTest(f"{TORCH_PYTHON} has no torch")
        self.environment["PYTHONPATH"] = str(PACKAGE)
        job = self.start(3, 1, worker=(TORCH_PYTHON, HERE / "job_script.py"))
        self.wait_for(lambda status: status["step"] > 3)
        self.check_ended(job)
        self.assertNotIn("Traceback", (self.path / "log").read_text())


if __name__ == "__main__":
    unittest.main()
