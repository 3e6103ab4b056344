#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameter servers under the PyTorch backend: `spillway server` beside ranks that learn of it only from variables.

    tests/python/torch_servers_test.py LIBRARY PATH_TO_SPILLWAY [unittest's arguments]

Skips without torch: exit code 77.
"""
import json
import os
import pathlib
import sys
import unittest

from torch_ranks import prepare

from harness.forked_ranks import run_ranks
from harness.processes import Started, free_port

LIBRARY = prepare()
TOOL = pathlib.Path(sys.argv.pop(1)).resolve()

import torch
import torch.distributed as dist

import spillway.torch
from spillway.torch import Levels, Planes

WORKERS, COUNT, STEPS = 2, 50_000, 3


def by_levels():
    """The mean of a gradient that servers add without decoding it."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 100, bias=False))
    hook = spillway.torch.attach(model, Levels(), warm_up_steps=0, loss_bound=0.0)
    model(torch.ones(1, 200)).sum().backward()
    assert (hook.report().codec, hook.report().contributors) == ("levels", WORKERS), hook.report()
    return float(model.module.weight.grad.mean())


def add_up(say, meeting):
    """The default group uses the servers; other groups, and operations other than all-reduce, do not."""
    os.environ.update(SPILLWAY_SERVERS="1", SPILLWAY_COMM_ID=meeting)
    dist.init_process_group("spillway")
    rank = dist.get_rank()
    tensor = torch.full((COUNT,), float(rank + 1))
    for _ in range(STEPS):
        dist.all_reduce(tensor)
    pair = torch.ones(4)
    dist.all_reduce(pair, group=dist.new_group([0, 1]))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 100, bias=False))
    hook = spillway.torch.attach(model, Planes(16), warm_up_steps=0, loss_bound=0.1)
    model(torch.ones(1, 200)).sum().backward()
    said = [float(tensor[-1]), float(pair[0]), float(model.module.weight.grad.mean()), hook.report().contributors]
    say(said + [by_levels()])
    dist.barrier()
    dist.destroy_process_group()


class Servers(unittest.TestCase):
    def test_the_default_groups_all_reduces_go_through_them(self):
        meeting = f"127.0.0.1:{free_port()}"
        with Started([TOOL, "server", "--json", "--workers", WORKERS, "--rendezvous", meeting]) as server:
            said = run_ranks(WORKERS, add_up, meeting)
            summary = json.loads(server.finish()[0])
        self.assertNotIn(None, said)
        for total, of_pair, gradient, contributors, of_levels in said:
            self.assertEqual((total, of_pair, contributors), (3.0 * 2 ** (STEPS - 1), 2.0, WORKERS))
            self.assertAlmostEqual(gradient, 1.0, delta=0.01)
            self.assertAlmostEqual(of_levels, 1.0, delta=0.05)
        self.assertEqual(summary["error"], "")
        self.assertGreaterEqual(summary["tensor_bytes"], STEPS * 4 * COUNT + 4 * 200 * 100)


if __name__ == "__main__":
    unittest.main()
