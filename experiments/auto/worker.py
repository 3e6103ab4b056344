#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A host of experiments/auto, which trains (common/lab_training.py).

    worker.py --steps N --schedule N --seed N --evaluate-every N --test-samples N --hook HOOK --log FILE

The learning rate falls as if there were --schedule steps. With the codec auto, rank 0 also writes to the log

    {"event": "choice", "step", "codec", "why", "trials"}    the choice after so many steps; trials: one line each
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common.hooks import hook_arguments
from common.lab_training import OVER_GLOO, add_options, attach, train


class Watch:
    """The part of TensorBoard's SummaryWriter that the hook needs. It looks for choices after every step."""

    def __init__(self, journal):
        self.hook, self._journal, self._last = None, journal, None

    def add_scalar(self, _name, _value, step):
        choice = self.hook.report().choice if self.hook is not None else None
        if choice is not self._last:
            self._last = choice
            self._journal.write("choice", step=step, codec=str(choice.candidate), why=choice.why,
                                trials=[str(trial) for trial in choice.trials])


def attach_watched(model, hook, journal):
    if hook in OVER_GLOO:
        attach(model, hook, journal)
        return
    import spillway.torch
    watch = Watch(journal)
    watch.hook = spillway.torch.attach(model, writer=watch, **hook_arguments(hook))


def main():
    options = add_options(argparse.ArgumentParser(), "--schedule").parse_args()
    train(options, options.schedule, attach_watched)


if __name__ == "__main__":
    main()
