#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Another user of the machine against a job without a secret. This test owns the job; `nobody` looks for the ticket
wherever a user may look, uses what it found, and lays traps where the owner reads and writes.

    tests/security/ticket_attack_test.py TOOL LIBRARY [unittest's arguments]

Skips without root, which it needs to act as another user: exit code 77.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.patience import wait_until
from harness.processes import STEADY, Started, free_port, python, run

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = python(ROOT / "tests" / "cli" / "job_worker.py", ROOT / "python")
AS_NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
SCENARIO = ROOT / "tests" / "scenarios" / "incast_trim.scn"
ONE_RANK = python("-c", "import sys; sys.path.insert(0, sys.argv[1]); import spillway; "
                  "spillway.Communicator(spillway.default_library().unique_id(), rank=0, world=1).close()", ROOT / "python")
SKIPPED = 77

# Prints everything that looks like a ticket, or like the nonce of one, in files of shared folders (arguments), in the
# kernel's data on processes, and in metrics (the first argument).
SEARCH = r"""
import pathlib, re, sys, urllib.request
texts = [urllib.request.urlopen(sys.argv[1]).read()]
places = [path for folder in sys.argv[2:] for path in pathlib.Path(folder).rglob("*")]
places += [path for process in pathlib.Path("/proc").glob("[0-9]*") for path in (process / "cmdline", process / "environ")]
for path in places:
    try:
        texts.append(path.read_bytes() if path.is_file() and path.stat().st_size < 65536 else b"")
    except OSError:
        pass
for text in texts:
    for found in re.findall(rb"[0-9a-f]{32}", text):
        print(found.decode())
"""


def listening_ports():
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sorted({int(line.split()[1].split(":")[1], 16) for line in lines if line.split()[3] == "0A"})


class AnotherUser(unittest.TestCase):
    def setUp(self):
        self.shared = pathlib.Path(tempfile.mkdtemp(prefix="shared-"))
        self.shared.chmod(0o1777)
        self.addCleanup(run, ["rm", "-rf", self.shared])
        self.port = free_port()
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
        self.environment.update({**STEADY, "SPILLWAY_LIBRARY": str(LIBRARY), "SPILLWAY_SOCKET_IFNAME": "=lo",
                                 "SPILLWAY_METRICS_LISTEN": str(self.port)})

    def tool(self, *arguments, prefix=()):
        return run([*prefix, TOOL, "job", *arguments], env=self.environment)

    def start_job(self):
        log = open(self.shared / "log", "w")
        self.addCleanup(log.close)
        return Started([TOOL, "job", "run", "-n", "3", "--", *WORKER, "1"], test=self, stdout=log,
                       stderr=subprocess.STDOUT, env=self.environment, start_new_session=True)

    def members(self):
        asked = self.tool("status", "--json")
        return json.loads(asked.stdout)["members"] if asked.returncode == 0 else []

    def found_by_nobody(self):
        """Nonces that the user `nobody` finds."""
        folders = {self.shared, tempfile.gettempdir(), "/run", "/dev/shm"}
        folders |= {path for path in pathlib.Path("/tmp").glob("spillway-*")}
        said = run([*AS_NOBODY, sys.executable, "-c", SEARCH, f"http://127.0.0.1:{self.port}/metrics", *folders])
        self.assertEqual(said.returncode, 0, said.stderr)
        return set(said.stdout.split())

    def check_closed_to_nobody(self):
        for nonce in self.found_by_nobody():
            for port in listening_ports():
                said = self.tool("status", "--ticket", f"127.0.0.1:{port}/{nonce}", prefix=AS_NOBODY)
                self.assertEqual(said.returncode, 1, f"nobody got into the job: {said.stdout}")

    def test_a_ticket_in_a_shared_folder_is_not_found(self):
        self.environment["SPILLWAY_JOB_FILE"] = str(self.shared / "ticket")
        self.start_job()
        wait_until(lambda: len(self.members()) == 3, "the job's three processes")
        ticket = (self.shared / "ticket").read_text().strip()
        self.check_closed_to_nobody()
        # The attack would work with the ticket, so it is the missing ticket that keeps `nobody` out.
        self.assertEqual(self.tool("status", "--ticket", ticket, prefix=AS_NOBODY).returncode, 0)
        self.assertNotIn(ticket.rsplit("/", 1)[1], self.found_by_nobody())

    def test_a_ticket_that_the_launcher_keeps_is_not_found(self):
        job = self.start_job()
        children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children")
        path = wait_until(lambda: self.ticket_path(children), "the launcher's ticket")
        self.environment["SPILLWAY_JOB_FILE"] = path
        wait_until(lambda: len(self.members()) == 3, "the job's three processes")
        self.check_closed_to_nobody()

    @staticmethod
    def ticket_path(children):
        for child in children.read_text().split():
            variables = pathlib.Path(f"/proc/{child}/environ").read_text().split("\0")
            for variable in variables:
                if variable.startswith("SPILLWAY_JOB_FILE=") and pathlib.Path(variable.split("=", 1)[1]).exists():
                    return variable.split("=", 1)[1]
        return None

    def test_a_ticket_of_nobodys_is_not_followed(self):
        ticket = self.shared / "ticket"
        plant = f"import os; os.umask(0o077); open({str(ticket)!r}, 'w').write('127.0.0.1:1/' + '0' * 32)"
        run([*AS_NOBODY, sys.executable, "-c", plant], check=True)
        self.environment["SPILLWAY_JOB_FILE"] = str(ticket)
        said = self.tool("status")
        self.assertEqual((said.returncode, "belongs to user 65534" in said.stderr), (1, True), said.stderr)
        said = self.tool("join", "--", "true")
        self.assertEqual((said.returncode, "belongs to user 65534" in said.stderr), (1, True), said.stderr)

    def test_a_link_of_nobodys_leads_no_page_astray(self):
        victim = self.shared / "victim"
        victim.write_text("kept")
        victim.chmod(0o600)
        lay = f"import os; [os.symlink({str(victim)!r}, {str(self.shared)!r} + n) for n in ('/ticket.part', '/page.part')]"
        run([*AS_NOBODY, sys.executable, "-c", lay], check=True)
        self.environment["SPILLWAY_JOB_FILE"] = str(self.shared / "ticket")
        self.start_job()
        wait_until(lambda: len(self.members()) == 3, "the job's three processes")
        self.assertEqual(self.tool("status", "--watch", "--times", "1", "--page", str(self.shared / "page")).returncode, 0)
        self.assertIn("<h1>Job", (self.shared / "page").read_text())
        self.assertEqual(victim.read_text(), "kept")
        self.assertNotRegex((self.shared / "page").read_text(), re.escape(self.nonce_start()))

    def test_traps_of_nobodys_get_nothing_of_what_ranks_write(self):
        """Links to a file of the owner's, files that `nobody` keeps open, and unread pipes, at names that can be
        guessed."""
        victim, file, pipe = (self.shared / name for name in ("victim", "file", "pipe"))
        victim.write_text("kept")
        plant = "import os, sys; os.umask(0); folder = sys.argv[1]; os.symlink(folder + '/victim', folder + '/link'); " \
            "open(folder + '/file', 'w').close(); os.mkfifo(folder + '/pipe', 0o666)"
        run([*AS_NOBODY, sys.executable, "-c", plant, self.shared], check=True)
        self.shared.chmod(0o777)  # in a sticky folder the kernel may refuse instead (fs.protected_symlinks)
        for trap in (self.shared / "link", file, pipe):
            said = run([TOOL, "sim", "run", SCENARIO, "--trace", trap], env=self.environment)
            self.assertEqual(said.returncode, 1, said.stderr)
            said = run(ONE_RANK, env={**self.environment, "SPILLWAY_DEBUG": "INFO", "SPILLWAY_DEBUG_FILE": str(trap),
                                      "SPILLWAY_TIMELINE": str(trap)})
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertIn(f"SPILLWAY_DEBUG_FILE: cannot write {trap}: ", said.stderr)
            self.assertIn(f"no timeline: cannot write {trap}: ", said.stderr)
        self.assertEqual((victim.read_text(), file.read_text()), ("kept", ""))

    def test_a_trap_of_nobodys_gets_no_trace(self):
        victim = self.shared / "victim"
        victim.write_text("kept")
        lay = f"import os; os.symlink({str(victim)!r}, {str(self.shared / 'trace.0.et')!r})"
        run([*AS_NOBODY, sys.executable, "-c", lay], check=True)
        self.shared.chmod(0o777)
        said = run(ONE_RANK, env={**self.environment, "SPILLWAY_EXECUTION_TRACE": str(self.shared)})
        self.assertIn(f"cannot write {self.shared / 'trace.0.et'}", said.stderr)
        self.assertEqual(victim.read_text(), "kept")

    def nonce_start(self):
        return (self.shared / "ticket").read_text().rsplit("/", 1)[1][:8]

    def test_a_runtime_folder_of_nobodys_is_refused(self):
        self.environment["XDG_RUNTIME_DIR"] = str(self.shared)
        folder = pathlib.Path("/run/spillway")
        if folder.exists():
            self.skipTest("this machine's own folder is in use")
        folder.mkdir()
        self.addCleanup(folder.rmdir)
        os.chown(folder, 65534, 65534)
        job = self.start_job()
        self.assertEqual(job.wait_for_end(), 1)
        self.assertIn("does not belong to this user alone", (self.shared / "log").read_text())


def can_play_nobody():
    try:
        return run([*AS_NOBODY, TOOL, "job", "--help"]).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    if not can_play_nobody():
        print("skipped: needs root, setpriv and a build that nobody may read")
        sys.exit(SKIPPED)
    unittest.main()
