# SPDX-License-Identifier: Apache-2.0
"""The processes of elastic_test.py: they train a small model with DDP as an elastic job, and die where they are told
to."""
import hashlib
import json
import os
import signal
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import spillway.torch
from harness.patience import patience, wait_until
from spillway.errors import SpillwayError, Status
from spillway.torch import elastic_state
from spillway.torch.operation import Operation

SAMPLES, FEATURES, CLASSES = 16, 20, 5


class Counter:
    """A script's state: the number of steps done."""

    def __init__(self):
        self.steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def build(codec):
    torch.set_num_threads(1)
    dist.init_process_group("spillway")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(),
                                torch.nn.Dropout(0.2), torch.nn.Linear(300, CLASSES))
    ddp = DistributedDataParallel(model, broadcast_buffers=False)
    if codec is not None:
        spillway.torch.attach(ddp, spillway.torch.Planes(**codec))
    return model, ddp, torch.optim.Adam(ddp.parameters(), lr=0.01)


def sample(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return (torch.randn(SAMPLES, FEATURES, generator=generator),
            torch.randint(0, CLASSES, (SAMPLES,), generator=generator))


def digest(tensors):
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()


def train(say, steps, deaths=(), arguments=None, codec=None, move=None):
    """`deaths`: (step, rank, epoch) at which the process of that rank kills itself, in the middle of the step.
    `move`: (step, question), asked by rank 0. Says the outcome."""
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


def ask_and_hold(job, question):
    """Returns once the change is under way. The others cannot end this step without this rank, so the change comes
    before the last step, however late the asking thread gets a processor."""
    limit_s = patience()
    threading.Thread(target=job.ask, args=(question, limit_s), daemon=True).start()
    wait_until(lambda: json.loads(job.ask("status", limit_s))["waits_for"], "the change that was asked for")


def run_step(job, ddp, optimizer, step, deaths, move):
    inputs, targets = sample(step, job.rank or 0)
    if move is not None and step == move[0] and job.rank == 0 and job.epoch == 1:
        ask_and_hold(job._job, move[1])
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(ddp(inputs), targets)
    if (step, job.rank, job.epoch) in [tuple(death) for death in deaths]:
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    optimizer.step()


def join(say, ticket, steps, forged):
    """Trains as a process that joins later and that, as a source, describes its state as `forged`."""
    os.environ.update({"SPILLWAY_JOB": ticket, "RANK": "0", "WORLD_SIZE": "1"})
    elastic_state.describe = lambda flat: forged
    train(say, steps)


# ---- Ranks with different parts of a model ----

TENSOR, DATA = [[0, 1], [2, 3]], [[0, 2], [1, 3]]


class SumOver(torch.autograd.Function):
    """Sum over a group's ranks; its gradient is the same at all of them."""

    @staticmethod
    def forward(context, values, group):
        total = values.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(context, gradient):
        return gradient, None


class Half(torch.nn.Module):
    """This rank's hidden units of a perceptron; the other rank of its pair has the other half."""

    def __init__(self, seed, tensor):
        super().__init__()
        torch.manual_seed(seed)
        self.tensor = tensor
        self.inner, self.outer = torch.nn.Linear(FEATURES, 150), torch.nn.Linear(150, CLASSES)

    def forward(self, inputs):
        return SumOver.apply(self.outer(torch.relu(self.inner(inputs))), self.tensor.group)


def fail_after(operation_type, at_step, job):
    """At this rank alone, the last message of this step's agreement does not arrive."""
    wait = operation_type.wait

    def wait_and_fail(operation, timeout_s=None):
        wait(operation, timeout_s)
        if operation._name == "barrier" and job._step == at_step and job.epoch == 1:
            job._member.forgives(SpillwayError(Status.PEER_FAILED, "a last word was lost"))

    operation_type.wait = wait_and_fail


def train_in_parts(say, steps, deaths, standbys, deaf=None):
    """Two by two ranks. `deaf`: (rank, step) of a rank that does not learn whether others have agreed."""
    said = {}
    try:
        torch.set_num_threads(1)
        dist.init_process_group("spillway")
        tensor, data = spillway.torch.partition(TENSOR), spillway.torch.partition(DATA)
        model = Half(10 + dist.get_rank() % 2, tensor)
        ddp = DistributedDataParallel(model, process_group=data.group)
        optimizer = torch.optim.Adam(ddp.parameters(), lr=0.01)
        counter = Counter()
        job = spillway.torch.elastic(ddp, optimizer, counter, standbys=standbys, groups=[tensor, data], replicas=data)
        if deaf is not None and job.rank == deaf[0]:
            fail_after(Operation, deaf[1], job)
        for step in job.steps(steps):
            inputs, targets = sample(step, job.shard([0, 1], data)[0])
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(ddp(inputs), targets)
            if (step, job.rank, job.epoch) in [tuple(death) for death in deaths]:
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
            optimizer.step()
            counter.steps += 1
        said.update(rank=job.rank, epoch=job.epoch, parameters=digest(model.parameters()), steps=counter.steps,
                    why=[change["why"] for change in job.changes], bytes=[change.get("bytes", 0) for change in job.changes])
        if job.rank is not None:
            said.update(places=[dist.get_rank(tensor.group), dist.get_rank(data.group),
                                dist.get_world_size(tensor.group), dist.get_world_size(data.group)])
    except BaseException as error:
        said.update(type=type(error).__name__, message=str(error))
    say(said)


def refusals(say):
    dist.init_process_group("spillway")
    pairs, other = spillway.torch.partition([[0, 1]]), spillway.torch.partition([[0], [1]])
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attempts = [lambda: spillway.torch.partition([[0, 2]]), lambda: spillway.torch.partition([[0, 1], [2, 3]]),
                lambda: spillway.torch.elastic(model, optimizer, groups=[pairs], shrink=True),
                lambda: spillway.torch.elastic(model, optimizer, groups=[pairs], replicas=other)]
    said = []
    for attempt in attempts:
        try:
            attempt()
            said.append("")
        except (TypeError, ValueError) as error:
            said.append(str(error))
    dist.barrier()  # rank 0 hosts torch's store, in which the others may still count
    say(said)
