# SPDX-License-Identifier: Apache-2.0
"""Operations that are started during a backward pass: which of them it is, and where their errors come out.

A backward pass goes from the model's back to its front; layers.py says what follows from that. How many come in a pass
is known from the last one. A pass that fails does not say that it has ended: the next one then counts on from it, as if
it were further in front than it is, and ends both. What follows is about time and about what is dropped first, so no
result is wrong for it.

Errors reach the caller of backward() as they are. DDP looks at its Futures at the end of the backward pass and makes
"cannot cast ... to Tensor" of an error in one. Callbacks of the autograd engine run in the order in which they were
queued, and DDP queues its own behind its last bucket: one that waits for an operation and raises its error comes
before that.

Threads: those that run a backward pass over one group, which do so one at a time.
"""
from typing import Callable, Optional, Tuple

import torch


def before_backward_ends(callback: Callable[[], None]) -> bool:
    """False, and nothing queued, outside of a backward pass."""
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
        """Of the operation that is about to be started: its index in the pass, and how many the last pass had. None
        outside of a backward pass."""
        if not before_backward_ends(self._end_pass):
            return None
        index, self._calls = self._calls, self._calls + 1
        return index, self._calls_of_last_pass

    def _end_pass(self) -> None:
        """Comes once per call; the first ends the pass."""
        if self._calls:
            self._calls_of_last_pass, self._calls = self._calls, 0
