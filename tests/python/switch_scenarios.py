# SPDX-License-Identifier: Apache-2.0
"""The backend with SPILLWAY_ALGORITHM=switch, at one rank of torch_test.py: tolerant all-reduces use codecs
that switches can add, though there are no switches here."""
import os

import torch
import torch.distributed as dist

import spillway.torch
import tolerant_scenarios
from ddp_scenarios import assert_same_everywhere, tear_down, trained
from spillway.torch import Planes
from tolerant_scenarios import values


def set_up():
    os.environ.update(SPILLWAY_ALGORITHM="switch", SPILLWAY_LOSS_BOUND="0")
    tolerant_scenarios.set_up()


def all_reduced(tensor, **arguments):
    work = dist.all_reduce(tensor, async_op=True, **arguments)
    work.wait()
    return tensor, work.operation.request.report()


def tolerant_sums_have_a_codec_that_switches_can_add():
    """The default of 5 bits becomes levels of 8."""
    world = dist.get_world_size()
    expected = sum(values(of=peer).double() for peer in range(world))
    mine, report = all_reduced(values())
    assert (report.codec, report.algorithm, report.contributors) == ("levels", "switch", world), report
    assert 0 < float((mine.double() - expected).norm() / expected.norm()) < 0.05
    assert_same_everywhere(mine)


def exact_operations_go_as_ever():
    world = dist.get_world_size()
    mine, report = all_reduced(values(torch.int32))
    assert report.algorithm != "switch" and report.contributors == 0, report
    assert torch.equal(mine, sum(values(torch.int32, of=peer) for peer in range(world)))
    dist.barrier()


def a_hook_with_many_planes_sends_blocks():
    """Its 16 bits are more than levels have."""
    ours, hook = trained(steps=4, attach=lambda model: spillway.torch.attach(model, Planes(16), loss_bound=0.0))
    assert_same_everywhere(ours)
    assert hook.report().codec == "blocks", hook.report()


SCENARIOS = [tolerant_sums_have_a_codec_that_switches_can_add, exact_operations_go_as_ever,
             a_hook_with_many_planes_sends_blocks]
