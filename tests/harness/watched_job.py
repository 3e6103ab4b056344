# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of jobs whose members change: a job's state, as `spillway job status` reports it.

WatchedJob is mixed into a test that has tool(*arguments), which runs `spillway job` for the job, and said(), the
output of its processes.
"""
import json

from harness.patience import wait_until


class WatchedJob:
    def status(self):
        asked = self.tool("status", "--json")
        return json.loads(asked.stdout) if asked.returncode == 0 else None

    def wait_for(self, condition):
        """The first state for which condition() is true."""
        def status_that_fits():
            status = self.status()
            return status if status is not None and condition(status) else None

        try:
            return wait_until(status_that_fits, "the job's state")
        except AssertionError as error:
            self.fail(f"{error}: {self.status()}\n{self.said()}")
