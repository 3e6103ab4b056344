#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A host of experiments/fsdp: trains the language model of examples/train.py, sharded by FSDP2.

    worker.py --way WAY --width N --layers N --batch N --steps N --seed N --log FILE

WAY is gloo, gloo-bf16, exact, or bits of planes; bits-bf16 gathers weights as bfloat16. Rank 0 writes its measurements to the log, as one JSON object. Bytes
are those that leave the host's interfaces, all protocols and headers included.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2] / "examples"), str(HERE.parents[1])]

import torch
import torch.distributed as dist
import train as example
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import spillway.torch
from spillway.torch import Exact, Planes

TEST_BLOCKS = 1024
OVER_GLOO = ("gloo", "gloo-bf16")


def make_model(options, mesh):
    torch.manual_seed(options.seed)
    model = example.CharLm(options.width, options.layers)
    way, _, weights = options.way.partition("-")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if weights == "bf16" else None,
                                  reduce_dtype=torch.bfloat16 if options.way == "gloo-bf16" else torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if options.way not in OVER_GLOO:
        spillway.torch.shard(model, Exact() if way == "exact" else Planes(bits=int(way)))
    return model


def bytes_sent():
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split()[9]) for line in lines if line.split(":")[0].strip() != "lo")


def loss_of(model, inputs, targets):
    return torch.nn.functional.cross_entropy(model(inputs).float().flatten(0, -2), targets.flatten())


@torch.no_grad()
def test_loss(model, data, rank, world):
    """The mean over all ranks."""
    inputs, targets = data.test_inputs[:TEST_BLOCKS][rank::world], data.test_targets[:TEST_BLOCKS][rank::world]
    loss = torch.stack([loss_of(model, some, wanted)
                        for some, wanted in zip(inputs.split(64), targets.split(64))]).mean()
    dist.all_reduce(loss)
    return float(loss) / world


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", required=True)
    for name in ("--width", "--layers", "--batch", "--steps", "--seed"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--log", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo" if options.way in OVER_GLOO else "spillway")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = example.blocks_of_text(None)
    batches = example.Batches(data, options.batch, options.seed, rank, world)
    model = make_model(options, init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    times, sent = [], 0
    for step in range(options.steps):
        inputs, targets = batches.at(step)
        dist.barrier()
        began, before = time.monotonic(), bytes_sent()
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward()
        optimizer.step()
        times.append(time.monotonic() - began)
        sent += bytes_sent() - before
    loss = test_loss(model, data, rank, world)
    if rank == 0:
        # The first step makes connections.
        options.log.write_text(json.dumps({"step_ms": 1e3 * statistics.median(times[1:]), "bytes": sent / options.steps,
                                           "loss": loss, "parameters": sum(each.numel() for each in model.parameters())}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
