# SPDX-License-Identifier: Apache-2.0
"""The backend with SPILLWAY_CODEC=planes, at one rank of torch_test.py."""
import os

import torch
import torch.distributed as dist

import ddp_scenarios
import spillway.torch
from ddp_scenarios import STEPS, assert_same_everywhere, parameters_of, sgd, tear_down, trained
from spillway import abi
from spillway.torch import Entropy, Exact, Planes
from spillway.torch.backend_codec import LEAST_BYTES

VARIABLES = {"SPILLWAY_CODEC": "planes"}

rank = world = None


def set_up():
    global rank, world
    os.environ.update(VARIABLES)
    ddp_scenarios.set_up()
    rank, world = dist.get_rank(), dist.get_world_size()


def values(dtype=torch.float32, size=LEAST_BYTES, of=None):
    count = size // torch.tensor([], dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(rank if of is None else of)
    return (8 * torch.randn(count, generator=generator)).to(dtype)


def all_reduced(tensor, **arguments):
    """The tensor, and the number of ranks in its sum, which the library reports as 0 if it is exact."""
    work = dist.all_reduce(tensor, async_op=True, **arguments)
    work.wait()
    return tensor, work.operation.request.report().contributors


def large_sums_and_averages_of_floats_are_tolerant():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        total = sum(values(dtype, of=peer).double() for peer in range(world))
        for op, expected in ((dist.ReduceOp.SUM, total), (dist.ReduceOp.AVG, total / world)):
            mine, contributors = all_reduced(values(dtype), op=op)
            assert contributors == world, (dtype, op, contributors)
            error = float((mine.double() - expected).norm() / expected.norm())
            assert 0 < error < 0.1, (dtype, op, error)
            assert_same_everywhere(mine.double())


def large_reduce_scatters_of_floats_are_tolerant():
    part = LEAST_BYTES // 4
    everybody = [values(size=LEAST_BYTES * world, of=peer) for peer in range(world)]
    own = slice(rank * part, (rank + 1) * part)
    expected = sum(everybody)[own]
    whole, pieces = torch.empty(part), torch.empty(part)
    works = [dist.reduce_scatter_tensor(whole, everybody[rank], async_op=True),
             dist.reduce_scatter(pieces, list(everybody[rank].split(part)), async_op=True)]
    for mine, work in zip((whole, pieces), works):
        work.wait()
        assert work.operation.request.report().contributors == world
        error = float((mine - expected).norm() / expected.norm())
        assert 0 < error < 0.1, error
    largest = torch.empty(part)
    dist.reduce_scatter(largest, list(everybody[rank].split(part)), op=dist.ReduceOp.MAX)
    assert torch.equal(largest, torch.stack(everybody).max(0).values[own])


def a_communicator_takes_codecs_for_both_halves():
    part = LEAST_BYTES // 4
    communicator = dist.group.WORLD.communicator
    for codec in (Planes(16), Entropy(16)):
        options = codec.options()
        own, mine, whole = values(size=LEAST_BYTES * world), torch.empty(part), torch.empty(part * world)
        communicator.run("reduce_scatter", own.data_ptr(), mine.data_ptr(), part, abi.FLOAT32, abi.SUM, options=options)
        communicator.run("all_gather", mine.data_ptr(), whole.data_ptr(), part, abi.FLOAT32, options=options)
        expected = sum(values(size=LEAST_BYTES * world, of=peer) for peer in range(world))
        assert 0 < float((whole - expected).norm() / expected.norm()) < 1e-3, codec
        assert_same_everywhere(whole)


def all_gathers_are_exact():
    """They carry weights."""
    mine = values(size=LEAST_BYTES)
    gathered = torch.empty(world * len(mine))
    dist.all_gather_into_tensor(gathered, mine)
    assert torch.equal(gathered, torch.cat([values(size=LEAST_BYTES, of=peer) for peer in range(world)]))


def everything_else_is_exact():
    everybody = torch.stack([values(of=peer) for peer in range(world)])
    short = LEAST_BYTES - 4
    for expected, mine, arguments in [
            (sum(values(size=short, of=peer) for peer in range(world)), values(size=short), {}),
            (everybody.max(0).values, values(), {"op": dist.ReduceOp.MAX}),
            (sum(values(torch.int32, of=peer) for peer in range(world)), values(torch.int32), {})]:
        result, contributors = all_reduced(mine, **arguments)
        assert contributors == 0 and torch.equal(result, expected), (mine.dtype, arguments, contributors)
    mine = values()
    dist.broadcast(mine, 1)
    assert torch.equal(mine, values(of=1))


def sub_groups_are_tolerant_too():
    pair = dist.new_group([0, 2])
    if rank != 1:
        _, contributors = all_reduced(values(), group=pair)
        assert contributors == 2, contributors


def ddp_without_a_hook_loses_something_and_stays_the_same_everywhere():
    ours, _ = trained(steps=6)
    exact, _ = trained(ddp_scenarios.gloo, steps=6)
    assert_same_everywhere(ours)
    assert 1e-6 * exact.norm() < (ours - exact).norm() < 0.05 * exact.norm(), (ours - exact).norm() / exact.norm()


def a_hook_goes_by_its_own_arguments():
    """Its warm-up is exact, as are steps for which that is requested; otherwise its bits count, not the
    variables'."""
    ours, hook = trained(attach=lambda model: spillway.torch.attach(model, Exact()))
    reference, _ = trained(ddp_scenarios.gloo)
    assert torch.allclose(ours, reference, rtol=1e-4, atol=1e-6) and hook.report().exact

    model = ddp_scenarios.make_model()
    hook, optimizer, reports = spillway.torch.attach(model, Planes(32), measure_every=1), sgd(model), []
    for step in range(STEPS):
        ddp_scenarios.train(model, optimizer, [step])
        reports.append(hook.report())
    assert [report.exact for report in reports] == [True, False, False]
    assert 0 < reports[-1].nmse < 1e-8, reports[-1]  # 8 bits leave about 1e-4
    assert_same_everywhere(parameters_of(model))


SCENARIOS = [large_sums_and_averages_of_floats_are_tolerant, large_reduce_scatters_of_floats_are_tolerant,
             a_communicator_takes_codecs_for_both_halves, all_gathers_are_exact, everything_else_is_exact, sub_groups_are_tolerant_too,
             ddp_without_a_hook_loses_something_and_stays_the_same_everywhere, a_hook_goes_by_its_own_arguments]
