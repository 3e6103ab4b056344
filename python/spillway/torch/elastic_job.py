# SPDX-License-Identifier: Apache-2.0
"""Elastic, fault-tolerant training: the job outlives its processes.

    job = spillway.torch.elastic(model, optimizer, standbys=1)
    for step in job.steps(total):            # an interrupted step is repeated; otherwise an ordinary loop
        ...

When a rank is lost or must leave, all others end their step at once, with whatever their tensors contain. That step's
results are thrown away, and optimizers do nothing until it is repeated. A standby receives the state at the step's
beginning from the ranks that have it, and takes the place. DDP, its hook and torch.distributed's default group
continue with the new members; rank and size change accordingly.

Invariants: at the beginning of a step that steps() yields, all ranks have the same state, except for what is private
to each. Either all ranks take an optimizer's step, or all repeat it. In exact jobs, with `seed`, a run with changes
ends with the same bits as one without.

If ranks have different parts of a model (`replicas`), they take an optimizer's step together: a rank enters it when
all have their gradients. A rank that is interrupted there can still take the step if others have (UntakenSteps).

Limits: every step ends with an optimizer's step. Other effects of a step (logging, files) are repeated; `job.is_lost`
says whether they will be. Object collectives, and groups outside of a partition, do not survive a change.

Threads: the one that trains.
"""
import random
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from ..communicator import Communicator
from ..errors import SpillwayError, Status
from ..job import Change, Job
from .codecs import Exact
from .ddp_hook import attach, hook_of
from .elastic_state import Snapshot, TrainingState, receive_state, send_state, who_has_it
from .operation import Member, Operation, waiters
from .overlapped_optimizer import OverlappedOptimizer
from .partition import Partition
from .process_group import collectives_of, follow_members

SEED_BITS = 63
END_LIMIT_S = 10.0  # for all members to learn that the job ends
MAX_TRIES = 3  # of a step that fails although no rank is gone
# These end a communicator, not the job.
BROKEN = (Status.PEER_FAILED, Status.ABORTED, Status.TIMED_OUT, Status.MISMATCH)


def ranks_named(ranks: Sequence[int]) -> str:
    names = [str(rank) for rank in ranks]
    return f"rank {names[0]}" if len(names) == 1 else f"ranks {', '.join(names[:-1])} and {names[-1]}"


class JobEnded(RuntimeError):
    """The job cannot continue; the message says why. Checkpoints are untouched."""


def elastic(model: torch.nn.Module, optimizer: Any, state: Any = None, *, standbys: int = 0, shrink: bool = False,
            min_ranks: int = 1, groups: Sequence[Partition] = (), replicas: Optional[Partition] = None,
            seed: Optional[int] = 0, park_limit: float = 300.0, straggler: float = 2.0,
            replace_stragglers: bool = False, on_change: Optional[Callable[[Change], None]] = None) -> "ElasticJob":
    """Makes the default group's processes a job whose members may change. All of them call it, with the same
    arguments, after init_process_group("spillway") and DistributedDataParallel. A process with SPILLWAY_JOB set joins
    the job of that ticket instead, and becomes a standby.

    optimizer           one, or a list of them
    state               other state of a step, with state_dict() and load_state_dict(): schedulers, samplers, scalers;
                        one, or a list. It is copied at every step: keep it small
    standbys            number of processes, the last ones, that train only when they replace a rank
    shrink              without a standby, continue without the lost ranks as long as `min_ranks` are left; gradients
                        are then averages over the remaining ranks
    groups              partitions (partition.py) whose groups survive changes; the job then has as many ranks as they
                        name, and neither shrinks nor grows
    replicas            the partition whose groups' members share their state, if not all ranks do
    seed                random numbers of a step follow from it, the step and the rank. None: they are left alone, and
                        differ when a step is repeated
    park_limit          seconds that a rank may take to end its step when another is gone
    straggler           a rank is reported as a straggler from this multiple of the ranks' median own time per step;
                        with replace_stragglers it is also moved
    on_change           called at every rank after every change
    """
    group = dist.distributed_c10d._get_default_group()
    own = collectives_of(group)
    if own is None:
        raise TypeError('elastic() needs the backend "spillway": init_process_group("spillway")')
    if not isinstance(own.communicator, Communicator):
        raise TypeError("elastic() has no place in a staged world: virtual ranks neither die nor join")
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    if any(isinstance(each, OverlappedOptimizer) for each in optimizers):
        raise TypeError("elastic() repeats a step that is interrupted, and with overlap() a step's updates run in the "
                        "next: use DistributedDataParallel")
    hook = hook_of(model)
    if hook is None and isinstance(model, torch.nn.parallel.DistributedDataParallel):
        hook = attach(model, Exact())
    members = [own.member, *(each.member for each in groups)]
    if hook is not None and (hook.member not in members or hook.is_auto):
        raise ValueError('elastic() needs a hook over the default group or one of `groups`, whose codec is not Auto()')
    check_groups(groups, replicas, shrink)
    fields = {"may_shrink": int(shrink), "min_ranks": min_ranks, "may_grow": int(not groups),
              "channels": len(members), "park_limit_ms": int(park_limit * 1000),
              "straggler_percent": int(straggler * 100), "replace_stragglers": int(replace_stragglers)}
    ticket = own.communicator.library.variable_if_set("SPILLWAY_JOB")
    job = (Job.join(ticket, **fields) if ticket is not None
           else Job.found(own.communicator, standbys=standbys, **fields))
    follow_members(group)
    extra = list(state) if isinstance(state, (list, tuple)) else [] if state is None else [state]
    return ElasticJob(job, own.member, model, optimizers, extra + ([] if hook is None else [hook]), list(groups),
                      replicas, seed, on_change)


