# SPDX-License-Identifier: Apache-2.0
"""Ranks as real processes: started with the environment a launcher would set, never left behind."""
import os
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rank_environment(rank, world, meeting, one_machine):
    environment = {**os.environ, "SPILLWAY_RANK": str(rank), "SPILLWAY_WORLD_SIZE": str(world),
                   "SPILLWAY_COMM_ID": meeting}
    if one_machine:
        environment |= {"SPILLWAY_LOCAL_RANK": str(rank), "SPILLWAY_LOCAL_WORLD_SIZE": str(world)}
    return environment


class RankProcesses:
    """`command(rank)` for every rank. On leaving the block, all that still run are killed."""

    def __init__(self, world, command, meeting=None, prefix=lambda rank: [], stdin=None):
        self.processes = []
        meeting_place = meeting or f"127.0.0.1:{free_port()}"
        for rank in range(world):
            self.processes.append(subprocess.Popen(
                prefix(rank) + command(rank), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=rank_environment(rank, world, meeting_place, one_machine=meeting is None)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.communicate()

    def __getitem__(self, rank):
        return self.processes[rank]

    def finish(self, timeout):
        """The ranks' outputs; raises where one failed or did not end in time."""
        outputs = []
        for rank, process in enumerate(self.processes):
            output, errors = process.communicate(timeout=timeout)
            if process.returncode != 0:
                raise AssertionError(f"rank {rank} ended with {process.returncode}: {output}{errors}")
            outputs.append(output)
        return outputs


def python(script, *arguments):
    return [sys.executable, str(script), *map(str, arguments)]
