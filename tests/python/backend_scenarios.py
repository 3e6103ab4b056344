# SPDX-License-Identifier: Apache-2.0
"""The features that torch offers its own backends, at one rank of backend_test.py. A scenario returns at once where the
release of torch lacks its feature."""
import datetime
import os
import pickle
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import spillway.torch
from harness.patience import patience
from spillway.torch.collectives import Collectives
from spillway.torch.process_group import collectives_of, takes_backends

gloo = None
rank = world = None


def set_up():
    global gloo, rank, world
    before = dict(os.environ)
    spillway.torch.register()
    assert dict(os.environ) == before
    dist.init_process_group("spillway")
    gloo = dist.new_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()


def tear_down():
    dist.barrier()
    dist.destroy_process_group()


def is_debugged():
    """torch then lets ranks meet before each operation."""
    return dist.get_debug_level() == dist.DebugLevel.DETAIL


def exchange(group):
    """Each rank sends its rank to its neighbours, in one batch."""
    after, before = (rank + 1) % world, (rank - 1) % world
    mine, from_before, from_after = torch.full((1000,), float(rank)), torch.empty(1000), torch.empty(1000)
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, from_before, before, group),
                                    dist.P2POp(dist.isend, mine, after, group),
                                    dist.P2POp(dist.irecv, from_after, after, group),
                                    dist.P2POp(dist.isend, mine, before, group)])
    for work in works:
        work.wait()
    return from_before, from_after


def batches_of_messages():
    for found, expected in zip(exchange(dist.group.WORLD), exchange(gloo)):
        assert torch.equal(found, expected)


def handles_tell_when_they_end():
    if rank == 0 and not is_debugged():
        dist.barrier(gloo)
    late = dist.all_reduce(torch.ones(10), async_op=True)
    if rank != 0 and not is_debugged():
        assert not late.is_completed()  # rank 0 has not called it
        dist.barrier(gloo)
    while not late.is_completed():
        pass
    assert late.is_success() and late.exception() is None and late.result()[0][0].item() == world
    of_gloo = dist.all_reduce(torch.ones(10), group=gloo, async_op=True)
    of_gloo.wait()
    assert of_gloo.is_completed()


def groups_that_are_split():
    if not takes_backends():
        return
    child = dist.split_group(split_ranks=[[0, 2], [1]])
    mine = torch.tensor([float(rank)])
    dist.all_reduce(mine, group=child)
    assert mine.item() == (2.0 if rank != 1 else 1.0)
    assert dist.get_world_size(child) == (2 if rank != 1 else 1)
    child = dist.split_group(split_ranks=[[1, 2]])
    if rank == 0:
        assert child in (None, dist.GroupMember.NON_GROUP_MEMBER)
    else:
        dist.all_reduce(mine.fill_(rank), group=child)
        assert mine.item() == 3.0


def monitored_barriers_of_torch():
    if takes_backends():
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=patience(30)))
    spillway.torch.monitored_barrier(timeout=datetime.timedelta(seconds=patience(30)))


def checkpoints_that_are_saved_in_the_background():
    if not takes_backends():
        return
    import torch.distributed.checkpoint as checkpoint
    model = torch.nn.Linear(3, 3)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    folder = [tempfile.mkdtemp()] if rank == 0 else [None]
    dist.broadcast_object_list(folder)
    checkpoint.async_save(model.state_dict(), checkpoint_id=folder[0]).result()
    dist.barrier()
    loaded = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    checkpoint.load(loaded, checkpoint_id=folder[0])
    for name, value in model.state_dict().items():
        assert torch.equal(loaded[name], value)


def unwrapped(group):
    backend = group._get_backend(torch.device("cpu"))
    return getattr(backend, "wrapped_pg", backend)


def each_device_has_its_own_backend():
    if not takes_backends():
        return
    for config, expected in (("cpu:gloo,cuda:spillway", False), ("cpu:spillway,cuda:gloo", True)):
        group = dist.new_group(backend=config)
        assert isinstance(unwrapped(group), Collectives) == expected, config
        assert collectives_of(group) is not None
        mine = torch.ones(10)
        dist.all_reduce(mine, group=group)
        assert mine[0].item() == world
        dist.destroy_process_group(group)


def trained(group, wrap=lambda model: model):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
    model = wrap(DistributedDataParallel(model, process_group=group))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 20, generator=generator)).pow(2).mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def models_that_are_compiled():
    if not takes_backends() or is_debugged():
        return
    compiled = trained(None, lambda model: torch.compile(model, backend="aot_eager"))
    for found, expected in zip(compiled, trained(gloo)):
        assert torch.allclose(found, expected, atol=1e-6)


def the_flight_recorder_sees_every_collective():
    if not takes_backends():
        return

    def entries():
        return len(pickle.loads(torch._C._distributed_c10d._dump_fr_trace(True, False, False, "spillway"))["entries"])

    before = entries()
    for _ in range(20):
        dist.all_reduce(torch.ones(3))
    assert entries() - before >= 20, (before, entries())


def a_codec_in_the_options_of_a_group():
    group = dist.new_group(pg_options=spillway.torch.Planes(bits=4))
    exact = torch.randn(65536, generator=torch.Generator().manual_seed(rank))
    mine, reference = exact.clone(), exact.clone()
    dist.all_reduce(mine, group=group)
    dist.all_reduce(reference)
    assert 0 < (mine - reference).norm() / reference.norm() < 0.5
    if takes_backends():
        options = torch._C._distributed_c10d.Backend.Options("spillway", timeout=datetime.timedelta(seconds=77))
        dist.new_group(pg_options=options)


def timeouts_are_set_later():
    if not takes_backends() or is_debugged():
        return
    group = dist.new_group()
    backend = unwrapped(group)
    success, reasons = backend.get_error(), torch._C._distributed_c10d.ErrorType
    assert success == reasons.SUCCESS
    group.set_timeout(datetime.timedelta(milliseconds=300))
    if rank == 0:
        try:
            dist.all_reduce(torch.ones(3), group=group)
            raise AssertionError("the others never came")
        except dist.DistBackendError as error:
            assert isinstance(error, spillway.torch.SpillwayError)
        assert backend.get_error() != reasons.SUCCESS
    dist.barrier()


def groups_that_are_aborted():
    if not takes_backends() or is_debugged():
        return
    group = dist.new_group()
    dist.barrier()
    group.abort()
    try:
        dist.all_reduce(torch.ones(3), group=group)
        raise AssertionError("the group is gone")
    except dist.DistBackendError:
        pass
    dist.barrier()


SCENARIOS = [batches_of_messages, handles_tell_when_they_end, groups_that_are_split, monitored_barriers_of_torch,
             checkpoints_that_are_saved_in_the_background, each_device_has_its_own_backend, models_that_are_compiled,
             the_flight_recorder_sees_every_collective, a_codec_in_the_options_of_a_group, timeouts_are_set_later,
             groups_that_are_aborted]
