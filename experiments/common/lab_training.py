# SPDX-License-Identifier: Apache-2.0
"""A training host of a lab: runs the training of examples/train.py with a learning rate that falls to 0. A hook
decides how gradients travel: "fp32" and "fp16" go through Gloo; anything else is attach()'s arguments as JSON
(hooks.py). Rank 0 writes the log of examples/train.py.

    options = add_options(argparse.ArgumentParser(), "--servers").parse_args()
    train(options)
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2] / "examples"), str(HERE.parents[1])]

from common.hooks import hook_arguments

OVER_GLOO = ("fp32", "fp16")


def add_options(parser, *more_numbers):
    """Adds the options of train(), and the caller's numeric ones."""
    parser.add_argument("--hook", required=True)
    for name in ("--steps", "--seed", "--evaluate-every", "--test-samples", *more_numbers):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.set_defaults(model="cnn", epochs=1000, target_accuracy=None)
    return parser


def falling_sgd(steps):
    """SGD whose rate falls linearly: the final accuracy then varies less between runs."""
    import torch

    class FallingSgd(torch.optim.SGD):
        def __init__(self, parameters, lr):
            super().__init__(parameters, lr=lr, momentum=0.9)
            self._first, self._taken = lr, 0

        def step(self, closure=None):
            self.param_groups[0]["lr"] = self._first * (1 - self._taken / steps)
            self._taken += 1
            return super().step(closure)

    return FallingSgd


def attach(model, hook, journal):
    """Attaches the hook, unless Gloo takes the gradients as they are."""
    del journal
    if hook == "fp16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
        model.register_comm_hook(None, fp16_compress_hook)
    elif hook not in OVER_GLOO:
        import spillway.torch
        spillway.torch.attach(model, **hook_arguments(hook))


def train(options, schedule=None, attach_hook=attach):
    """Trains one rank. The rate falls as if there were `schedule` steps, by default as many as there are.
    `attach_hook` gets the model, the hook and the log."""
    import torch
    import torch.distributed as dist
    import train as example

    torch.set_num_threads(1)
    recipe = example.RECIPES[options.model]._replace(make_optimizer=falling_sgd(schedule or options.steps),
                                                     test_samples=options.test_samples)
    data = recipe.read_data(None)
    example.join("gloo" if options.hook in OVER_GLOO else "spillway")
    torch.manual_seed(options.seed)
    trainer = example.Trainer(recipe, None)
    journal = example.Journal(options.log, append=False)
    attach_hook(trainer.model, options.hook, journal)
    batches = example.Batches(data, recipe.batch, options.seed, dist.get_rank(), dist.get_world_size())
    example.Run(options, recipe, trainer, data, batches, journal).to_the_end()
    journal.close()
    dist.barrier()
    dist.destroy_process_group()
