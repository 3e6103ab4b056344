#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Test accuracy when a share of packets is trimmed: Spillway's planes against the trimmable-gradients paper's codes.

  experiments/trim_accuracy/run.py [--quick] [--json FILE] [--out experiments/trim_accuracy/result.md]

Needs python3-torch, dataset-fashion-mnist and the target experiment_channel. README.md explains the tables.
"""
import functools
import pathlib
import statistics
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report, sweep, training
from common.channel import PAPERS_CODES, PLANES, Channel, Delivery, gradient_seed

import torch

SHARES, QUICK_SHARES = (0, 1, 10, 25, 50, 75), (10, 50)  # per cent
CODES = (PLANES, *PAPERS_CODES)
NAMES = {None: "none (baseline)", "planes": "planes (Spillway)", "sign-magnitude": "sign-magnitude",
         "sq": "stochastic quantisation", "sd": "subtractive dithering", "rht": "rotated sign"}
NO_HARM = report.at_least(-0.5)  # points; less is indistinguishable from noise (../common/README.md)
# The trimmable-gradients paper's words on a code at a share, or on its own best code for our planes.
PAPER = {("planes", 50): "HotNets'24, rotated sign: baseline accuracy at 50 % trimmed",
         ("rht", 50): "HotNets'24: baseline accuracy at 50 % trimmed",
         ("sq", 10): "HotNets'24: no longer time to accuracy at 10 to 20 % trimmed"}


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
    """`share` is in per cent; the baseline has no code."""
    mean = TrimmedMean(channel, code, share / 100, seed) if code is not None else training.plain_mean
    outcome = training.train(seed, mean, data, schedule)
    delivery = mean.delivery if code is not None else Delivery()
    return {"code": code, "share": share, "seed": seed, **outcome._asdict(), **delivery._asdict()}


# ---- Tables ----

def over_shares(records: Sequence[sweep.Record], shares: Sequence[float], cell: Any) -> str:
    return report.table(["code", *(f"{share:g} %" for share in shares)],
                       ([NAMES[code], *(cell(sweep.chosen(records, code=code, share=share)) for share in shares)]
                        for code in CODES))


def surviving_bytes(records: Sequence[sweep.Record]) -> str:
    return report.per_cent(sum(r["bytes_arrived"] for r in records), sum(r["bytes_sent"] for r in records), digits=1)


class Frames(NamedTuple):
    """Bits per value of a gradient of the model's size, and the error that is left when all packets are trimmed."""
    whole: float
    trimmed: float
    error: float


def frames_of(channel: Channel, code: str) -> Frames:
    gradient = torch.randn(training.parameter_count(), generator=torch.Generator().manual_seed(1))
    (_, whole), (estimate, trimmed) = (channel.trim(code, share, 1, gradient) for share in (0.0, 1.0))
    bits = (8 * delivery.bytes_arrived / gradient.numel() for delivery in (whole, trimmed))
    return Frames(*bits, training.relative_error(estimate, gradient))


def frames_table(frames: Dict[str, Frames]) -> str:
    return report.table(["code", "bits a value, whole", "trimmed", "share left", "error, all trimmed, Gaussian values"],
                        ([NAMES[code], f"{found.whole:.2f}", f"{found.trimmed:.2f}",
                          f"{100 * found.trimmed / found.whole:.1f} %", f"{found.error:.2f}"]
                         for code, found in frames.items()))


def tables(records: Sequence[sweep.Record], shares: Sequence[float], frames: Dict[str, Frames]) -> str:
    baseline = sweep.chosen(records, code=None)
    return "\n".join([
        f"\n## Test accuracy, per cent, by share of packets trimmed\n\nWithout any code: {sweep.accuracy(baseline)}.\n",
        *sweep.accuracy_tables(functools.partial(over_shares, records, shares), baseline),
        "## Bytes of frames that arrive, of those sent\n",
        over_shares(records, shares, surviving_bytes),
        "## Bits of frames to a value, headers included\n",
        frames_table(frames)])


def add_claims(claims: report.Claims, records: Sequence[sweep.Record], shares: Sequence[float],
               frames: Dict[str, Frames]) -> None:
    baseline = sweep.chosen(records, code=None)
    points = {(code, share): statistics.fmean(sweep.points(sweep.chosen(records, code=code, share=share), baseline))
              for code in CODES for share in shares}
    for (code, share), found in points.items():
        claims.add(f"{NAMES[code]}, {share:g} % trimmed: points from the baseline", found,
                   NO_HARM if (code, share) in PAPER else None, PAPER.get((code, share)))
    if 50 in shares:
        others = min(points[code, 50] for code in CODES if code != "sign-magnitude")
        claims.add("sign-magnitude, 50 % trimmed: points below the worst of the others",
                   others - points["sign-magnitude", 50], report.at_least(0), "HotNets'24: it falls off first")
    claims.add("rotated sign, all trimmed: squared error over that of theory, 0.571", frames["rht"].error / 0.571,
               report.Bar(0.95, 1.05), "DRIVE: pi / 2 - 1")


def main() -> None:
    options = sweep.make_parser(__doc__, SHARES, QUICK_SHARES).parse_args()
    channel, claims = Channel(options.library), report.Claims(options.quick)
    settings = [(None, 0.0)] + [(code, share) for code in CODES for share in options.shares]
    records = sweep.run_settings(run_one, settings, channel, options)
    frames = {code: frames_of(channel, code) for code in CODES}
    add_claims(claims, records, options.shares, frames)
    heading = sweep.heading(HERE.name, options, len(records))
    sweep.write(options, heading + tables(records, options.shares, frames), claims)


if __name__ == "__main__":
    main()
