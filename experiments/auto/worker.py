#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A host of experiments/auto: trains as examples/train.py does, with a rate that falls to 0.

    worker.py --steps N --schedule N --seed N --evaluate-every N --test-samples N --hook HOOK --log FILE

Gradients go as HOOK says: "fp32" and "fp16" through Gloo, else attach()'s arguments as JSON. The rate falls as if there
were --schedule steps. Rank 0 writes the log, in the format of examples/train.py, and with codec="auto" also

    {"event": "choice", "step", "codec", "why", "trials"}    what was chosen behind so many steps; trials, a line each
"""
import argparse
import json
import pathlib
import sys

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(EXPERIMENTS), str(EXPERIMENTS.parent / "examples")]

from thc.worker import OVER_GLOO, attach, falling_sgd


class Watch:
    """As much of TensorBoard's SummaryWriter as the hook needs: it looks for choices after every step."""

    def __init__(self, journal):
        self.hook, self._journal, self._last = None, journal, None

    def add_scalar(self, _name, _value, step):
        choice = self.hook.report().choice if self.hook is not None else None
        if choice is not self._last:
            self._last = choice
            self._journal.write("choice", step=step, codec=str(choice.candidate), why=choice.why,
                                trials=[str(trial) for trial in choice.trials])


def attach_watched(model, hook, journal):
    import spillway.torch
    watch = Watch(journal)
    watch.hook = spillway.torch.attach(model, writer=watch, **json.loads(hook))


def train(options):
    import torch
    import torch.distributed as dist
    import train as example

    torch.set_num_threads(1)
    recipe = example.RECIPES[options.model]._replace(make_optimizer=falling_sgd(options.schedule),
                                                     test_samples=options.test_samples)
    data = recipe.read_data(None)
    example.join("gloo" if options.hook in OVER_GLOO else "spillway")
    torch.manual_seed(options.seed)
    trainer = example.Trainer(recipe, None)
    journal = example.Journal(options.log, append=False)
    if options.hook in OVER_GLOO:
        attach(trainer.model, options.hook)
    else:
        attach_watched(trainer.model, options.hook, journal)
    batches = example.Batches(data, recipe.batch, options.seed, dist.get_rank(), dist.get_world_size())
    example.Run(options, recipe, trainer, data, batches, journal).to_the_end()
    journal.close()
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hook", required=True)
    for name in ("--steps", "--schedule", "--seed", "--evaluate-every", "--test-samples"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.set_defaults(model="cnn", epochs=1000, target_accuracy=None)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
