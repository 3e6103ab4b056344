# SPDX-License-Identifier: Apache-2.0
"""Models that fully_shard() has prepared, with shard(), compared with FSDP2 alone, at one rank of shard_test.py."""
import contextlib

import torch
import torch.distributed as dist
from torch import nn

import spillway.torch
from spillway.torch import Entropy, Exact, Planes, shard
from spillway.torch.sharded_model import MOST_UNDER_WAY

with contextlib.suppress(ImportError, ValueError):  # torch without FSDP2 runs no scenario
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

WIDTH, LAYERS, STEPS = 96, 6, 5

gloo = None
rank = world = None


def set_up():
    global gloo, rank, world
    dist.init_process_group("spillway")
    gloo = dist.new_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()


def tear_down():
    dist.barrier()
    dist.destroy_process_group()


def sharded(group=None, shape=None, **policy):
    """A model of LAYERS sharded layers and a head, which the outer module owns."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH + 1), nn.ReLU(), nn.Linear(WIDTH + 1, WIDTH))
                            for _ in range(LAYERS)), nn.Linear(WIDTH, 7))
    names = {1: ("shards",), 2: ("replicas", "shards")}
    mesh = init_device_mesh("cpu", shape or (world,), mesh_dim_names=names[len(shape or (world,))])
    if group is not None:
        mesh = type(mesh).from_group(group, "cpu")
    if shape is not None:
        mesh, replicas = mesh["shards"], mesh["replicas"].get_group()
    for layer in list(model)[:-1]:
        fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    return (model, replicas) if shape is not None else model


def train(model, passes=1):
    """The parameters after STEPS steps, whole and flat."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(passes):
            generator = torch.Generator().manual_seed(1000 * step + 100 * part + rank)
            inputs = torch.randn(16, WIDTH, generator=generator)
            model(inputs).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.full_tensor().flatten() for parameter in model.parameters()]).detach()


def start():
    return torch.cat([parameter.full_tensor().flatten() for parameter in sharded().parameters()]).detach()


def distance(ours, reference):
    """Relative to how far training has come."""
    return float((ours - reference).norm() / (reference - start()).norm())


def exact_training_has_the_bits_of_fsdp2():
    for passes in (1, 2):
        model = sharded()
        hook = shard(model, Exact())
        assert hook.report() is None
        assert torch.equal(train(model, passes), train(sharded(), passes)), passes
        assert hook.report().exact and hook.report().buckets == LAYERS + 1, hook.report()
        assert hook.report().step == STEPS * passes - 1


def fewer_bits_cost_little_and_are_reported():
    model = sharded()
    hook = shard(model, Planes(bits=8))
    assert LAYERS + 1 > MOST_UNDER_WAY  # or some sum would never be waited for early
    assert 0 < distance(train(model), train(sharded())) < 0.2
    report = hook.report()
    assert (report.codec, report.contributors, report.buckets) == ("planes", world, LAYERS + 1), report
    assert report.wire_bytes < 0.5 * report.gradient_bytes, report
    hook.exact = True
    train(model)
    assert hook.report().exact and hook.report().codec == "exact"


def entropy_coded_gradients_and_weights():
    model = sharded()
    hook = shard(model, Entropy(bits=12), gather=Entropy(bits=12))
    assert 0 < distance(train(model), train(sharded())) < 0.3
    report = hook.report()
    assert (report.codec, report.contributors) == ("entropy", world), report
    assert 0 < report.bits_per_value < 12 and report.tables < (world - 1) * report.buckets, report


def gradients_accumulate_over_passes():
    model = sharded()
    shard(model, Planes(bits=16))
    assert 0 < distance(train(model, passes=2), train(sharded(), passes=2)) < 0.02


def mixed_precision_is_coded_as_bfloat16():
    policy = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.bfloat16}
    model = sharded(**policy)
    hook = shard(model, Planes(bits=8))
    assert distance(train(model), train(sharded(**policy))) < 0.3
    assert hook.report().codec == "planes"


def weights_may_be_coded_too():
    model = sharded()
    shard(model, Exact(), gather=Planes(bits=12))
    assert 0 < distance(train(model), train(sharded())) < 0.2


def other_backends_lend_their_ranks():
    model = sharded(gloo)
    hook = shard(model, Planes(bits=16))
    assert 0 < distance(train(model), train(sharded(gloo))) < 0.02
    assert hook.report().codec == "planes"


def replicas_average_with_the_codec():
    """Every second rank has the same shard."""
    model, replicas = sharded(shape=(world // 2, 2))
    hook = shard(model, Planes(bits=16), replicas=replicas)
    ours = train(model)
    assert 0 < distance(ours, train(sharded())) < 0.2
    assert hook.report().buckets == 2 * (LAYERS + 1)
    everybody = [torch.empty_like(ours) for _ in range(world)]
    dist.all_gather(everybody, ours)
    assert all(torch.equal(each, ours) for each in everybody)


def mistakes_are_named():
    for wrong, message in ((lambda: shard(nn.Linear(2, 2)), "fully_shard() has prepared; call it first"),
                           (lambda: shard(sharded(), spillway.torch.Levels()), "which has no reduce_scatter: use planes, entropy"),
                           (lambda: shard(sharded(), gather=spillway.torch.Blocks()), "which has no all_gather"),
                           (lambda: shard(sharded(), "planes"), "give a codec of spillway.torch")):
        try:
            wrong()
        except (TypeError, ValueError) as error:
            assert message in str(error), error
        else:
            raise AssertionError(f"nothing about: {message}")


SCENARIOS = [exact_training_has_the_bits_of_fsdp2, fewer_bits_cost_little_and_are_reported,
             entropy_coded_gradients_and_weights, gradients_accumulate_over_passes, mixed_precision_is_coded_as_bfloat16, weights_may_be_coded_too,
             other_backends_lend_their_ranks, replicas_average_with_the_codec, mistakes_are_named]
