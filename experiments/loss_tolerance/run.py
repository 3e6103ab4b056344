#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Test accuracy when a share of packets is lost: on all workers' paths or on one's, with sums rescaled or not.

  experiments/loss_tolerance/run.py [--quick] [--json FILE] [--out experiments/loss_tolerance/result.md]

Needs python3-torch, dataset-fashion-mnist and the target experiment_channel. README.md explains the tables.
"""
import functools
import pathlib
import statistics
import sys
from typing import Any, List, Optional, Sequence, Tuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from common import report, sweep, training
from common.channel import Channel, Delivery, gradient_seed

import torch

SHARES, QUICK_SHARES = (0, 1, 3, 10, 20, 30), (3, 30)  # per cent
EVEN, ONE = "all workers", "one worker"
HOW = {True: "rescaled", False: "zero"}
NO_HARM = report.at_least(-0.5)  # points; less is indistinguishable from noise (../common/README.md)
# The papers' words on a share that is lost at random on all paths.
SAME_ROUNDS = "MLT: 0.7 to 3.3 %, DLCP: 0.6 to 3.5 % in the same rounds"
MORE_EPOCHS = "MLT, DLCP: 20 to 30 % needs more epochs"
PAPER = {1: SAME_ROUNDS, 3: SAME_ROUNDS, 10: "MLT, DLCP: 10 % with more rounds", 20: MORE_EPOCHS, 30: MORE_EPOCHS}


def worker_shares(pattern: str, share: float) -> List[float]:
    """The loss on each worker's path. A path that loses for all of them cannot lose more than everything."""
    if pattern == EVEN:
        return [share] * training.WORKERS
    return [min(1.0, training.WORKERS * share)] + [0.0] * (training.WORKERS - 1)


class LossyMean:
    """Averages like the tolerant all-reduce (lib/collective). Within a row, the arrived part of a contribution stands
    for the missing part. A row of which nothing arrived has one contributor less, and is divided by the others'
    number. Not rescaled, missing values count as zero."""

    def __init__(self, channel: Channel, shares: Sequence[float], rescaled: bool, seed: int) -> None:
        self._channel, self._shares, self._rescaled, self._seed = channel, shares, rescaled, seed
        self.delivery = Delivery()

    def __call__(self, step: int, gradients: List[torch.Tensor]) -> torch.Tensor:
        total, contributors = torch.zeros_like(gradients[0]), torch.zeros_like(gradients[0])
        for worker, (gradient, share) in enumerate(zip(gradients, self._shares)):
            seed = gradient_seed(self._seed, step, worker)
            estimate, has_come, delivery = self._channel.lose(share, seed, self._rescaled, gradient)
            self.delivery = self.delivery.plus(delivery)
            total += estimate
            contributors += has_come
        return total / contributors.clamp(min=1) if self._rescaled else total / len(gradients)


def run_one(channel: Channel, data: Any, schedule: training.Schedule, pattern: Optional[str], rescaled: bool, share: float,
            seed: int) -> sweep.Record:
    """`share` is in per cent; the baseline has no pattern."""
    mean = (training.plain_mean if pattern is None else
            LossyMean(channel, worker_shares(pattern, share / 100), rescaled, seed))
    outcome = training.train(seed, mean, data, schedule)
    delivery = mean.delivery if pattern is not None else Delivery()
    return {"pattern": pattern, "rescaled": rescaled, "share": share, "seed": seed, **outcome._asdict(),
            **delivery._asdict()}


def settings(shares: Sequence[float]) -> List[Tuple[Optional[str], bool, float]]:
    """Without loss, all settings are the same run."""
    lossless: List[Tuple[Optional[str], bool, float]] = [(None, True, 0.0)] + [(EVEN, True, 0.0)] * (0 in shares)
    return lossless + [(pattern, rescaled, share) for pattern in (EVEN, ONE) for rescaled in (True, False)
                       for share in shares if share > 0]


# ---- Tables ----

def over_shares(records: Sequence[sweep.Record], shares: Sequence[float], cell: Any) -> str:
    def row(pattern: str, rescaled: bool) -> List[str]:
        found = (sweep.chosen(records, pattern=pattern, rescaled=rescaled, share=share) if share > 0 else
                 sweep.chosen(records, pattern=EVEN, rescaled=True, share=0.0) for share in shares)
        return [pattern, HOW[rescaled], *(cell(some) for some in found)]

    return report.table(["losses on", "what is missing", *(f"{share:g} %" for share in shares)],
                       (row(pattern, rescaled) for pattern in (EVEN, ONE) for rescaled in (True, False)))


def lost_packets(records: Sequence[sweep.Record]) -> str:
    return report.per_cent(sum(r["hit"] for r in records), sum(r["packets"] for r in records))


def tables(records: Sequence[sweep.Record], shares: Sequence[float]) -> str:
    baseline = sweep.chosen(records, pattern=None)
    return "\n".join([
        f"\n## Test accuracy, per cent, by share of packets lost\n\nWithout any code or loss: {sweep.accuracy(baseline)}.\n",
        *sweep.accuracy_tables(functools.partial(over_shares, records, shares), baseline),
        "## Packets that were lost, of all workers' together\n",
        over_shares(records, shares, lost_packets)])


def add_claims(claims: report.Claims, records: Sequence[sweep.Record], shares: Sequence[float]) -> None:
    baseline = sweep.chosen(records, pattern=None)
    for pattern, rescaled, share in settings(shares):
        if share > 0:
            some = sweep.chosen(records, pattern=pattern, rescaled=rescaled, share=share)
            claims.add(f"{share:g} % lost on {pattern}, {HOW[rescaled]}: points from the baseline",
                       statistics.fmean(sweep.points(some, baseline)), NO_HARM if rescaled else None,
                       PAPER.get(share) if pattern == EVEN else None)


def main() -> None:
    options = sweep.make_parser(__doc__, SHARES, QUICK_SHARES).parse_args()
    claims = report.Claims(options.quick)
    records = sweep.run_settings(run_one, settings(options.shares), Channel(options.library), options)
    add_claims(claims, records, options.shares)
    heading = sweep.heading(HERE.name, options, len(records))
    sweep.write(options, heading + tables(records, options.shares), claims)


if __name__ == "__main__":
    main()
