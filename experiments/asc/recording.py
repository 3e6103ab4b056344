# SPDX-License-Identifier: Apache-2.0
"""Consecutive training steps, as coded all-reduces see them: each rank's float gradients, and whole numbers made of
them with one scale, rounded to the nearest with error feedback."""
from typing import List, NamedTuple

import torch

from common import training
from gradients.sparse_models import TASKS, Size

SAMPLES = 512  # over all ranks; layers has its own


class Step(NamedTuple):
    gradients: torch.Tensor  # one row per rank
    integers: torch.Tensor   # of gradients plus error feedback


class Rounded(NamedTuple):
    integers: torch.Tensor
    unit: float
    error: float  # of their sum: squared error over energy


def rounded(values: torch.Tensor, bits: int) -> Rounded:
    """All rows share one scale, which the largest magnitude sets."""
    unit = max(float(values.abs().max()), 1e-30) / (2 ** (bits - 1) - 1)
    integers = (values / unit).round().int()
    return Rounded(integers, unit, training.relative_error(integers.sum(0) * unit, values.sum(0)))


def recorded(task_name: str, ranks: int, steps: int, kept: int, bits: int = 8, seed: int = 1) -> List[Step]:
    """The last `kept` of `steps`. The model learns from the whole numbers' mean."""
    torch.set_num_threads(1)
    found: List[Step] = []
    with torch.backends.mkldnn.flags(enabled=False):
        task = TASKS[task_name](seed, Size(ranks=ranks, batch=SAMPLES // ranks, steps=steps))
        owed = torch.zeros(ranks, task.length())
        for step in range(steps):
            gradients = torch.stack(task.gradients(step)[0])
            values = gradients + owed
            integers, unit, _ = rounded(values, bits)
            owed = values - integers * unit
            task.learn_from(integers.sum(0) * unit / ranks)
            found = [*found, Step(gradients, integers)][-kept:]
    return found
