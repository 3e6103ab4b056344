#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Test accuracy where a share of packets is trimmed: Spillway's planes beside the trimmable-gradients paper's codes.

  experiments/trim_accuracy/run.py [--out experiments/trim_accuracy/result.md] [--json FILE]

Needs python3-torch, dataset-fashion-mnist and the target experiment_channel. README.md says how to read the tables.
"""
import functools
import pathlib
import sys
from typing import Any, List, Optional, Sequence

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import sweep, training
from common.channel import PAPERS_CODES, PLANES, Channel, Delivery, gradient_seed

import torch

SHARES = (0, 1, 10, 25, 50, 75)  # per cent
CODES = (PLANES, *PAPERS_CODES)
NAMES = {None: "none (baseline)", "planes": "planes (Spillway)", "sign-magnitude": "sign-magnitude",
         "sq": "stochastic quantisation", "sd": "subtractive dithering", "rht": "rotated sign"}


class TrimmedMean:
    """Every worker's gradient goes through the network on its own; the estimates are averaged."""

    def __init__(self, channel: Channel, code: str, share: float, seed: int) -> None:
        self._channel, self._code, self._share, self._seed = channel, code, share, seed
        self.delivery = Delivery()

    def __call__(self, step: int, gradients: List[torch.Tensor]) -> torch.Tensor:
        total = torch.zeros_like(gradients[0])
        for worker, gradient in enumerate(gradients):
            seed = gradient_seed(self._seed, step, worker)
            estimate, delivery = self._channel.trim(self._code, self._share, seed, gradient)
            self.delivery = self.delivery.plus(delivery)
            total += estimate
        return total / len(gradients)


def run_one(channel: Channel, data: Any, schedule: training.Schedule, code: Optional[str], share: float,
            seed: int) -> sweep.Record:
    """With share in per cent; the baseline has no code."""
    mean = TrimmedMean(channel, code, share / 100, seed) if code is not None else training.plain_mean
    outcome = training.train(seed, mean, data, schedule)
    delivery = mean.delivery if code is not None else Delivery()
    return {"code": code, "share": share, "seed": seed, **outcome._asdict(), **delivery._asdict()}


# ---- Tables ----

def over_shares(records: Sequence[sweep.Record], shares: Sequence[float], cell: Any) -> str:
    return sweep.table(["code", *(f"{share:g} %" for share in shares)],
                       ([NAMES[code], *(cell(sweep.chosen(records, code=code, share=share)) for share in shares)]
                        for code in CODES))


def surviving_bytes(records: Sequence[sweep.Record]) -> str:
    return f"{100 * sum(r['bytes_arrived'] for r in records) / sum(r['bytes_sent'] for r in records):.1f} %"


def frames(channel: Channel) -> str:
    """What a gradient of the model's size takes when no packet is trimmed and when all are."""
    gradient = torch.randn(training.parameter_count(), generator=torch.Generator().manual_seed(1))
    rows = []
    for code in CODES:
        whole, trimmed = (channel.trim(code, share, 1, gradient) for share in (0.0, 1.0))
        bits = [8 * delivery.bytes_arrived / gradient.numel() for _, delivery in (whole, trimmed)]
        rows.append([NAMES[code], *(f"{value:.2f}" for value in bits), f"{100 * bits[1] / bits[0]:.1f} %",
                     f"{training.relative_error(trimmed[0], gradient):.2f}"])
    return sweep.table(["code", "bits a value, whole", "trimmed", "share left", "error, all trimmed, Gaussian values"],
                       rows)


def report(records: Sequence[sweep.Record], shares: Sequence[float], channel: Channel) -> str:
    baseline = sweep.chosen(records, code=None)
    return "\n".join([
        f"\n## Test accuracy, per cent, by share of packets trimmed\n\nWithout any code: {sweep.accuracy(baseline)}.\n",
        *sweep.accuracy_tables(functools.partial(over_shares, records, shares), baseline),
        "## Bytes of frames that arrive, of those sent\n",
        over_shares(records, shares, surviving_bytes),
        "## Bits of frames to a value, headers included\n",
        frames(channel)])


def main() -> None:
    options = sweep.make_parser(__doc__.splitlines()[0], SHARES).parse_args()
    channel = Channel(options.library)
    schedule = training.Schedule(steps=options.steps, test_images=options.test_images)
    settings = [(None, 0.0)] + [(code, share) for code in CODES for share in options.shares]
    calls = [(*setting, seed) for setting in settings for seed in range(1, options.seeds + 1)]
    run = functools.partial(run_one, channel, training.example.fashion_mnist(None), schedule)
    records = sweep.run_all(run, calls, options)
    heading = sweep.heading(HERE.name, options, len(records))
    sweep.write(options, heading + report(records, options.shares, channel))


if __name__ == "__main__":
    main()
