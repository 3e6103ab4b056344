# SPDX-License-Identifier: Apache-2.0
"""The position of operations in a backward pass, what follows from it, and how errors reach the caller.

A backward pass goes from the model's back to its front: later calls are further in front. Front layers are needed first
in the next step, so they are the most urgent. They also tolerate more loss than the back, so switches may drop more of
their packets first (DLCP: 1.1 % in front, 0.4 % at the back). The library picks these packets, by the energy of their
rows.

The number of operations in a pass is known from the last one. A failed pass does not report its end: the next one
continues its count, as if it were further in front than it is, and ends both. That affects only timing and what is
dropped first, never a result.

Errors reach the caller of backward() unchanged. DDP reads its Futures at the end of the backward pass and turns an
error in one into "cannot cast ... to Tensor". Callbacks of the autograd engine run in the order in which they were
queued, and DDP queues its own after its last bucket: a callback that waits for an operation and raises its error runs
before that.

Threads: BackwardOrder is used by those that run a backward pass over one group, one at a time. The rest is pure.
"""
from typing import Callable, Optional, Tuple, Union

import torch

from .. import abi

MAX_LEVEL = 7     # for priority and importance
BACK_SHARE = 0.4  # the back's expendable share, relative to the front's


def priority_of(index: int, calls: int) -> int:
    """Priority of the call at `index`, if the last pass had `calls` calls (0 if there was none)."""
    last = max(calls - 1, index)
    return MAX_LEVEL if last == 0 else MAX_LEVEL * index // last


def expendable_share(index: int, calls: int) -> float:
    """The expendable packets of that call, as a share of the loss bound."""
    last = max(calls - 1, index)
    return 1.0 if last == 0 else BACK_SHARE + (1.0 - BACK_SHARE) * index / last


def level_of(given: Union[str, int], word: str, name: str) -> Optional[int]:
    """A fixed level; None if `given` is the word for a level that depends on the layer."""
    if given == word:
        return None
    if isinstance(given, int) and 0 <= given <= MAX_LEVEL:
        return given
    raise ValueError(f"{name} is {given!r}: it must be {word!r} or 0 to {MAX_LEVEL}")


class LayerPolicy:
    """`priority`: a fixed one for all layers, or None."""

    def __init__(self, priority: Optional[int] = None) -> None:
        self._priority = priority

    def apply(self, options: abi.OperationOptions, index: int, calls: int) -> None:
        """An explicit expendable share stays."""
        options.priority = priority_of(index, calls) if self._priority is None else self._priority
        if options.tolerant and options.expendable_ppm == abi.EXPENDABLE_AS_LOST:
            options.expendable_ppm = round(options.loss_bound_ppm * expendable_share(index, calls))


def before_backward_ends(callback: Callable[[], None]) -> bool:
    """Queues the callback. False, with nothing queued, outside of a backward pass."""
    try:
        torch.autograd.Variable._execution_engine.queue_callback(callback)
    except RuntimeError:
        return False
    return True


class BackwardOrder:
    def __init__(self) -> None:
        self._calls = 0
        self._calls_of_last_pass = 0

    def next_place(self) -> Optional[Tuple[int, int]]:
        """For the operation about to start: its index in the pass, and the last pass's count. None outside of a
        backward pass."""
        if not before_backward_ends(self._end_pass):
            return None
        index, self._calls = self._calls, self._calls + 1
        return index, self._calls_of_last_pass

    def _end_pass(self) -> None:
        """Runs once per call; the first one ends the pass."""
        if self._calls:
            self._calls_of_last_pass, self._calls = self._calls, 0
