# SPDX-License-Identifier: Apache-2.0
"""The position of operations in a backward pass, and how their errors reach the caller.

A backward pass goes from the model's back to its front; layers.py says what follows from that. The number of
operations in a pass is known from the last one. A failed pass does not report its end: the next one continues its
count, as if it were further in front than it is, and ends both. That affects only timing and what is dropped first,
never a result.

Errors reach the caller of backward() unchanged. DDP reads its Futures at the end of the backward pass and turns an
error in one into "cannot cast ... to Tensor". Callbacks of the autograd engine run in the order in which they were
queued, and DDP queues its own after its last bucket: a callback that waits for an operation and raises its error runs
before that.

Threads: those that run a backward pass over one group, one at a time.
"""
from typing import Callable, Optional, Tuple

import torch


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
