#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A host of experiments/mlt_training: the last --servers ranks are parameter servers, the others train.

    worker.py --spillway BINARY --servers N --steps N --seed N --hook JSON --log FILE

Workers train a small network on Fashion-MNIST with DistributedDataParallel and spillway.torch.attach(), whose
arguments are --hook. The data of a step follows from the seed, the step and the rank alone. Worker 0 writes its
measurements to the log, as one JSON object.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common.hooks import hook_arguments
from common.lab_hosts import server_command, take_role

BATCH = 32        # images per worker and step
TEST_IMAGES = 10_000
BUCKET_MB = 0.1   # so that layers travel separately


def train(options):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
    import torch
    import torch.distributed as dist
    import spillway.torch
    import train as example

    def make_model():
        torch.manual_seed(options.seed)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 192), torch.nn.ReLU(),
                                   torch.nn.Linear(192, 192), torch.nn.ReLU(), torch.nn.Linear(192, 10))

    def scaled(images):
        return images.float() / 255 - 0.3

    dist.init_process_group("spillway")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = example.fashion_mnist(None)
    batches = example.Batches(data, BATCH * world, options.seed, rank, world)
    model = torch.nn.parallel.DistributedDataParallel(make_model(), bucket_cap_mb=BUCKET_MB)
    hook = spillway.torch.attach(model, **hook_arguments(options.hook))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    # The rate falls to 0: the final accuracy then varies less.
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / options.steps)
    times, counts = [], dict.fromkeys(("packets", "trimmed", "lost", "repeated", "wire_bytes", "gradient_bytes"), 0)
    for step in range(options.steps):
        inputs, targets = batches.at(step)
        begin = time.monotonic()
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(scaled(inputs)), targets).backward()
        optimizer.step()
        schedule.step()
        times.append(time.monotonic() - begin)
        for name in counts:
            counts[name] += getattr(hook.report(), name)
    if rank == 0:
        with torch.no_grad():
            guesses = model.module(scaled(data.test_inputs[:TEST_IMAGES])).argmax(1)
        accuracy = float((guesses == data.test_targets[:TEST_IMAGES]).float().mean())
        # The first steps make connections and buckets, and are not measured.
        later = times[len(times) // 10 + 1:]
        pathlib.Path(options.log).write_text(json.dumps({
            "step_ms": 1e3 * statistics.fmean(later), "p50_ms": 1e3 * statistics.median(later),
            "p99_ms": 1e3 * sorted(later)[len(later) * 99 // 100], "accuracy": accuracy, **counts}))
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    for name in ("--spillway", "--hook", "--log"):
        parser.add_argument(name, required=True)
    for name in ("--servers", "--steps", "--seed"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    index = take_role(options.servers)
    if index is not None:
        os.execv(options.spillway, server_command(options.spillway, index, "--json"))
    train(options)


if __name__ == "__main__":
    main()
