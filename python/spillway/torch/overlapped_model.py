# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training in which the next forward pass begins while gradients still travel.

    model, optimizer = spillway.torch.overlap(model, optimizer)     # instead of DistributedDataParallel(model)

    backward      a bucket leaves as soon as it is complete; the front of the model is the most urgent
    step()        records learning rates and the like, and returns
    forward       before a layer runs, its gradients are awaited and its parameters are updated

With DDP the optimizer waits for the last bucket, so it does not matter which bucket comes first.

Invariants: all ranks start the same operations in the same order: buckets from back to front, and then which
parameters had a gradient at which rank. So a bucket may wait for one that belongs further back. Everything of a pass
has been finished before the next one fills a buffer. Without a codec, values are divided by the number of ranks and
then summed, as DDP does; parameters without a gradient at any rank keep what they have.

Safety: from its bucket's start to its update, a parameter is guarded (guarded_parameter.py): `grad` waits for the
gradient, and once step() has been called every use waits for the update. So clipping, gradient scaling, averages of
weights, checkpoints and evaluations see what they would see with DDP.

Updates run in the thread that waits, one at a time, because optimizers are not thread-safe. A layer whose gradients
have not come lets others that have come be updated first; otherwise these wait for their own turn, so that the front
of the model is never held up by the back.

Limits: dense gradients; each parameter gets one gradient per backward pass, so checkpointing must not be reentrant; all
ranks run the same passes.

Threads: the one that trains, and autograd's during a backward pass. Any thread may use parameters.
"""
import contextlib
import copy
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
from torch import nn

from .backward import LayerPolicy, before_backward_ends, level_of
from .codecs import Codec
from .ddp_hook import DdpHook, make_hook
from .first_rank import Buffers, broadcast
from .gradient_transfers import GroupSums, OverlapReport, Slot, Transfer, clear_gradient
from .guarded_parameter import Use, guard, unguard
from .layer_buckets import ForwardOrder, Layer, buckets_of, layers_of
from .overlapped_optimizer import become_overlapped, check_optimizer

# ---- The context of an update ----

def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps a function, and what it calls, out of graphs of torch.compile, which would take the state of one step for
    that of all."""
    compiler = getattr(torch, "compiler", None)
    return function if compiler is None else compiler.disable(function)


@contextlib.contextmanager
def as_in_step(parameter: nn.Parameter) -> Iterator[None]:
    """An update runs in whatever context a forward pass has. State made in inference mode could never change again, and
    autocast would round."""
    with torch.inference_mode(False), torch.autocast(parameter.device.type, enabled=False):
        yield


# ---- The overlap ----

def wait_for_nothing() -> None:
    """A copy of a layer calls this."""


