# SPDX-License-Identifier: Apache-2.0
"""A running job whose members change, for scripts that attack it. They are run with TOOL and LIBRARY as their first
arguments.
"""
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

from false_member import FalseMember
from harness.processes import RankProcesses, environment_with, python, run
from harness.watched_job import WatchedJob

TOOL = pathlib.Path(sys.argv[1]).resolve()
LIBRARY = pathlib.Path(sys.argv[2]).resolve()
WORKER = python(HERE.parent / "cli" / "job_worker.py", ROOT / "python")
WORLD, STANDBYS = 4, 1


class Attack(WatchedJob, unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.ticket_file = self.folder / "ticket"
        self.variables = {"SPILLWAY_JOB_FILE": self.ticket_file, "SPILLWAY_LIBRARY": LIBRARY,
                          "SPILLWAY_SOCKET_IFNAME": "=lo"}

    def start_job(self, prefix=(), world=WORLD, **variables):
        self.variables.update(variables)
        self.world = world
        # The processes' output goes to files, because nothing reads it while they run.
        self.job = RankProcesses(
            world, lambda rank: ["sh", "-c", f'exec "$@" > {self.folder}/log{rank} 2>&1', "sh", *prefix, *WORKER,
                                 STANDBYS], variables=self.variables)
        self.enterContext(self.job)
        self.wait_for(lambda status: len(status["members"]) == world and status["step"] > 3)

    def ticket(self):
        return self.ticket_file.read_text(encoding="ascii").strip()

    def tool(self, *arguments):
        return run([TOOL, "job", *arguments], env=environment_with(self.variables))

    def said(self):
        logs = sorted(self.folder.glob("log*"))
        return "\n".join(f"{log.name}:\n{log.read_text(encoding='utf-8')[-2000:]}" for log in logs)

    def check_goes_on(self, epoch=1):
        """Checks that it continues in this epoch, with its initial processes."""
        step = self.status()["step"]
        status = self.wait_for(lambda status: status["step"] > step + 5)
        self.assertEqual(status["epoch"], epoch)
        self.assertTrue(all(process.poll() is None for process in self.job.processes), self.said())
        return status

    def check_ends_well(self):
        said = self.tool("end")
        self.assertEqual(said.returncode, 0, said.stderr)
        for process in self.job.processes:
            self.assertEqual(process.wait_for_end(), 0, self.said())

    def false_member(self, kind=FalseMember, **fields):
        version = run([TOOL, "--version"]).stdout.split()[-1]
        liar = kind(self.ticket(), version, **fields)
        self.addCleanup(liar.close)
        self.assertEqual(len(liar.streams), self.world)
        return liar

    def ids(self):
        return [int(each["id"], 16) for each in self.status()["members"] if each["rank"] is not None]
