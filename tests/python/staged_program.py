# SPDX-License-Identifier: Apache-2.0
"""The program of staged_test.py's real ranks: an ordinary script with tensor, data and pipeline groups, object
collectives and DDP. Its argument chooses the part to run; rank r of w prints the outcome.
"""
import os
import resource
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import spillway.torch

TENSOR, STAGES = 2, 2  # rank = tensor + 2 (data + D stage)


def make_groups(rank, world):
    """Every rank makes every group, as all frameworks do; returns this one's tensor, data and pipeline groups."""
    data, own = world // (TENSOR * STAGES), {}
    divisions = {
        "tensor": [[TENSOR * at + each for each in range(TENSOR)] for at in range(world // TENSOR)],
        "data": [[tensor + TENSOR * (each + data * stage) for each in range(data)]
                 for stage in range(STAGES) for tensor in range(TENSOR)],
        "pipeline": [[first + TENSOR * data * stage for stage in range(STAGES)] for first in range(TENSOR * data)]}
    for name, groups in divisions.items():
        for ranks in groups:
            group = dist.new_group(ranks)
            if rank in ranks:
                own[name] = (group, ranks)
    return own


def check_values(rank, world, real):
    count, mean = len(real), sum(real) / len(real)
    total = torch.full((1000,), float(rank))
    dist.all_reduce(total)
    assert torch.allclose(total, torch.full((1000,), mean * world)), total[:3]
    whole = torch.tensor([rank])
    dist.all_reduce(whole)
    assert whole.tolist() == [sum(real) * world // count]
    highest = torch.tensor([rank])
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    assert highest.tolist() == [max(real)]
    parts = [torch.empty(2, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(parts, torch.tensor([rank, -rank]))
    assert all(parts[each].tolist() == [each, -each] if each in real else parts[each].tolist() == [real[0], -real[0]]
               for each in range(world))
    for root in (0, real[-1]):  # 0 is virtual
        sent = torch.full((5,), float(rank))
        dist.broadcast(sent, src=root)
        assert sent.tolist() == [float(root if root in real else real[0])] * 5, sent
    share = torch.empty(3)
    dist.reduce_scatter(share, [torch.full((3,), float(10 * rank + each)) for each in range(world)])
    assert torch.allclose(share, torch.full((3,), world * (10 * mean + rank))), share
    dist.barrier()


def check_objects(rank, world, real):
    everybody = [None] * world
    dist.all_gather_object(everybody, {"rank": rank, "text": "x" * rank})
    assert [everybody[each]["rank"] for each in real] == real
    assert all(said is not None for said in everybody)
    carried = [f"from {rank}"]
    dist.broadcast_object_list(carried, src=0)
    assert carried == [f"from {real[0]}"], carried


def check_groups(rank, world, real):
    own = make_groups(rank, world)
    for name, (group, ranks) in own.items():
        values = torch.full((64,), 1.0)
        dist.all_reduce(values, group=group)
        assert values[0] == len(ranks), (name, values[0])
        dist.barrier(group=group)
    group, ranks = own["data"]
    outputs = torch.empty(4 * len(ranks))
    dist.all_to_all_single(outputs, torch.arange(4.0 * len(ranks)), group=group)
    neighbour = own["pipeline"][1][1 if rank == own["pipeline"][1][0] else 0]
    if rank < neighbour:
        dist.send(torch.ones(100), dst=neighbour)
    got = torch.full((100,), 5.0)
    dist.recv(got, src=neighbour) if rank > neighbour else dist.irecv(got, src=neighbour, tag=3).wait()
    assert got.sum() == 0, "a virtual rank sends zeros"


def train():
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
    weights = [parameter.detach().sum() for parameter in model.parameters()]
    return float(torch.stack(weights).sum())


def time_of(call):
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def step_over_computing():
    """A step's time as a multiple of this rank's own computing time in it."""
    begin = time.monotonic()
    time.sleep(0.03)  # stands for computing
    computing = time.monotonic() - begin
    return (computing + time_of(dist.barrier)) / computing


def main():
    what = sys.argv[1]
    dist.init_process_group("spillway")
    rank, world = dist.get_rank(), dist.get_world_size()
    real = [int(each) for each in os.environ["STAGED_REAL"].split(",")]
    if what == "all":
        check_values(rank, world, real)
        check_objects(rank, world, real)
        check_groups(rank, world, real)
        took = min(time_of(lambda: dist.all_reduce(torch.zeros(1_000_000))) for _ in range(3))
        print(f"rank {rank} of {world}: fine, weights {train():.5f}, all-reduce {1000 * took:.1f} ms", flush=True)
    elif what == "read":
        flag = torch.tensor([1.0])
        dist.all_reduce(flag)
        way = "one way" if flag.item() > 3 else "the other"
        print(f"rank {rank} goes {way}", flush=True)
    elif what == "differ":
        dist.all_reduce(torch.zeros(10 if rank == real[0] else 20))
    elif what == "die":
        if rank != real[0]:
            os._exit(3)
        dist.barrier()
    elif what == "slow":
        ratios = [step_over_computing() for _ in range(12)]
        print(f"rank {rank} took at least {min(ratios[4:]):.2f} times what it computed", flush=True)
    elif what == "memory":
        print(f"rank {rank} has {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} KiB", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