class LayerHook:
    """A forward pre-hook. Copies of the module, and what is loaded from a file, are no part of the overlap."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        self._wait()

    def __reduce__(self) -> Any:
        return LayerHook, (wait_for_nothing,)


class Overlap:
    """`sums`: how gradients travel. `share`: what values are multiplied by before that; None if `sums` averages.
    `buffers`: None if each rank keeps its own."""

    def __init__(self, module: nn.Module, optimizer: Any, group: Any, sums: Union[GroupSums, DdpHook],
                 share: Optional[float], buffers: Optional[Buffers]) -> None:
        self.lock = threading.RLock()
        self.syncs = True
        self._optimizer, self._group, self._sums, self._share = optimizer, group, sums, share
        self._buffers = buffers
        # NCCL takes nothing else. A copy to a device would wait for the backward pass.
        is_nccl = dist.get_backend(group) == "nccl"
        self._place_of_notes = next(module.parameters()).device if is_nccl else torch.device("cpu")
        trained = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
        self._slots = [Slot(name, place, parameter) for place, (name, parameter) in enumerate(trained)]
        self._by_id = {id(slot.parameter): slot for slot in self._slots}
        self._order: Optional[ForwardOrder] = ForwardOrder(len(self._slots))  # None once it is known
        self._transfers: List[Transfer] = []
        self._travelling: List[Transfer] = []
        self._next = 0        # the transfer to start next
        self._in_pass = False
        self._passes = 0
        self._began = 0.0
        self._used: Any = None  # per parameter, whether any rank has a gradient; and the operation that finds out
        self._used_work: Any = None
        self.report: Optional[OverlapReport] = None  # of the last pass whose gradients have all been used
        self._accumulators = [self._watch_gradient(slot) for slot in self._slots]
        for layer in layers_of(module):
            self._add_hook(layer)

    # ---- Forward ----

    def _add_hook(self, layer: Layer) -> None:
        slots = [self._by_id[id(each)] for each in layer.parameters if id(each) in self._by_id]
        if slots or (layer.has_buffers and self._buffers is not None):
            wait = uncompiled(lambda: self._before_forward(layer, slots))
            layer.module.register_forward_pre_hook(LayerHook(wait))

    def _before_forward(self, layer: Layer, slots: Sequence[Slot]) -> None:
        if self._order is not None:
            self._learn(slots)
        for slot in slots:
            if slot.transfer is not None and slot.transfer.update is not None:
                self._finish(slot.transfer, layer.name)
        if layer.has_buffers and self._buffers is not None and not self._in_pass:
            self._buffers.finish()

    def begin_forward(self) -> None:
        """Until the first backward pass, a forward pass shows when it uses which parameter, also outside of the
        parameter's module."""
        if self._in_pass:
            raise RuntimeError("the last backward pass has failed, and other ranks wait for its gradients: end the "
                               "job, and continue from a checkpoint")
        if self._order is not None:
            for slot in self._slots:
                guard(slot.parameter, lambda use, slot=slot: self._learn([slot]) if use is Use.VALUE else None)

    def end_forward(self) -> None:
        if self._order is not None:
            for slot in self._slots:
                unguard(slot.parameter)

    def _learn(self, slots: Sequence[Slot]) -> None:
        assert self._order is not None
        self._order.use([slot.place for slot in slots])
        for slot in slots:
            unguard(slot.parameter)

    # ---- Backward ----

    def _watch_gradient(self, slot: Slot) -> Any:
        """Returns the node that accumulates the gradient, which keeps its hook only while somebody has it."""
        slot.parameter.register_hook(lambda gradient: self._before_gradient())
        with torch.enable_grad():
            accumulator = slot.parameter.expand_as(slot.parameter).grad_fn.next_functions[0][0]
        accumulator.register_hook(lambda *_: self._after_gradient(slot))
        return accumulator

    def _before_gradient(self) -> None:
        """A gradient is added to `grad`, which must have the last one's sum by then."""
        if not self._in_pass and self._travelling:
            self.finish_all("backward()")

    def _after_gradient(self, slot: Slot) -> None:
        slot.has_gradient = slot.has_gradient or slot.parameter.grad is not None
        if not self.syncs:
            return
        with self.lock:
            if not self._in_pass:
                self._begin_pass()
            if slot.is_filled:
                raise RuntimeError(f"{slot.name} got a second gradient in one backward pass, and the first has left: "
                                   "checkpoint with use_reentrant=False")
            self._fill(slot)
            self._start_complete()

    def _begin_pass(self) -> None:
        self.finish_all("backward()")
        if self._passes:
            self._sums.end_step()
        if self._order is not None:
            self._make_transfers(self._order)
            self._order = None
        for transfer in self._transfers:
            transfer.missing = len(transfer.slots)
        for slot in self._slots:
            slot.is_filled = False
        self._next, self._in_pass, self._began = 0, True, time.monotonic()
        self._sums.begin_step()
        before_backward_ends(self._end_pass)

    def _make_transfers(self, order: ForwardOrder) -> None:
        ordinals = order.tensor().to(self._place_of_notes)
        broadcast(self._group, [ordinals])
        buckets = buckets_of([slot.parameter for slot in self._slots], ordinals.tolist())
        self._transfers = [Transfer(bucket, [self._by_id[id(each)] for each in bucket.parameters()])
                           for bucket in buckets]

    def _fill(self, slot: Slot) -> None:
        assert slot.transfer is not None and slot.view is not None
        gradient = slot.parameter.grad
        if gradient is None:
            slot.view.zero_()
        elif gradient.layout != torch.strided:
            raise TypeError(f"{slot.name} has a gradient of layout {gradient.layout}; overlap() takes dense ones: set "
                            "sparse=False, or use DistributedDataParallel")
        elif self._share is None:
            slot.view.copy_(gradient.detach())
        else:
            torch.mul(gradient.detach(), self._share, out=slot.view)
        slot.is_filled = True
        slot.transfer.missing -= 1
        guard(slot.parameter, lambda use: self._use(slot, use))

    def _start_complete(self) -> None:
        while self._next < len(self._transfers) and self._transfers[self._next].missing == 0:
            transfer = self._transfers[self._next]
            self._next += 1
            transfer.left, transfer.waited, transfer.waited_by = time.monotonic(), 0.0, ""
            transfer.run = self._sums.start(transfer.bucket)
            self._travelling.append(transfer)

    def _end_pass(self) -> None:
        """Runs at the end of the backward pass. Parameters that are not filled have got no gradient in it."""
        with self.lock, torch.no_grad():
            for slot in self._slots:
                if not slot.is_filled:
                    self._fill(slot)
            self._start_complete()
            self._used = torch.tensor([slot.has_gradient for slot in self._slots], dtype=torch.uint8,
                                      device=self._place_of_notes)
            options = dist.AllreduceOptions()
            options.reduceOp = dist.ReduceOp.MAX
            self._used_work = self._group.allreduce([self._used], options)
            if self._buffers is not None:
                self._buffers.start()
            self._in_pass = False
            self._passes += 1

    # ---- Waiting ----

    def _use(self, slot: Slot, use: Use) -> None:
        """Somebody is about to use a guarded parameter. In a backward pass `grad` is this rank's."""
        transfer = slot.transfer
        assert transfer is not None
        if not self._in_pass and (use is Use.GRADIENT or transfer.update is not None):
            self._finish(transfer, "grad" if use is Use.GRADIENT else slot.name)

    def _finish(self, transfer: Transfer, who: str) -> None:
        with self.lock:
            while transfer.run is not None and not transfer.run.is_done():
                other = self._next_done()
                if other is None:
                    break
                self._complete(other, who)
            if transfer.run is not None:
                self._complete(transfer, who)

    def _next_done(self) -> Optional[Transfer]:
        """A transfer that has come, and whose update is due."""
        return next((each for each in self._travelling if each.update is not None and each.run.is_done()), None)

    def _complete(self, transfer: Transfer, who: str) -> None:
        began = time.monotonic()
        transfer.run.wait()
        if not all(slot.has_gradient for slot in transfer.slots):
            self._used_work.wait()
        ended, seconds = time.monotonic(), transfer.run.seconds()
        transfer.came = ended if seconds is None else transfer.left + seconds
        transfer.waited, transfer.waited_by = ended - began, who
        transfer.run = None
        self._travelling.remove(transfer)
        update, transfer.update = transfer.update, None
        with as_in_step(transfer.slots[0].parameter):
            self._take_sums(transfer)
            if update is not None:
                self._optimizer._update(update, {id(slot.parameter) for slot in transfer.slots})
            for slot in transfer.slots:
                slot.clear()
        if not self._travelling:
            self._note_report()

    @torch.no_grad()
    def _take_sums(self, transfer: Transfer) -> None:
        for slot in transfer.slots:
            unguard(slot.parameter)
            is_used = slot.has_gradient or bool(self._used[slot.place])
            slot.has_gradient = False
            if not is_used:
                continue
            if slot.parameter.grad is None:
                slot.parameter.grad = torch.empty_like(slot.parameter)
            slot.parameter.grad.copy_(slot.view)

    def _note_report(self) -> None:
        buckets = tuple(transfer.report(self._began) for transfer in self._transfers)
        self.report = OverlapReport(self._passes - 1, buckets)

    # ---- For the optimizer and the model ----

    def finish_all(self, who: str) -> None:
        """Nothing is under way afterwards."""
        self._finish_those(lambda transfer: True, who)
        if self._passes and not self._in_pass:
            self._used_work.wait()
            if self._buffers is not None:
                self._buffers.finish()

    def finish_updates(self, who: str) -> None:
        self._finish_those(lambda transfer: transfer.update is not None, who)

    def _finish_those(self, are_meant: Callable[[Transfer], bool], who: str) -> None:
        with self.lock:
            if self._in_pass:
                return  # a backward pass is under way, or has failed
            for transfer in [each for each in self._travelling if are_meant(each)]:
                self._finish(transfer, who)

    def defer(self, optimizer: Any) -> bool:
        """Begins a step. False if nothing travels that it could wait for: then the caller takes it at once."""
        with self.lock:
            self.finish_updates("step()")  # of a step() before this one
            if not self._travelling:
                return False
            options = optimizer._options_now()
            later = {id(slot.parameter) for transfer in self._travelling for slot in transfer.slots}
            everything = {id(each) for group in optimizer.param_groups for each in group["params"]}
            if everything - later:
                optimizer._update(options, everything - later)
            for transfer in self._travelling:
                transfer.update = options
            return True

    def zero_gradients(self, parameters: Sequence[nn.Parameter], set_to_none: bool) -> None:
        with self.lock:
            for parameter in parameters:
                slot = self._by_id.get(id(parameter))
                if slot is not None and slot.transfer is not None and slot.transfer.update is not None:
                    slot.clearing = set_to_none
                else:
                    clear_gradient(parameter, set_to_none)

    @contextlib.contextmanager
    def without_sums(self) -> Iterator[None]:
        before, self.syncs = self.syncs, False
        try:
            yield
        finally:
            self.syncs = before


