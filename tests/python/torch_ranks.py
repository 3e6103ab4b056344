# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes on loopback, with the variables that torchrun would set. They are forked from a process
that has imported torch and done nothing with it: importing it takes seconds.
"""
import importlib
import json
import multiprocessing
import os
import pathlib
import socket
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "python"
PATIENCE_S = 120  # of the test: whatever takes longer hangs
SKIPPED = 77


def prepare():
    """Takes the library's path off the command line; before anything imports torch."""
    library = str(pathlib.Path(sys.argv.pop(1)).resolve())
    os.environ.update({"SPILLWAY_LIBRARY": library, "OMP_NUM_THREADS": "1", "SPILLWAY_SOCKET_IFNAME": "=lo",
                       "GLOO_SOCKET_IFNAME": "lo"})
    sys.path.insert(0, str(PACKAGE))
    try:
        import torch.distributed
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    return library


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rank_environment(rank, world, port):
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def be_rank(rank, world, port, pipe, function, arguments):
    os.environ.update(rank_environment(rank, world, port))
    function(lambda said: pipe.send(json.dumps(said)), *arguments)


def run_ranks(world, function, *arguments):
    """What each rank said by calling function's first argument, or None of one that died without a word."""
    context, port, ranks = multiprocessing.get_context("fork"), free_port(), []
    for rank in range(world):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=be_rank, args=(rank, world, port, theirs, function, arguments))
        process.start()
        theirs.close()
        ranks.append((process, ours))
    try:
        return [hear(pipe) for _, pipe in ranks]
    finally:
        for process, _ in ranks:
            process.join(PATIENCE_S)
            process.kill()


def hear(pipe):
    try:
        return json.loads(pipe.recv()) if pipe.poll(PATIENCE_S) else None
    except EOFError:
        return None


def play(say, module_name):
    """All scenarios of a module in turn: says {scenario: "" or what went wrong}."""
    module, outcomes = importlib.import_module(module_name), {}
    module.set_up()
    for scenario in module.SCENARIOS:
        try:
            scenario()
            outcomes[scenario.__name__] = ""
        except Exception:
            outcomes[scenario.__name__] = traceback.format_exc()
    say(outcomes)
    module.tear_down()


def add_tests(case, module, world):
    """A test method for every scenario of a module; all run in one launch, before the first of them."""
    def make(name):
        def test(self):
            if not hasattr(case, "outcomes"):
                case.outcomes = run_ranks(world, play, module)
            for rank, said in enumerate(case.outcomes):
                wrong = "it ended without a word" if said is None else said[name]
                if wrong:
                    self.fail(f"rank {rank}: {wrong}")

        return test

    for scenario in importlib.import_module(module).SCENARIOS:
        setattr(case, f"test_{scenario.__name__}", make(scenario.__name__))
