# SPDX-License-Identifier: Apache-2.0
"""The buckets of an overlapped backward pass on their way: how they travel, what belongs to each, and what is reported.

A Transfer begins when its bucket is complete, and ends when its sum is back in the parameters (overlapped_model.py).

Threads: the owner's.
"""
import dataclasses
from typing import Any, List, Optional, Tuple

import torch
from torch import nn

from .backward import LayerPolicy
from .layer_buckets import Bucket
from .overlapped_optimizer import Options
from .process_group import collectives_of

# ---- How gradients travel ----

class WorkRun:
    """Like a BucketRun, of any process group."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self) -> None:
        self._work.wait()

    def is_done(self) -> bool:
        return bool(self._work.is_completed())

    def seconds(self) -> Optional[float]:
        """From the call to the end; None where only Spillway would know."""
        operation = getattr(self._work, "operation", None)
        return None if operation is None else operation.request.seconds()


class GroupSums:
    """Sums by the group itself, like DDP's. Like a DdpHook otherwise."""

    def __init__(self, group: Any, layers: LayerPolicy) -> None:
        self._group, self._own, self._layers, self._buckets = group, collectives_of(group), layers, 0

    def begin_step(self) -> None:
        """Nothing to prepare."""

    def end_step(self) -> None:
        """Nothing is left over."""

    def start(self, bucket: Bucket) -> WorkRun:
        self._buckets = max(self._buckets, bucket.index() + 1)
        if self._own is not None:
            return WorkRun(self._own.sum_at((bucket.index(), self._buckets), self._layers, bucket.buffer()))
        return WorkRun(self._group.allreduce([bucket.buffer()]))


# ---- Reports ----

@dataclasses.dataclass(frozen=True)
class BucketReport:
    """Seconds count from the first gradient of the pass."""
    parameters: Tuple[str, ...]
    bytes: int
    left: float           # when the bucket was complete
    came: float           # when its sum was there; with other backends than Spillway, when somebody noticed
    waited: float         # how long a thread was blocked
    waited_by: str        # the layer, or whatever else needed it first


@dataclasses.dataclass(frozen=True)
class OverlapReport:
    step: int                           # backward passes with communication, counted from 0
    buckets: Tuple[BucketReport, ...]   # in the order in which they left

    @property
    def waited(self) -> float:
        return sum(bucket.waited for bucket in self.buckets)

    def table(self) -> str:
        rows = [f"{'left':>9} {'came':>9} {'waited':>9}  ms; bytes, first parameter, who waited"]
        rows += [f"{1e3 * each.left:9.2f} {1e3 * each.came:9.2f} {1e3 * each.waited:9.2f}  {each.bytes:>10} "
                 f"{each.parameters[0]}, {each.waited_by}" for each in self.buckets]
        return "\n".join(rows)


# ---- State of a pass ----

class Slot:
    """A parameter's gradient. `clearing`: what zero_grad() asked for while the update is due: None: nothing; True:
    remove it; False: fill it with zeros."""

    def __init__(self, name: str, place: int, parameter: nn.Parameter) -> None:
        self.name, self.place, self.parameter = name, place, parameter
        self.transfer: Optional["Transfer"] = None
        self.view: Optional[torch.Tensor] = None
        self.has_gradient = False  # since the last sum
        self.is_filled = False
        self.clearing: Optional[bool] = None

    def clear(self) -> None:
        if self.clearing is not None:
            clear_gradient(self.parameter, self.clearing)
            self.clearing = None


def clear_gradient(parameter: nn.Parameter, set_to_none: bool) -> None:
    if parameter.grad is None:
        return
    if set_to_none:
        parameter.grad = None
    else:
        parameter.grad = parameter.grad.detach()
        parameter.grad.zero_()


class Transfer:
    """A bucket on its way. `run`: its all-reduce, until its sum is back in the parameters. `update`: the options of the
    step that is due then."""

    def __init__(self, bucket: Bucket, slots: List[Slot]) -> None:
        self.bucket, self.slots = bucket, slots
        for slot, view in zip(slots, bucket.views):
            slot.transfer, slot.view = self, view
        self.run: Any = None
        self.update: Optional[Options] = None
        self.missing = len(slots)
        self.left = self.came = self.waited = 0.0
        self.waited_by = ""

    def report(self, began: float) -> BucketReport:
        buffer = self.bucket.buffer()
        return BucketReport(tuple(slot.name for slot in self.slots), buffer.numel() * buffer.element_size(),
                            self.left - began, self.came - began, self.waited, self.waited_by)
