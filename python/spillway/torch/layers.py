# SPDX-License-Identifier: Apache-2.0
"""How urgent an all-reduce of a backward pass is, and how many of its packets switches may drop first. Both follow
from the position of its layers.

Front layers are needed first in the next step, so they are the most urgent. They also tolerate more loss than the
back, so more of their packets may be dropped (DLCP: 1.1 % in front, 0.4 % at the back). The library picks these
packets, by the energy of their rows.

A backward pass goes from the back to the front: later calls are further in front. Pure functions; any thread.
"""
from typing import Optional, Union

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
