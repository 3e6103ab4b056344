# SPDX-License-Identifier: Apache-2.0
"""What processes of elastic_test.py do: train a small model with DDP as an elastic job, and die where they are told to."""
import hashlib
import os
import signal
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SAMPLES, FEATURES, CLASSES = 16, 20, 5


class Counter:
    """State of a script: how many steps have been done."""

    def __init__(self):
        self.steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def build(codec):
    import spillway.torch
    torch.set_num_threads(1)
    dist.init_process_group("spillway")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(),
                                torch.nn.Dropout(0.2), torch.nn.Linear(300, CLASSES))
    ddp = DistributedDataParallel(model, broadcast_buffers=False)
    if codec is not None:
        spillway.torch.attach(ddp, **codec)
    return model, ddp, torch.optim.Adam(ddp.parameters(), lr=0.01)


def sample(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return (torch.randn(SAMPLES, FEATURES, generator=generator),
            torch.randint(0, CLASSES, (SAMPLES,), generator=generator))


def digest(tensors):
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()


def train(say, steps, deaths=(), arguments=None, codec=None, move=None):
    """`deaths`: (step, rank, epoch) at which the process of that rank kills itself, in the middle of the step. `move`:
    (step, question), asked by rank 0. Says what became of it."""
    import spillway.torch
    said = {"tries": {}}
    try:
        model, ddp, optimizer = build(codec)
        counter = Counter()
        job = spillway.torch.elastic(ddp, optimizer, counter, **(arguments or {}))
        said["was_standby"] = job.rank is None
        for step in job.steps(steps):
            said["tries"][step] = said["tries"].get(step, 0) + 1
            run_step(job, ddp, optimizer, step, deaths, move)
            counter.steps += 1
        said.update(rank=job.rank, world=job.world, epoch=job.epoch, parameters=digest(model.parameters()),
                    tracked=int(model[1].num_batches_tracked), steps=counter.steps, sizes=[dist.get_rank(), dist.get_world_size()],
                    changes=[sorted(change) for change in job.changes], why=[change["why"] for change in job.changes])
    except BaseException as error:
        said.update(type=type(error).__name__, message=str(error))
    say(said)


def run_step(job, ddp, optimizer, step, deaths, move):
    inputs, targets = sample(step, job.rank or 0)
    if move is not None and step == move[0] and job.rank == 0 and job.epoch == 1:
        threading.Thread(target=job._job.ask, args=(move[1],), daemon=True).start()
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(ddp(inputs), targets)
    if (step, job.rank, job.epoch) in [tuple(death) for death in deaths]:
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    optimizer.step()


def join(say, ticket, steps):
    """As a process that comes later."""
    os.environ.update({"SPILLWAY_JOB": ticket, "RANK": "0", "WORLD_SIZE": "1"})
    train(say, steps)
