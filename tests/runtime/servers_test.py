#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameter servers as their users start them: `spillway ps` beside workers, all real processes on
loopback.

    tests/runtime/servers_test.py LIBRARY PATH_TO_SPILLWAY
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

from rank_processes import free_port, python

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
WORKER = pathlib.Path(__file__).resolve().parent / "servers_worker.py"
WORKERS = 3
PATIENCE_S = 30


class Job:
    """Workers and servers; on leaving the block, all that still run are killed."""

    def __init__(self, scenario, servers=2):
        meeting = f"127.0.0.1:{free_port()}"
        words = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
        self.servers = [self._start([TOOL, "ps", "--json", "--index", str(index), "--servers", str(servers),
                                     "--workers", str(WORKERS), "--rendezvous", meeting, "--patience", "20s"], words)
                        for index in range(servers)]
        told = {**words, "SPILLWAY_WORLD_SIZE": str(WORKERS), "SPILLWAY_COMM_ID": meeting,
                "SPILLWAY_SERVERS": str(servers)}
        self.workers = [self._start(python(WORKER, LIBRARY, scenario), {**told, "SPILLWAY_RANK": str(rank)})
                        for rank in range(WORKERS)]

    @staticmethod
    def _start(command, environment):
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.servers + self.workers:
            process.kill()
            process.communicate()


def end_of(process):
    output, errors = process.communicate(timeout=PATIENCE_S)
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
            self.assertEqual(worker.stdout.readline(), "step\n")

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
                self.assertIn("runs another operation", last_line(output)["message"])
            code, _, errors = end_of(job.servers[0])
            self.assertEqual(code, 1)
            self.assertIn("rank 2", errors)


if __name__ == "__main__":
    unittest.main()
