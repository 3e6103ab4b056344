# SPDX-License-Identifier: Apache-2.0
"""Tests whose ranks are forked from a process that has only imported torch (tests/harness/forked_ranks.py), and
modules of scenarios for such ranks.
"""
import importlib
import os
import pathlib
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.forked_ranks import run_ranks
from harness.processes import STEADY

PACKAGE = HERE.parents[1] / "python"
SKIPPED = 77
ALL_SCENARIOS_S = 120  # ample on a quiet machine for a module of scenarios


def prepare():
    """Takes the library's path off the command line. Call it before anything imports torch."""
    library = str(pathlib.Path(sys.argv.pop(1)).resolve())
    os.environ.update({**STEADY, "SPILLWAY_LIBRARY": library, "OMP_NUM_THREADS": "1", "SPILLWAY_SOCKET_IFNAME": "=lo",
                       "GLOO_SOCKET_IFNAME": "lo"})
    sys.path.insert(0, str(PACKAGE))
    try:
        import torch.distributed
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    if hasattr(torch, "compile"):  # each rank would import it, with its first optimizer
        importlib.import_module("torch._dynamo")
    return library


def play(say, module_name):
    """Runs all scenarios of a module in turn; says {scenario: "" or its error}."""
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
    """Adds a test method for every scenario of a module; all run in one launch, before the first method."""
    def make(name):
        def test(self):
            if not hasattr(case, "outcomes"):
                case.outcomes = run_ranks(world, play, module, quiet_seconds=ALL_SCENARIOS_S)
            for rank, said in enumerate(case.outcomes):
                wrong = "it ended without a word" if said is None else said[name]
                if wrong:
                    self.fail(f"rank {rank}: {wrong}")

        return test

    for scenario in importlib.import_module(module).SCENARIOS:
        setattr(case, f"test_{scenario.__name__}", make(scenario.__name__))
