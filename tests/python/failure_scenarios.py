# SPDX-License-Identifier: Apache-2.0
"""The ranks of failure_test.py, until an error is raised."""
import datetime
import os
import signal

import torch
import torch.distributed as dist

import spillway.torch

VICTIM = 1
FAIL_AT = 3  # steps


def die_if_it_is_time(step):
    if dist.get_rank() == VICTIM and step == FAIL_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def all_reduces():
    for step in range(1000):
        die_if_it_is_time(step)
        dist.all_reduce(torch.ones(1000))


def futures():
    for step in range(1000):
        die_if_it_is_time(step)
        dist.all_reduce(torch.ones(1000), async_op=True).get_future().wait()


def train(attach):
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(50, 50))
    if attach:
        spillway.torch.attach(model)
    for step in range(1000):
        loss = model(torch.ones(4, 50)).sum()
        die_if_it_is_time(step)
        loss.backward()


def backward():
    train(attach=False)


def backward_with_hook():
    train(attach=True)


def sizes_that_differ():
    dist.all_reduce(torch.ones(1000 + dist.get_rank()))


def operations_that_differ():
    if dist.get_rank() == VICTIM:
        dist.barrier()
    else:
        dist.all_reduce(torch.ones(10))


def reductions_that_differ():
    op = dist.ReduceOp.BXOR if dist.get_rank() == VICTIM else dist.ReduceOp.PRODUCT
    dist.all_reduce(torch.ones(10, dtype=torch.uint8), op=op)


def roots_that_differ():
    """Rank 2 has everything from its root, perhaps before another rank notices: the barrier reports it then."""
    dist.broadcast(torch.ones(10), 1 if dist.get_rank() == VICTIM else 0)
    dist.barrier()


def types_that_differ():
    """A send and a receive that does not match."""
    if dist.get_rank() == VICTIM:
        dist.send(torch.ones(10, dtype=torch.int8), 0, tag=3)
    elif dist.get_rank() == 0:
        dist.recv(torch.ones(10, dtype=torch.uint8), tag=3)
    else:
        dist.barrier()


def a_monitored_barrier_that_some_miss(timeout_s):
    """Ranks that miss the barrier wait for something else."""
    if dist.get_rank() == 0:
        spillway.torch.monitored_barrier(timeout=datetime.timedelta(seconds=timeout_s))
    dist.recv(torch.zeros(1), 0)


def a_barrier_that_some_miss(timeout_s):
    if dist.get_rank() == 0:
        options = dist.BarrierOptions()
        options.timeout = datetime.timedelta(seconds=timeout_s)
        dist.group.WORLD.barrier(options).wait()
    dist.recv(torch.zeros(1), 0)


def codecs_that_differ():
    """A group uses the codec that is set when it is made."""
    os.environ["SPILLWAY_CODEC"] = "planes" if dist.get_rank() == VICTIM else "exact"
    group = dist.new_group()
    dist.barrier()  # rank 0 hosts the store that the others may still need for theirs
    dist.all_reduce(torch.ones(100_000), group=group)


def a_codec_that_there_is_not():
    os.environ["SPILLWAY_CODEC"] = "sloppy"
    dist.new_group()


def a_sub_group():
    pair = dist.new_group([VICTIM, 2])
    dist.barrier()
    if dist.get_rank() != 0:
        for step in range(1000):
            die_if_it_is_time(step)
            dist.all_reduce(torch.ones(1000), group=pair)


def run(say, scenario, *arguments):
    """Says the raised error."""
    dist.init_process_group("spillway")
    dist.barrier()  # all have met, so no rank still needs rank 0's store when it leaves
    try:
        globals()[scenario](*arguments)
        say({"type": None})
    except Exception as error:
        status = getattr(error, "status", None)
        say({"type": type(error).__name__, "status": status and int(status), "message": str(error)})
