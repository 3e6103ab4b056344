# SPDX-License-Identifier: Apache-2.0
"""Training with four workers in one process. Each computes the gradient of its part of the batch. The experiment
decides what happens to the four on their way, and so which mean the model learns from.

A run is a function of its seed and of the means: the seed decides the initial weights and the order of the images,
which come from examples/train.py. The dataset is Fashion-MNIST, with all of its test images.
"""
import math
import pathlib
import statistics
import sys
from typing import Callable, List, NamedTuple, Tuple

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import train as example

WORKERS = 4
MOMENTUM = 0.9
PIXEL_MEAN, PIXEL_DEVIATION = 72.9, 90.0

# Maps a step and the workers' gradients to the mean that the network delivers.
Mean = Callable[[int, List[torch.Tensor]], torch.Tensor]


class Schedule(NamedTuple):
    """The rate falls linearly from `lr` to 0: the final accuracy then varies less between seeds."""
    steps: int = 500
    batch: int = 128  # over all workers
    lr: float = 0.07
    test_images: int = 10_000


class Outcome(NamedTuple):
    accuracy: float  # per cent of the test images
    loss: float      # last step, mean over workers; NaN or infinite if training diverged
    error: float     # of the mean gradient: squared, over the true mean's energy; median over steps


class Cnn(nn.Module):
    """Two convolutions and two full layers: 103,146 parameters, nearly all of them in the first full one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2, padding=2), nn.ReLU(),
                                    nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
                                    nn.Linear(16 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers((images.unsqueeze(1).float() - PIXEL_MEAN) / PIXEL_DEVIATION)


def parameter_count() -> int:
    return sum(parameter.numel() for parameter in Cnn().parameters())


def plain_mean(_step: int, gradients: List[torch.Tensor]) -> torch.Tensor:
    return torch.stack(gradients).mean(0)


def relative_error(estimate: torch.Tensor, truth: torch.Tensor) -> float:
    energy = float(truth.square().sum())
    return float((estimate - truth).square().sum()) / energy if energy > 0 else 0.0


class Learner:
    """The model and its optimizer."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self._model = Cnn()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.0, momentum=MOMENTUM)

    def gradient(self, inputs: torch.Tensor, targets: torch.Tensor) -> Tuple[torch.Tensor, float]:
        """The gradient, flat as in one of DDP's buckets, and the loss."""
        loss = functional.cross_entropy(self._model(inputs), targets)
        parts = torch.autograd.grad(loss, list(self._model.parameters()))
        return torch.cat([part.flatten() for part in parts]), loss.item()

    def learn_from(self, gradient: torch.Tensor, lr: float) -> None:
        self._optimizer.param_groups[0]["lr"] = lr
        parameters = list(self._model.parameters())
        for parameter, part in zip(parameters, gradient.split([parameter.numel() for parameter in parameters])):
            parameter.grad = part.view_as(parameter)
        self._optimizer.step()

    @torch.no_grad()
    def accuracy(self, data: example.Data, images: int) -> float:
        inputs, targets = data.test_inputs[:images], data.test_targets[:images]
        right = sum(int((self._model(some).argmax(-1) == expected).sum())
                    for some, expected in zip(inputs.split(500), targets.split(500)))
        return 100 * right / len(targets)


class Workers:
    """The workers' parts of the batches. One model stands for all replicas, which are equal."""

    def __init__(self, seed: int, data: example.Data, batch: int, workers: int = WORKERS) -> None:
        self._learner = Learner(seed)
        self._batches = [example.Batches(data, batch, seed, worker, workers) for worker in range(workers)]

    def gradient(self, worker: int, step: int) -> Tuple[torch.Tensor, float]:
        return self._learner.gradient(*self._batches[worker].at(step))

    def gradients(self, step: int) -> Tuple[List[torch.Tensor], float]:
        """One gradient per worker, and their mean loss."""
        found = [self.gradient(worker, step) for worker in range(len(self._batches))]
        return [gradient for gradient, _ in found], statistics.fmean(loss for _, loss in found)

    def learn_from(self, mean: torch.Tensor, lr: float) -> None:
        self._learner.learn_from(mean, lr)

    def accuracy(self, data: example.Data, images: int) -> float:
        return self._learner.accuracy(data, images)


def learn(workers: Workers, mean: Mean, schedule: Schedule) -> Tuple[float, float]:
    """The last loss, and the median error of the means. Ends early once the loss is not a finite number."""
    errors, loss = [], math.nan
    for step in range(schedule.steps):
        gradients, loss = workers.gradients(step)
        if not math.isfinite(loss):
            break
        estimate = mean(step, gradients)
        errors.append(relative_error(estimate, plain_mean(step, gradients)))
        workers.learn_from(estimate, schedule.lr * (1 - step / schedule.steps))
    return loss, statistics.median(errors)


def train(seed: int, mean: Mean, data: example.Data, schedule: Schedule) -> Outcome:
    torch.set_num_threads(1)
    with torch.backends.mkldnn.flags(enabled=False):  # oneDNN is slower for images this small
        workers = Workers(seed, data, schedule.batch)
        loss, error = learn(workers, mean, schedule)
        return Outcome(workers.accuracy(data, schedule.test_images), loss, error)
