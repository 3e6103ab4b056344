# SPDX-License-Identifier: Apache-2.0
"""What an all-reduce of a backward pass says of itself, by the layers that it is about: how urgent it is, and how many of
its packets switches may drop first.

The two are different things. Front layers are needed first in the next step, so they are the most urgent; and they
bear more loss than the back, so more of them may be dropped (DLCP: 1.1 % in front, 0.4 % at the back). Which packets
those are is for the library to say, by the energy of their rows.

A backward pass goes from the back to the front: the later, the further in front. Pure functions; any thread.
"""
from typing import Optional, Union

from .. import abi

MAX_LEVEL = 7     # of priority and of importance
BACK_SHARE = 0.4  # of what may be dropped in front, what may be at the back


def priority_of(index: int, calls: int) -> int:
    """Of the call with this index, in a pass of which the last one had so many; 0 where there was none."""
    last = max(calls - 1, index)
    return MAX_LEVEL if last == 0 else MAX_LEVEL * index // last


def expendable_share(index: int, calls: int) -> float:
    """The same, as a share of the loss bound."""
    last = max(calls - 1, index)
    return 1.0 if last == 0 else BACK_SHARE + (1.0 - BACK_SHARE) * index / last


def level_of(given: Union[str, int], word: str, name: str) -> Optional[int]:
    """A level for all; None where the word says that it depends."""
    if given == word:
        return None
    if isinstance(given, int) and 0 <= given <= MAX_LEVEL:
        return given
    raise ValueError(f"{name} is {given!r}: it must be {word!r} or 0 to {MAX_LEVEL}")


class LayerPolicy:
    """`priority`: the same for all layers, or None."""

    def __init__(self, priority: Optional[int] = None) -> None:
        self._priority = priority

    def apply(self, options: abi.OperationOptions, index: int, calls: int) -> None:
        """What was said of expendable packets stays."""
        options.priority = priority_of(index, calls) if self._priority is None else self._priority
        if options.tolerant and options.expendable_ppm == abi.EXPENDABLE_AS_LOST:
            options.expendable_ppm = round(options.loss_bound_ppm * expendable_share(index, calls))
