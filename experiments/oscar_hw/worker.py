#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A host of experiments/oscar_hw: a rank that trains a model of experiments/gradients.

    worker.py TASK CODEC ALGORITHM STEPS FOLDER

CODEC is exact or entropy, ALGORITHM direct or ring. Writes to FOLDER/RANK, as JSON, the milliseconds of every
all-reduce and of every whole step.
"""
import json
import pathlib
import sys
import time

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXPERIMENTS))

from gradients.sparse_models import TASKS, Size

import torch

import spillway
from spillway import abi

BITS, TENSOR = 8, 1


def options_of(communicator, codec, algorithm):
    way = abi.ALGORITHMS.index(algorithm)
    if codec == "exact":
        made = communicator.options()
        made.algorithm = way
        return made
    return communicator.library.tolerant_options(codec=abi.CODECS.index(codec), precision=BITS, loss_bound=0.0,
                                                 feedback_tensor=TENSOR, algorithm=way)


def train(communicator, task, options, steps):
    """Returns milliseconds of all-reduces, and of steps."""
    reducing, whole = [], []
    for step in range(steps):
        begin = time.monotonic()
        gradient = task.gradient(communicator.rank, step)[0].contiguous()
        has_gradient = time.monotonic()
        communicator.run("all_reduce", gradient.data_ptr(), gradient.data_ptr(), len(gradient), abi.FLOAT32, abi.AVERAGE,
                         options=options)
        has_mean = time.monotonic()
        task.learn_from(gradient)
        reducing.append(1e3 * (has_mean - has_gradient))
        whole.append(1e3 * (time.monotonic() - begin))
    return reducing, whole


def main():
    name, codec, algorithm, steps, folder = sys.argv[1:]
    torch.set_num_threads(1)
    with spillway.Communicator() as communicator, torch.backends.mkldnn.flags(enabled=False):
        task = TASKS[name](1, Size(ranks=communicator.world, steps=int(steps)))
        reducing, whole = train(communicator, task, options_of(communicator, codec, algorithm), int(steps))
        measured = {"all_reduce_ms": reducing, "step_ms": whole}
        (pathlib.Path(folder) / str(communicator.rank)).write_text(json.dumps(measured))


if __name__ == "__main__":
    main()