# ---- Interface ----

class OverlappedModel(nn.Module):
    """Made by overlap(). `module` is the model itself, as in DistributedDataParallel. `hook`: with a codec, what
    attach() would return; its steps end when the next backward pass begins."""

    def __init__(self, module: nn.Module, overlap: Overlap, hook: Optional[DdpHook]) -> None:
        super().__init__()
        self.module, self.hook, self._overlap = module, hook, overlap
        self._begin_forward, self._end_forward = uncompiled(overlap.begin_forward), uncompiled(overlap.end_forward)

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        self._begin_forward()
        try:
            return self.module(*inputs, **keywords)
        finally:
            self._end_forward()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of backward passes inside it accumulate here, until a pass outside of it."""
        with self._overlap.without_sums():
            yield

    def zero_grad(self, set_to_none: Optional[bool] = None) -> None:
        if set_to_none is None:
            set_to_none = nn.Module.zero_grad.__defaults__[0]
        self._overlap.zero_gradients(list(self.parameters()), set_to_none)

    def report(self) -> Optional[OverlapReport]:
        """When gradients left and came, and who waited for them: the last pass of which all have been used. None before
        the first."""
        return self._overlap.report

    def __deepcopy__(self, memo: Dict[int, Any]) -> nn.Module:
        """A copy, such as one for averages of weights, is the model alone: its gradients stay where they are."""
        return copy.deepcopy(self.module, memo)


def overlap(model: nn.Module, optimizer: torch.optim.Optimizer, codec: Optional[Codec] = None, *,
            process_group: Any = None, priority: Union[str, int] = "layer", broadcast_buffers: bool = True,
            **options: Any) -> Tuple[OverlappedModel, torch.optim.Optimizer]:
    """Makes a model and its optimizer data-parallel, in place of DistributedDataParallel, so that the next forward pass
    overlaps with gradients that still travel. Returns a wrapper of the model, and the same optimizer.

    All ranks call it with the same arguments, before learning-rate schedulers are made. Parameters and buffers become
    those of the group's first rank.

    codec           how gradients travel: those of attach(), with its other arguments as `options`. None: as all-reduces
                    of the group do, which is exact unless SPILLWAY_CODEC says otherwise
    process_group   of any backend; only Spillway sends urgent gradients first. None: the default group
    priority        what is sent first. "layer": the front of the model. 0 to 7: all alike
    broadcast_buffers   buffers become those of the first rank after every backward pass
    """
    if isinstance(model, (OverlappedModel, nn.parallel.DistributedDataParallel)):
        raise TypeError(f"overlap() takes the model itself, not one in {type(model).__name__}: give model.module")
    check_optimizer(optimizer)
    trained = [each for each in model.parameters() if each.requires_grad]
    check_parameters(model)
    level = level_of(priority, "layer", "priority")
    if codec is None and options:
        raise TypeError(f"{', '.join(options)}: give a codec, too, such as codec=Planes()")
    group = dist.distributed_c10d._get_default_group() if process_group is None else process_group
    sums: Union[GroupSums, DdpHook]
    if codec is None:
        sums, share = GroupSums(group, LayerPolicy(level)), 1.0 / group.size()
    else:
        sums, share = make_hook(group, trained, codec, priority=priority, **options), None
    with torch.no_grad():
        broadcast(group, [*model.parameters(), *model.buffers()])
    made = Overlap(model, optimizer, group, sums, share, Buffers(group, model) if broadcast_buffers else None)
    become_overlapped(optimizer, made)
    return OverlappedModel(model, made, sums if isinstance(sums, DdpHook) else None), optimizer


def check_parameters(model: nn.Module) -> None:
    parameters = dict(model.named_parameters())
    if not any(each.requires_grad for each in parameters.values()):
        raise ValueError("overlap(): the model has no parameter that requires a gradient")
    for name, parameter in parameters.items():
        if parameter.requires_grad and type(parameter) is not nn.Parameter:
            raise TypeError(f"overlap(): {name} is a {type(parameter).__name__}; it must be a plain nn.Parameter. Run "
                            "a lazy module once before; keep other kinds in DistributedDataParallel")
