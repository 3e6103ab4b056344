# SPDX-License-Identifier: Apache-2.0
"""Fewer bits for models that FSDP2 has sharded with fully_shard().

    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    hook = spillway.torch.shard(model, Planes(bits=5))       # gradients
    ...
    print(hook.report())                                     # of the last backward pass

FSDP2 lets each of its modules have its own reduce-scatter and all-gather. A Scatter sends the module's gradients by a
tolerant reduce-scatter, with error feedback under the name of the module's parameters. A Gather sends the weights:
exactly, or with a codec. With `replicas` a module's shard is then averaged over the ranks with the same shard (HSDP).

Two waits are avoided. FSDP2 waits for the Work of an all-gather when the module needs its weights, so a Gather always
returns one. And the optimizer, not FSDP2, is the first to read a sum, unless the gradient is cast, added to another, or
read by a hook: then a Scatter waits for the end of the backward pass instead of its own (Shard.is_read_later()).

Invariants: all ranks call the same operations in the same order. At most MOST_UNDER_WAY sums of a hook are under way,
which bounds the memory for gradients that FSDP2 would have freed. Errors come out of backward().

Threads: those of a backward pass, one at a time; any thread may read reports.
"""
import hashlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.distributed import ReduceOp

from .. import abi
from ..request import OperationReport, PartSeconds
from .backward import MAX_LEVEL, before_backward_ends
from .codecs import Codec, Exact, Planes
from .ddp_hook import EndedStep, StepReport, hook_number
from .operation import Member, Operation, SpillwayWork
from .process_group import collectives_of
from .rendezvous import join_through_group
from .tensors import FLOATING, HostSpan, reduction_of, span_of

MOST_UNDER_WAY = 4


def fsdp_module() -> Any:
    """torch's class of modules that fully_shard() has prepared."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except (ImportError, ValueError):  # torch 1.13's FSDP does not load under Python 3.11
        FSDPModule = None
    if FSDPModule is None or not hasattr(FSDPModule, "set_custom_reduce_scatter"):
        raise RuntimeError("spillway.torch.shard() needs FSDP2 with custom communication, which torch "
                           f"{torch.__version__} does not have: install a newer torch, or set SPILLWAY_CODEC, which "
                           "reaches the reduce-scatters of every torch")
    return FSDPModule


def check_codec(codec: Any, operation: str, argument: str) -> None:
    if not isinstance(codec, Codec):
        raise TypeError(f"{argument} is {codec!r}: give a codec of spillway.torch, such as Planes(bits=5)")
    table = abi.default_library().capabilities
    if operation not in table.get(codec.name, {"operations": []})["operations"]:
        able = [name for name, row in table.items() if operation in row["operations"]]
        raise ValueError(f"{argument} is {codec}, which has no {operation}: use {', '.join(able)}")


# ---- Members ----

class Members:
    """A rank's place in each group that a hook meets, and the hook's number there."""

    def __init__(self) -> None:
        self._of: Dict[int, Tuple[Any, Member, int]] = {}  # by the group's id; the group lives as long

    def of(self, group: Any) -> Tuple[Member, int]:
        if id(group) not in self._of:
            own = collectives_of(group)
            member = Member(join_through_group(group, "torch fsdp")) if own is None else own.member
            self._of[id(group)] = (group, member, hook_number(member))
        _, member, number = self._of[id(group)]
        return member, number


# ---- Operations ----

class SumRun:
    """A sum under way."""

    def __init__(self, operation: Operation, size: int) -> None:
        self._operation, self.bytes = operation, size

    def wait(self) -> None:
        self._operation.wait()

    def report(self) -> OperationReport:
        return self._operation.request.report()

    def copy_seconds(self) -> PartSeconds:
        return self._operation.copy_seconds()


class Shard:
    """A module's parameters, without those of modules in it that are sharded themselves."""

    def __init__(self, place: int, parameters: Sequence[nn.Parameter]) -> None:
        self._place, self._parameters = place, list(parameters)

    def feedback_tensor(self, hook: int, operation: str) -> int:
        """Never 0, which means no name."""
        words = f"{operation} {hook} {self._place}"
        return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little") or 1

    def is_read_later(self, output: torch.Tensor, op: Any) -> bool:
        """True if nobody reads the sum before the backward pass has ended: FSDP2 takes it as the gradient as it is."""
        return op == ReduceOp.AVG and all(
            parameter.grad is None and parameter.dtype == output.dtype and parameter.device.type == output.device.type
            and not getattr(parameter, "_post_accumulate_grad_hooks", None)
            and getattr(getattr(parameter, "device_mesh", None), "ndim", 1) == 1
            for parameter in self._parameters)


