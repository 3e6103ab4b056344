# SPDX-License-Identifier: Apache-2.0
"""Ranks that are forked from this process, with the variables that torchrun would set. For modules that take seconds
to import: the parent imports them once, and must not use them.
"""
import json
import multiprocessing
import os

from harness.patience import HANGS_S, Limit
from harness.processes import free_port


def torchrun_environment(rank, world, port):
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def be_rank(environment, pipe, function, arguments):
    os.environ.update(environment)
    function(lambda said: pipe.send(json.dumps(said)), *arguments)


class ForkedRanks:
    """One process per rank, which calls function(say, *arguments). Leaving the block kills those that still run."""

    def __init__(self, world, function, *arguments):
        context, port, self._ranks = multiprocessing.get_context("fork"), free_port(), []
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=be_rank, args=(torchrun_environment(rank, world, port), theirs, function,
                                                            arguments))
            process.start()
            theirs.close()
            self._ranks.append((process, ours))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, pipe in self._ranks:
            process.kill()
            process.join()
            pipe.close()

    def finish(self, quiet_seconds=HANGS_S):
        """The words of each rank, once all have ended; None for one that died silently."""
        limit = Limit(quiet_seconds)
        said = [self._hear(rank, limit) for rank in range(len(self._ranks))]
        for rank, (process, _) in enumerate(self._ranks):
            while process.is_alive():
                process.join(limit.left())
                if process.is_alive() and limit.left() == 0:
                    raise AssertionError(f"rank {rank} hangs; the ranks said {said}")
        return said

    def _hear(self, rank, limit):
        pipe = self._ranks[rank][1]
        while not pipe.poll(limit.left()):
            if limit.left() == 0:
                raise AssertionError(f"rank {rank} hangs: it neither said anything nor ended")
        try:
            return json.loads(pipe.recv())
        except EOFError:
            return None


def run_ranks(world, function, *arguments, quiet_seconds=HANGS_S):
    """The words of each rank, said by calling function's first argument; None for one that died silently."""
    with ForkedRanks(world, function, *arguments) as ranks:
        return ranks.finish(quiet_seconds)
