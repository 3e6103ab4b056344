#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The computation of training steps, without any communication: as many processes at once as there will be ranks, each
with its part of the batch. Prints {"step_ms": the slowest process's median, "parameters": of the model} as JSON.

  experiments/overlap/computing.py --model deep --batch 256 --steps 8 --ranks 4
"""
import argparse
import json
import multiprocessing
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import torch
import train as example
from torch.nn import functional

FIRST_STEPS = 2  # they allocate memory, and are in no median


def run(options, barrier, results):
    torch.set_num_threads(1)
    recipe = example.RECIPES[options.model]
    model = recipe.make_model()
    optimizer = recipe.make_optimizer(model.parameters(), recipe.lr)
    data = recipe.read_data(None)
    inputs, targets = (part[:options.batch // options.ranks] for part in (data.inputs, data.targets))
    times = []
    for _ in range(FIRST_STEPS + options.steps):
        barrier.wait()
        begin = time.monotonic()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten()).backward()
        optimizer.step()
        times.append(1000 * (time.monotonic() - begin))
    results.put((statistics.median(times[FIRST_STEPS:]), sum(each.numel() for each in model.parameters())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, choices=list(example.RECIPES))
    for name in ("--batch", "--steps", "--ranks"):
        parser.add_argument(name, required=True, type=example.positive)
    options = parser.parse_args()
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(options.ranks), context.Queue()
    ranks = [context.Process(target=run, args=(options, barrier, results)) for _ in range(options.ranks)]
    for rank in ranks:
        rank.start()
    step_ms, parameters = max(results.get() for _ in ranks)
    print(json.dumps({"step_ms": step_ms, "parameters": parameters}))
    for rank in ranks:
        rank.join()


if __name__ == "__main__":
    main()