def allocate(size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(*size, dtype=dtype, device=device)


class Scatter:
    """FSDP2's reduce-scatter of one module."""

    def __init__(self, hook: "ShardHook", shard: Shard, may_be_late: bool) -> None:
        self._hook, self._shard, self._may_be_late = hook, shard, may_be_late

    allocate = staticmethod(allocate)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any,
                 async_op: bool = False) -> Optional[SpillwayWork]:
        operation = self._hook.start_scatter(self._shard, output_tensor, input_tensor, group, op)
        if async_op:
            return SpillwayWork(operation, [output_tensor])
        is_late = self._may_be_late and self._shard.is_read_later(output_tensor, op)
        if not is_late or not before_backward_ends(self._hook.end_pass):
            operation.wait()
        return None


class Gather:
    """FSDP2's all-gather of one module."""

    def __init__(self, hook: "ShardHook", shard: Shard) -> None:
        self._hook, self._shard = hook, shard

    allocate = staticmethod(allocate)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any,
                 async_op: bool = False) -> SpillwayWork:
        return SpillwayWork(self._hook.start_gather(self._shard, output_tensor, input_tensor, group), [output_tensor])


# ---- The hook ----

class ShardHook:
    """Made by shard(). `exact` may be set between steps, to the same at all ranks: then nothing is lost."""

    def __init__(self, reduce: Optional[abi.OperationOptions], gather: Optional[abi.OperationOptions],
                 error_feedback: bool, replicas: Any) -> None:
        self.exact = False
        self._reduce, self._gather = reduce, gather
        self._error_feedback, self._replicas = error_feedback, replicas
        self._members = Members()
        self._step = 0
        self._runs: List[SumRun] = []  # of this pass
        self._awaited = 0              # how many of them were waited for
        self._ended: Optional[EndedStep] = None

    def report(self) -> Optional[StepReport]:
        """The last backward pass's sums; None before the first. Weights are not part of it."""
        return None if self._ended is None else self._ended.report()

    def start_scatter(self, shard: Shard, output: torch.Tensor, values: torch.Tensor, group: Any,
                      op: Any) -> Operation:
        member, number = self._members.of(group)
        world = member.communicator.world
        options = self._options(self._reduce, member, values)
        if options.tolerant and self._error_feedback:
            options.feedback_tensor = shard.feedback_tensor(number, "reduce_scatter")
        send, receive = HostSpan([values], "reduce_scatter", world), HostSpan([output], "reduce_scatter")
        operation = Operation("reduce_scatter", send, receive, send.pointer, receive.pointer, send.count, send.type,
                              reduction_of(values.dtype, op, "reduce_scatter"), options=options)
        self._start(operation, member, values)
        return operation

    def start_gather(self, shard: Shard, output: torch.Tensor, values: torch.Tensor, group: Any) -> Operation:
        member, _ = self._members.of(group)
        options = self._options(self._gather, member, values)
        options.priority = MAX_LEVEL  # the next layer waits for it
        send = HostSpan([values], "all_gather")
        receive = HostSpan([output], "all_gather", member.communicator.world)
        return Operation("all_gather", send, receive, send.pointer, receive.pointer, send.count, send.type,
                         options=options).start(member)

    def average_over_replicas(self, shard: Shard, values: torch.Tensor) -> None:
        """In place. FSDP2 calls it after the module's reduce-scatter."""
        member, number = self._members.of(self._replicas)
        options = self._options(self._reduce, member, values)
        if options.tolerant and self._error_feedback:
            options.feedback_tensor = shard.feedback_tensor(number, "all_reduce")
        span = span_of(values, "all_reduce", options, member.communicator.world)
        operation = Operation("all_reduce", span, span, span.pointer, span.pointer, span.count, span.type, abi.AVERAGE,
                              options=options)
        self._start(operation, member, values)
        operation.wait()

    def _options(self, tolerance: Optional[abi.OperationOptions], member: Member,
                 values: torch.Tensor) -> abi.OperationOptions:
        if tolerance is None or self.exact or values.dtype not in FLOATING:
            return member.communicator.options()
        return abi.OperationOptions.from_buffer_copy(tolerance)

    def _start(self, operation: Operation, member: Member, values: torch.Tensor) -> None:
        before_backward_ends(self.end_pass)
        while len(self._runs) - self._awaited >= MOST_UNDER_WAY:
            self._runs[self._awaited].wait()
            self._awaited += 1
        self._runs.append(SumRun(operation.start(member), values.numel() * values.element_size()))

    def end_pass(self) -> None:
        """Waits for the sums of a backward pass, at its end. The first call of a pass does it."""
        runs, self._runs, self._awaited = self._runs, [], 0
        if not runs:
            return
        for run in runs:
            run.wait()
        self._ended = EndedStep(self._step, self.exact or self._reduce is None, runs, None, None)
        self._step += 1


