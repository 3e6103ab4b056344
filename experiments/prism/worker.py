#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of experiments/prism: examples/train.py with synthetic data, so that no dataset must be installed, or a
model in tensor and data parallel groups. Records its measurements.

    worker.py FOLDER [arguments of examples/train.py]
    worker.py FOLDER --model hybrid|asleep --steps N

The hybrid model's layers are divided among TENSOR ranks, which all-reduce activations after each layer, forward and
backward. Ranks with the same part then all-reduce its gradients. asleep communicates the same and computes nothing:
it sleeps while an accelerator would compute, for times that differ between ranks and steps. So ranks do not slow each
other down, however few cores there are.

Writes FOLDER/RANK.json: {"step_ms": [...], "peak_kib", "init_s", "bootstrap_s"}; init is init_process_group(),
bootstrap everything from the interpreter's start to the first step.
"""
import importlib.util
import json
import os
import pathlib
import random
import resource
import sys
import time

BEGAN = time.monotonic()
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import torch
import torch.distributed as dist

SAMPLES = 16_384
TENSOR, LAYERS, WIDTH, ROWS = 2, 4, 512, 32  # of hybrid
ASLEEP_S = 0.02  # a layer's forward pass


def load_example():
    spec = importlib.util.spec_from_file_location("train", ROOT / "examples/train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_up(train, model):
    """Synthetic data in the model's shape."""
    draw = torch.Generator().manual_seed(7)

    def integers(most, *shape, dtype=torch.uint8):
        return torch.randint(0, most, shape, generator=draw, dtype=dtype)

    if model == "cnn":
        inputs, targets = integers(256, SAMPLES, 28, 28), integers(10, SAMPLES, dtype=torch.int64)
    else:
        inputs = integers(256, SAMPLES, train.BLOCK)
        targets = inputs.to(torch.int64)
    return train.Data(inputs, targets, inputs[:2048], targets[:2048])


class AddUp(torch.autograd.Function):
    """All-reduces values within a group, and gradients on the way back."""

    @staticmethod
    def forward(context, values, group):
        context.group = group
        added = values.clone()
        dist.all_reduce(added, group=group)
        return added

    @staticmethod
    def backward(context, gradient):
        added = gradient.clone()
        dist.all_reduce(added, group=context.group)
        return added, None


def own_group(divisions):
    """Every rank makes every group; returns this rank's."""
    made = [(ranks, dist.new_group(ranks)) for ranks in divisions]
    return next(group for ranks, group in made if dist.get_rank() in ranks)


class HybridStep:
    """A step of the hybrid model up to its gradients."""

    def __init__(self, tensor):
        self._tensor = tensor
        torch.manual_seed(3)
        self._layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self._optimizer = torch.optim.SGD(self._layers.parameters(), lr=1e-4)

    def gradients(self):
        values = torch.randn(ROWS, WIDTH)
        for layer in self._layers:
            values = torch.tanh(AddUp.apply(layer(values), self._tensor))
        self._optimizer.zero_grad()
        values.square().mean().backward()
        return [parameter.grad for parameter in self._layers.parameters()]

    def end(self):
        self._optimizer.step()


class SleepingStep:
    def __init__(self, tensor):
        self._tensor, self._draw = tensor, random.Random(dist.get_rank())
        self._values = torch.zeros(ROWS, WIDTH)
        self._gradients = [torch.zeros(WIDTH * WIDTH + WIDTH) for _ in range(LAYERS)]

    def _sleep(self, share):
        time.sleep(share * ASLEEP_S * self._draw.uniform(0.9, 1.1))

    def gradients(self):
        for share in [1] * LAYERS + [2] * LAYERS:
            self._sleep(share)
            dist.all_reduce(self._values, group=self._tensor)
        return self._gradients

    def end(self):
        self._sleep(1)


def train_hybrid(make_step, steps, took):
    import spillway.torch
    torch.set_num_threads(1)
    begin = time.monotonic()
    dist.init_process_group("spillway")
    took["init_s"] = time.monotonic() - begin
    world = dist.get_world_size()
    tensor = own_group([list(range(first, first + TENSOR)) for first in range(0, world, TENSOR)])
    data = own_group([list(range(first, world, TENSOR)) for first in range(TENSOR)])
    step = make_step(tensor)
    took["bootstrap_s"], took["step_ms"] = time.monotonic() - BEGAN, []
    for _ in range(steps):
        begin = time.monotonic()
        for work in [dist.all_reduce(gradient, group=data, async_op=True) for gradient in step.gradients()]:
            work.wait()
        step.end()
        took["step_ms"].append(1000 * (time.monotonic() - begin))
    dist.barrier()
    dist.destroy_process_group()


STEPS = {"hybrid": HybridStep, "asleep": SleepingStep}


def train_example(took):
    train = load_example()
    initialise = dist.init_process_group

    def timed_init(*arguments, **named):
        begin = time.monotonic()
        initialise(*arguments, **named)
        took["init_s"] = time.monotonic() - begin

    class TimedRun(train.Run):
        def to_the_end(self):
            took["bootstrap_s"] = time.monotonic() - BEGAN
            super().to_the_end()
            took["step_ms"] = self._step_ms

    dist.init_process_group, train.Run = timed_init, TimedRun
    for model, recipe in train.RECIPES.items():
        train.RECIPES[model] = recipe._replace(read_data=lambda _, model=model: made_up(train, model))
    train.main()


def main():
    folder, took = pathlib.Path(sys.argv.pop(1)), {}
    rank = int(os.environ["RANK"])
    make_step = next((STEPS[name] for name in STEPS if name in sys.argv), None)
    if make_step is not None:
        train_hybrid(make_step, int(sys.argv[sys.argv.index("--steps") + 1]), took)
    else:
        train_example(took)
    took["peak_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (folder / f"{rank}.json").write_text(json.dumps(took))


if __name__ == "__main__":
    main()
