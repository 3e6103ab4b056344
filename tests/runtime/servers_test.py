#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameter servers as their users start them: `spillway server` beside workers, all real processes on loopback.

    tests/runtime/servers_test.py LIBRARY PATH_TO_SPILLWAY
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.patience import patience
from harness.processes import Started, environment_with, free_port, python

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
WORKERS = 3


class Job:
    """Workers and servers. Leaving the block kills all that still run."""

    def __init__(self, scenario, servers=2):
        meeting = f"127.0.0.1:{free_port()}"
        words = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
        self.servers = [Started([TOOL, "server", "--json", "--index", index, "--servers", servers, "--workers", WORKERS,
                                 "--rendezvous", meeting, "--patience", f"{patience():.0f}s"],
                                env=environment_with(base=words))
                        for index in range(servers)]
        told = {"SPILLWAY_WORLD_SIZE": WORKERS, "SPILLWAY_COMM_ID": meeting, "SPILLWAY_SERVERS": servers}
        self.workers = [Started(python(HERE / "servers_worker.py", LIBRARY, scenario), stdin=subprocess.PIPE,
                                env=environment_with({**told, "SPILLWAY_RANK": rank}, words))
                        for rank in range(WORKERS)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.servers + self.workers:
            process.end()


def end_of(process):
    output, errors = process.finish()
    return process.returncode, output, errors


def last_line(output):
    return json.loads(output.strip().splitlines()[-1])


class Servers(unittest.TestCase):
    def check_good_end(self, job):
        for rank, worker in enumerate(job.workers):
            code, output, errors = end_of(worker)
            self.assertEqual(code, 0, f"worker {rank}: {errors}")
        summaries = []
        for server in job.servers:
            code, output, errors = end_of(server)
            self.assertEqual(code, 0, errors)
            summaries.append(json.loads(output))
        return summaries

    def check_first_steps(self, job):
        for worker in job.workers:
            worker.expect_line("step")

    def test_sums_go_through_the_servers_and_these_end_with_the_workers(self):
        for servers in (1, 2):
            with Job("sums", servers) as job:
                summaries = self.check_good_end(job)
            for summary in summaries:
                self.assertEqual(summary["operations"], 10)
                self.assertEqual(summary["tensor_bytes"], 10 * 80_000)
                self.assertEqual([worker["late"] for worker in summary["workers"]], [0] * WORKERS)

    def test_servers_add_up_what_they_need_not_decode(self):
        for servers in (1, 2):
            with Job("numbers_that_can_be_added", servers) as job:
                for summary in self.check_good_end(job):
                    self.assertEqual(summary["operations"], 12)

    def test_a_worker_that_pauses_is_not_waited_for_and_named(self):
        with Job("a_pause", 1) as job:
            for rank in (0, 2):
                job.workers[rank].expect_line("went on")
            job.workers[1].tell()
            summaries = self.check_good_end(job)
        self.assertGreater(summaries[0]["workers"][1]["late"], 0)

    def test_a_killed_server_is_named_by_all_workers(self):
        with Job("without_end", 2) as job:
            self.check_first_steps(job)
            job.servers[1].send_signal(signal.SIGKILL)
            for worker in job.workers:
                code, output, errors = end_of(worker)
                self.assertEqual(code, 0, errors)
                told = last_line(output)
                self.assertIn("parameter server 1 (rank 4)", told["message"])
            code, output, errors = end_of(job.servers[0])
            self.assertEqual(code, 1)
            self.assertIn("rank 4", errors)

    def test_a_server_that_is_asked_to_end_tells_the_workers(self):
        with Job("without_end", 1) as job:
            self.check_first_steps(job)
            job.servers[0].send_signal(signal.SIGTERM)
            for worker in job.workers:
                told = last_line(end_of(worker)[1])
                self.assertIn("parameter server 0 (rank 3) aborted", told["message"])
            self.assertEqual(end_of(job.servers[0])[0], 1)

    def test_a_killed_worker_ends_the_servers_with_its_name(self):
        with Job("without_end", 2) as job:
            self.check_first_steps(job)
            job.workers[2].send_signal(signal.SIGKILL)
            for server in job.servers:
                code, output, errors = end_of(server)
                self.assertEqual(code, 1)
                self.assertIn("rank 2", errors)
                self.assertIn("rank 2", json.loads(output)["error"])

    def test_workers_that_disagree_are_named(self):
        with Job("disagreement", 1) as job:
            for worker in job.workers:
                code, output, errors = end_of(worker)
                message = last_line(output)["message"]
                self.assertEqual(len(set(re.findall(r"all_reduce of (\d+) ", message))), 2, message)
            code, _, errors = end_of(job.servers[0])
            self.assertEqual(code, 1)
            self.assertIn("rank 2", errors)


if __name__ == "__main__":
    unittest.main()
