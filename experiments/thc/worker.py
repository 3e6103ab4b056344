#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A host of experiments/thc: the last --servers ranks are parameter servers, the others train.

    worker.py --spillway BINARY --servers N --steps N --seed N --evaluate-every N --test-samples N --hook HOOK --log FILE

Workers run what examples/train.py runs, with a rate that falls to 0 and gradients that go as HOOK says: "fp32" and
"fp16" through Gloo, else attach()'s arguments as JSON. Worker 0 writes the log, in the format of examples/train.py.
"""
import argparse
import json
import os
import pathlib
import sys

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(EXPERIMENTS), str(EXPERIMENTS.parent / "examples")]

from common.lab_hosts import take_seat

OVER_GLOO = ("fp32", "fp16")


def falling_sgd(steps):
    """The rate falls linearly: accuracy at the end then varies less from run to run."""
    import torch

    class FallingSgd(torch.optim.SGD):
        def __init__(self, parameters, lr):
            super().__init__(parameters, lr=lr, momentum=0.9)
            self._first, self._taken = lr, 0

        def step(self, closure=None):
            self.param_groups[0]["lr"] = self._first * (1 - self._taken / steps)
            self._taken += 1
            return super().step(closure)

    return FallingSgd


def attach(model, hook):
    if hook == "fp16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
        model.register_comm_hook(None, fp16_compress_hook)
    elif hook not in OVER_GLOO:
        import spillway.torch
        spillway.torch.attach(model, **json.loads(hook))


def train(options):
    import torch
    import torch.distributed as dist
    import train as example

    torch.set_num_threads(1)
    recipe = example.RECIPES[options.model]._replace(make_optimizer=falling_sgd(options.steps),
                                                     test_samples=options.test_samples)
    data = recipe.read_data(None)
    example.join("gloo" if options.hook in OVER_GLOO else "spillway")
    torch.manual_seed(options.seed)
    trainer = example.Trainer(recipe, None)
    attach(trainer.model, options.hook)
    journal = example.Journal(options.log, append=False)
    batches = example.Batches(data, recipe.batch, options.seed, dist.get_rank(), dist.get_world_size())
    example.Run(options, recipe, trainer, data, batches, journal).to_the_end()
    journal.close()
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    for name in ("--spillway", "--hook"):
        parser.add_argument(name, required=True)
    for name in ("--servers", "--steps", "--seed", "--evaluate-every", "--test-samples"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.set_defaults(model="cnn", epochs=1000, target_accuracy=None)
    options = parser.parse_args()
    if take_seat(options.servers) is not None:
        os.execv(options.spillway, [options.spillway, "ps", "--quiet"])
    train(options)


if __name__ == "__main__":
    main()
