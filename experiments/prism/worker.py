#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of experiments/prism: examples/train.py with data that is made up, so that none has to be installed, and what
it took written down.

    worker.py FOLDER [arguments of examples/train.py]

Writes FOLDER/RANK.json: {"step_ms": [...], "peak_kib", "init_s", "bootstrap_s"}; init is init_process_group(),
bootstrap all from the interpreter's start to the first step.
"""
import importlib.util
import json
import os
import pathlib
import resource
import sys
import time

BEGAN = time.monotonic()
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import torch
import torch.distributed as dist

SAMPLES = 16_384


def load_example():
    spec = importlib.util.spec_from_file_location("train", ROOT / "examples/train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_up(train, model):
    """Data of a model's shape."""
    draw = torch.Generator().manual_seed(7)

    def integers(most, *shape, dtype=torch.uint8):
        return torch.randint(0, most, shape, generator=draw).to(dtype)

    if model == "cnn":
        inputs, targets = integers(256, SAMPLES, 28, 28), integers(10, SAMPLES, dtype=torch.int64)
    else:
        inputs = integers(256, SAMPLES, train.BLOCK)
        targets = inputs.to(torch.int64)
    return train.Data(inputs, targets, inputs[:2048], targets[:2048])


def main():
    folder = pathlib.Path(sys.argv.pop(1))
    train, took = load_example(), {}
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
    rank = int(os.environ["RANK"])
    train.main()
    took["peak_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (folder / f"{rank}.json").write_text(json.dumps(took))


if __name__ == "__main__":
    main()