def check_groups(groups: Sequence[Partition], replicas: Optional[Partition], shrink: bool) -> None:
    if replicas is not None and replicas not in groups:
        raise ValueError("`replicas` must be one of `groups`")
    if groups and shrink:
        raise ValueError("a job with groups cannot shrink: they would miss a rank")
    if len({each.world for each in groups}) > 1:
        raise ValueError(f"all groups must be of the same ranks, not of {sorted({each.world for each in groups})}")


class UntakenSteps:
    """Optimizer steps that had all inputs when this rank was interrupted. Only the next change says whether other
    ranks have taken theirs, and so whether the step is done."""

    def __init__(self) -> None:
        self._steps: List[Tuple[Callable[[], Any], List[Tuple[torch.Tensor, torch.Tensor]]]] = []
        self.snapshot: Optional[Snapshot] = None

    def add(self, optimizer: Any, take: Callable[[], Any]) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._steps.append((take, [(each, each.grad.clone()) for each in parameters if each.grad is not None]))

    def take(self) -> None:
        for take, gradients in self._steps:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            take()

    def drop(self) -> None:
        if self.snapshot is not None:
            self.snapshot.restore()


class ElasticJob:
    """Made by elastic(). `changes`: one entry per change, with the wall-clock seconds at which this process was told
    of it, stood still, learned the decision, was connected, had the state and had done a step."""

    def __init__(self, job: Job, member: Member, model: torch.nn.Module, optimizers: List[Any], extra: List[Any],
                 groups: List[Partition], replicas: Optional[Partition], seed: Optional[int],
                 on_change: Optional[Callable[[Change], None]]) -> None:
        self._job, self._model, self._seed, self._on_change = job, model, seed, on_change
        self._groups, self._replicas = groups, replicas
        self._state = TrainingState(model, optimizers, extra)
        self._state.check()  # fail now on a part that cannot be sent, not when a rank has died
        self._member = member
        self._members = [member, *(each.member for each in groups)]
        for member in self._members:
            member.forgives, member.is_step_lost = self._forgives, lambda: self.is_lost
        self._is_lost = self._has_stepped = self._has_rebuilt = self._has_agreed = False
        self._untaken: Optional[UntakenSteps] = None
        self._is_shadow = False
        self._tries, self._trouble = 0, ""
        self.changes: List[Dict[str, Any]] = []
        self._step = 0
        self._has_state = True
        for optimizer in optimizers:
            self._guard(optimizer)
        self._change = job.first_change()
        if groups and self._change is not None and self._change.world != groups[0].world:
            raise ValueError(f"the job has {self._change.world} ranks beside its standbys, and its groups name "
                             f"{groups[0].world}")
        self._close_communicators()
        if self.rank is not None:
            self._connect()
        else:
            self._has_state = False
            self._be_alone(True)

    # ---- For scripts ----

    @property
    def rank(self) -> Optional[int]:
        """None for a standby."""
        return None if self._change is None else self._change.rank

    @property
    def world(self) -> int:
        return 0 if self._change is None else self._change.world

    @property
    def epoch(self) -> int:
        return 0 if self._change is None else self._change.epoch

    @property
    def is_lost(self) -> bool:
        """True if this step's results are thrown away, because it is repeated or is a standby's rehearsal."""
        return self._is_lost or self._is_shadow

    @property
    def ticket(self) -> str:
        """For `spillway job`, and for SPILLWAY_JOB of standbys that come later."""
        return self._job.ticket

    def status(self) -> Dict[str, Any]:
        return self._job.status()

    def shard(self, indices: Sequence[int], over: Optional[Partition] = None) -> Sequence[int]:
        """This rank's part of `indices`, divided among the present ranks or, with `over`, among those of its group
        there."""
        rank, ranks = self.rank or 0, list(range(max(1, self.world))) if over is None else over.part_of(self.rank or 0)
        return indices[ranks.index(rank)::len(ranks)]

    def steps(self, total: int, start: int = 0) -> Iterator[int]:
        """The step numbers from `start` to total - 1; fewer if the job is asked to end (`spillway job end`)."""
        self._step = start
        try:
            if not self._has_state:
                yield from self._rehearse()
                self._go_over()
            while self._step < total or not self._end_together():
                began, waited_s = time.monotonic(), self._waited_s()
                snapshot = self._state.snapshot()
                self._is_lost = self._has_stepped = self._has_agreed = False
                self._draw_anew()
                yield self._step
                self._end_step(snapshot)
                waited_s = self._waited_s() - waited_s
                if self._job.step(self._step, max(0.0, time.monotonic() - began - waited_s)) or self._is_lost:
                    self._go_over()
        except Done:
            pass
        self._job.close()

    # ---- A step ----

    def _forgives(self, error: Exception) -> bool:
        """Forgives a failed operation if members change: the step is repeated, nothing more."""
        if not isinstance(error, SpillwayError) or error.status not in BROKEN:
            return False
        self._is_lost, self._trouble = True, str(error)
        return True

    def _guard(self, optimizer: Any) -> None:
        """Makes the optimizer's step do nothing in a lost step, and records the steps it takes."""
        take = optimizer.step

        def step(*arguments: Any, **keywords: Any) -> Any:
            self._agree()
            if self._untaken is not None:
                self._untaken.add(optimizer, lambda: take(*arguments, **keywords))
            if self._is_lost and not self._has_stepped:
                return None
            result = take(*arguments, **keywords)
            self._has_stepped = True
            return result

        optimizer.step = step

    def _agree(self) -> None:
        """Agrees with all ranks that each has its gradients."""
        if self._replicas is None or self.is_lost or self._has_agreed:
            return
        self._has_agreed = True
        Operation("barrier", None, None).start(self._member).wait()
        if self._is_lost:
            self._untaken = UntakenSteps()

    def _waited_s(self) -> float:
        return sum(member.waited_s for member in self._members)

    def _draw_anew(self) -> None:
        if self._seed is not None:
            torch.manual_seed(random.Random(f"{self._seed}/{self._step}/{self.rank}").getrandbits(SEED_BITS))

    def _rebuild_buckets(self) -> None:
        """Rebuilds DDP's buckets alone. DDP does it after its first step and broadcasts the result, which a rank that
        comes later would miss."""
        reducer = getattr(self._model, "reducer", None)
        if self._has_rebuilt or reducer is None:
            return
        self._has_rebuilt = True
        before = self._member.is_alone
        self._be_alone(True)
        reducer._rebuild_buckets()
        self._be_alone(before)

    def _end_step(self, snapshot: Snapshot) -> None:
        self._rebuild_buckets()
        if self._has_stepped or not self._is_lost:
            self._step, self._tries = self._step + 1, 0
        else:
            self._tries += 1
            if self._untaken is not None:
                self._untaken.snapshot = snapshot
            else:
                snapshot.restore()
        if self.changes and "stepped" not in self.changes[-1] and not self._is_lost:
            self.changes[-1]["stepped"] = time.time()

    def _end_together(self) -> bool:
        """A finished rank stays until all are finished: others may need its state. False: a change interrupted it."""
        if self._job.finish():
            return True
        self._go_over()
        return False

    # ---- A change ----

    def _go_over(self) -> None:
        """Runs changes until all ranks continue, or none. A standby waits here for its turn."""
        if self._tries > MAX_TRIES:
            raise JobEnded(f"step {self._step} failed {self._tries} times although nobody is gone: {self._trouble}")
        while True:
            change = self._park()
            self._settle_untaken(change)
            if change.rank is None:
                self._has_state = False
                self._be_alone(True)
            elif self._move_to(change):
                return

    def _settle_untaken(self, change: Change) -> None:
        untaken, self._untaken = self._untaken, None
        if untaken is None:
            return
        if change.step == self._step + 1:
            untaken.take()
            self._step, self._tries = self._step + 1, 0
        else:
            untaken.drop()

    def _park(self) -> Change:
        self._close_communicators()
        change = self._job.park(self._step, has_state=self._has_state, is_warm=self._has_rebuilt)
        assert change is not None
        if change.is_done:
            raise Done
        if change.ends:
            self._job.close()
            raise JobEnded(change.why)
        self._change = change
        self.changes.append({"epoch": change.epoch, "why": change.why, "interrupted": change.interrupted_ns / 1e9,
                             "parked": change.parked_ns / 1e9, "decided": change.decided_ns / 1e9})
        return change

    def _move_to(self, change: Change) -> bool:
        """False: another rank was lost meanwhile."""
        self._connect()
        self.changes[-1]["connected"] = time.time()
        try:
            self._take_state(change)
        except SpillwayError as error:
            if error.status not in BROKEN:
                raise
            return False
        self._has_state, self._step, self._is_lost = True, change.step, False
        self.changes[-1]["state"] = time.time()
        if self._on_change is not None:
            self._on_change(change)
        return True

    def _close_communicators(self) -> None:
        """Closes them in the background: they answer other ranks for a moment."""
        for member in self._members:
            waiters.run(member.communicator.close)

    def _be_alone(self, is_alone: bool) -> None:
        for member in self._members:
            member.is_alone = is_alone

    def _connect(self) -> None:
        assert self.rank is not None
        self._member.move_to(self._job.communicator())
        for channel, each in enumerate(self._groups, 1):
            each.follow(self._job.communicator(channel, each.part_of(self.rank)), self.rank)
        self._be_alone(False)

    def _take_state(self, change: Change) -> None:
        communicator, have_it, peers = self._member.communicator, list(change.sources), list(range(change.world))
        assert change.rank is not None
        if self._replicas is not None:
            have_it = who_has_it(communicator, self._has_state and self._step == change.step)
            peers = self._replicas.part_of(change.rank)
            self._end_unless_whole(have_it)
        sources = [rank for rank in peers if rank in have_it]
        receivers = [rank for rank in peers if rank not in have_it]
        if change.rank in receivers:
            self._has_state = False
            self.changes[-1]["bytes"] = receive_state(communicator, self._state, sources)
        elif receivers:
            send_state(communicator, self._state, sources.index(change.rank), len(sources), receivers)

    def _end_unless_whole(self, have_it: Sequence[int]) -> None:
        """Ends the job if a part of the state is lost. All ranks know the same and end alike; standbys are told."""
        assert self._replicas is not None
        lost = [part for part in self._replicas.parts if not set(part) & set(have_it)]
        if not lost:
            return
        why = f"nobody has the state of {ranks_named(lost[0])} any more: all who had it are gone"
        if self.rank == 0:
            threading.Thread(target=self._ask_to_end, args=(why,), daemon=True).start()
        self._job.park(self._step, has_state=self._has_state, timeout_s=END_LIMIT_S)
        self._job.close()
        raise JobEnded(why)

    def _ask_to_end(self, why: str) -> None:
        try:
            self._job.ask(f"end {why}", END_LIMIT_S)
        except SpillwayError:
            pass  # the job ends all the same

    # ---- A standby ----

    def _rehearse(self) -> Iterator[int]:
        """One step alone, so that one-time costs of the process are paid."""
        self._is_shadow = True
        yield self._step
        self._rebuild_buckets()
        self._is_shadow = self._is_lost = self._has_stepped = False


class Done(Exception):
    """All ranks have done all steps, or the job was asked to end."""