def tolerance_of(codec: Optional[Codec], operation: str, argument: str,
                 loss_bound: Optional[float]) -> Optional[abi.OperationOptions]:
    """The options of a codec; None if it is exact."""
    if codec is None:
        return None
    check_codec(codec, operation, argument)
    return None if isinstance(codec, Exact) else codec.options(loss_bound)


def shard(module: nn.Module, reduce: Codec = Planes(), gather: Optional[Codec] = None, *,
          loss_bound: Optional[float] = None, error_feedback: bool = True, replicas: Any = None) -> ShardHook:
    """Makes a model that fully_shard() has prepared send fewer bits.

    All ranks call it with the same arguments, once, after the last fully_shard() and before the first forward pass. It
    works with meshes of any backend; one that is not Spillway's only lets the ranks meet, in the first pass.

    reduce          how gradients travel to the ranks that own their shards: a codec with reduce-scatters, or Exact
    gather          how weights travel to all ranks; None: exactly
    loss_bound      share of a contribution's packets that may stay missing. None: the codec's own
    error_feedback  add what did not get into a sum to the same module's next one
    replicas        the group of the ranks that have the same shard, for a mesh of one replica (HSDP): sums are then
                    averaged over it, with the same codec
    """
    kind = fsdp_module()
    sharded = [(place, each) for place, each in enumerate(module.modules()) if isinstance(each, kind)]
    if not sharded:
        raise ValueError("shard() takes a model that torch.distributed.fsdp.fully_shard() has prepared; call it first, "
                         f"on the model's layers and on the {type(module).__name__} itself")
    if isinstance(reduce, Codec):
        reduce.check_feedback(error_feedback)
    hook = ShardHook(tolerance_of(reduce, "reduce_scatter", "reduce", loss_bound),
                     tolerance_of(gather, "all_gather", "gather", loss_bound), error_feedback, replicas)
    taken = set()
    for place, each in reversed(sharded):  # inner modules come after the outer ones that contain them
        own = [parameter for parameter in each.parameters() if id(parameter) not in taken]
        taken.update(map(id, own))
        part = Shard(place, own)
        each.set_custom_reduce_scatter(Scatter(hook, part, may_be_late=replicas is None))
        each.set_custom_all_gather(Gather(hook, part))
        if replicas is not None:
            each.set_all_reduce_hook(averaging(hook, part))
    return hook


def averaging(hook: ShardHook, part: Shard) -> Callable[[torch.Tensor], None]:
    return lambda values: hook.average_over_replicas(part, values)
