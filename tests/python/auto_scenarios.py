# SPDX-License-Identifier: Apache-2.0
"""The codec auto, through the hook and through the variable, at one rank of auto_codec_test.py."""
import os

import torch
import torch.distributed as dist

import ddp_scenarios
import spillway.torch
from spillway.torch import Auto
from ddp_scenarios import assert_same_everywhere, parameters_of, sgd, tear_down, train

MOST_STEPS = 150
MOST_OPERATIONS = 2000
VARIABLES = {"SPILLWAY_CODEC": "auto"}

rank = None


def set_up():
    global rank
    os.environ.update(VARIABLES)
    ddp_scenarios.set_up()
    rank = dist.get_rank()


def assert_same_choice(candidate):
    said = [None] * dist.get_world_size()
    dist.all_gather_object(said, str(candidate), group=ddp_scenarios.gloo)
    assert len(set(said)) == 1, said


def a_hook_tries_and_chooses():
    """Replicas stay the same through all codes; a run that resumes from its checkpoint does not try any."""
    model = ddp_scenarios.make_model()
    hook, optimizer, codecs = spillway.torch.attach(model, Auto()), sgd(model), []
    for step in range(MOST_STEPS):
        if step == 4:
            with hook.exactly():
                train(model, optimizer, [step])
        else:
            train(model, optimizer, [step])
        codecs.append(hook.report().codec)
        if hook.report().choice is not None:
            break
    choice = hook.report().choice
    assert {"planes", "levels", "entropy"} <= set(codecs) and codecs[0] == codecs[4] == "exact", codecs
    assert len(codecs) < MOST_STEPS and "chosen" in [trial.outcome for trial in choice.trials], choice
    assert all(trial.error < 1.0 for trial in choice.trials if trial.error is not None), choice.table()
    assert_same_choice(choice.candidate)
    assert_same_everywhere(parameters_of(model))

    resumed = ddp_scenarios.make_model(seed=99)
    resumed_hook = spillway.torch.attach(resumed, Auto())
    resumed_hook.load_state_dict(hook.state_dict())
    train(resumed, sgd(resumed), range(2))
    report = resumed_hook.report()
    assert (report.choice.candidate, report.codec) == (choice.candidate, choice.candidate.codec), report
    assert_same_everywhere(parameters_of(resumed))


def the_backend_tries_and_chooses():
    group = dist.distributed_c10d._get_default_group()
    auto = group._codec.auto
    tensor, codecs = torch.empty(1 << 14), set()
    for _ in range(MOST_OPERATIONS):
        tensor.fill_(rank + 1.0)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        report = work.operation.request.report()
        codecs.add(report.codec if report.contributors else "exact")
        assert_close(tensor, 3.0)
        if auto.choice is not None:
            break
    # With a busy machine's times, exact may be predicted as too slow, and not tried.
    (exact,) = [trial for trial in auto.choice.trials if trial.candidate.codec == "exact"]
    assert {"planes", "entropy"} <= codecs and ("exact" in codecs or exact.outcome.startswith("not tried")), codecs
    assert_same_choice(auto.choice.candidate)


def assert_close(tensor, expected):
    error = float((tensor - expected).square().mean().sqrt()) / expected
    assert error < 0.2, error


SCENARIOS = [a_hook_tries_and_chooses, the_backend_tries_and_chooses]
