# SPDX-License-Identifier: Apache-2.0
"""How urgent an all-reduce is that was started during a backward pass.

A backward pass goes from the model's back to its front, and the next forward pass needs the front first: what is
started later is more urgent. How many come in a pass is known from the last one.

A pass that fails does not say that it has ended: the next one then counts on from it, with higher priorities than it
should have, and ends both. Priorities are about time alone, so no result depends on it.
Threads: those that run a backward pass over one group, which do so one at a time.
"""
from typing import Optional

from .backward_errors import before_backward_ends
from .bucket_names import priority_of


class BackwardOrder:
    def __init__(self) -> None:
        self._calls = 0
        self._calls_of_last_pass = 0

    def next_priority(self) -> Optional[int]:
        """Of the operation that is about to be started; None outside of a backward pass."""
        if not before_backward_ends(self._end_pass):
            return None
        priority = priority_of(self._calls, self._calls_of_last_pass)
        self._calls += 1
        return priority

    def _end_pass(self) -> None:
        """Comes once per call; the first ends the pass."""
        if self._calls:
            self._calls_of_last_pass, self._calls = self._calls, 0
