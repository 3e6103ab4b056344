# SPDX-License-Identifier: Apache-2.0
"""The codec of the backend's all-reduces and reduce-scatters, from the environment. A script needs nothing of Spillway
but the backend's name.

    SPILLWAY_CODEC=planes, and for the details SPILLWAY_BITS, SPILLWAY_LOSS_BOUND and SPILLWAY_LEAST_CONTRIBUTORS
    (docs/environment.md); the same at all ranks

Sums and averages of floating-point tensors of LEAST_BYTES or more go through the codec, with the defaults of attach();
everything else is exact. So are reduce-scatters with auto, with a codec that has none, and in groups with parameter servers. They
wait for late ranks, whatever SPILLWAY_LEAST_CONTRIBUTORS says. An invalid value is an error even if all is exact, so that a typo is found before it matters.

SPILLWAY_CODEC=auto: the chooser (codec_chooser.py) picks the codec. The backend does not know steps, so its unit is a
window: a fixed number of tolerant operations, timed from its first call to the next window's first call.

    settle | time | wait | settle | time | wait | ... | use | use ...
                  │      └ all ranks know the result, and the chooser goes on
                  └ ranks exchange their times

If there are backward passes, a window covers a few whole ones, so that all windows contain the same operations. Ranks
agree on its length after the first operations, which are exact and tell what exact takes. There is no error feedback
and no exact sum to compare with, so candidates are precise enough without. Entropy-coded numbers need more bits for
that than in a hook, because their scale follows the largest value.

Invariants: ranks call the same operations in the same order, and everything here happens at a fixed count of calls.
So all ranks code an operation alike and start the agreeing all-reduces at the same point. A rank awaits an answer one
whole window after it asked, when every rank has called as many all-reduces. Only one kind of program hangs on this: a
rank calls a whole window without ending an operation, while another first waits for something else from it.

Threads: any.
"""
import enum
import statistics
import threading
import time
from typing import Any, Callable, List, Optional

import torch

from .. import abi
from .auto_codec import Agreement, Tolerances, accepted, is_accepted, say, tolerances_of
from .backward import BackwardOrder
from .codec_chooser import EXACT, Candidate, Choice, CodecChooser, Purpose, Seen
from .codecs import Auto, Codec, Exact, Planes, codec_named
from .operation import Member
from .tensors import FLOATING

LEAST_BYTES = 1 << 16  # for smaller tensors, coding saves less time than it costs
WINDOW_CANDIDATES = (Candidate("planes", 5), Candidate("entropy", 12), Candidate("planes", 8), Candidate("planes", 16),
                     EXACT)
LEAST_OPERATIONS = 8  # per window
ANY_ERROR = 1.0       # no error is measured
# torch's class of pg_options; it has none in old releases.
OF_TORCH = tuple(kind.Options for kind in [getattr(torch._C._distributed_c10d, "Backend", None)] if kind is not None)


class Stage(enum.Enum):
    LEARN = "learn"  # the number of operations in a backward pass
    COUNT = "count"  # time a window
    WAIT = "wait"    # for the agreement's result


def window_of(calls_of_a_pass: int) -> int:
    """Operations in whole backward passes; LEAST_OPERATIONS if there are no passes."""
    return -(-LEAST_OPERATIONS // calls_of_a_pass) * calls_of_a_pass if calls_of_a_pass else LEAST_OPERATIONS


class AutoWindows:
    """`tolerances`: options of all candidates."""

    def __init__(self, tolerances: Tolerances, now: Callable[[], float] = time.monotonic) -> None:
        self._tolerances, self._now = tolerances, now
        self._lock = threading.Lock()
        self._backward_order, self._calls_of_a_pass = BackwardOrder(), 0
        self._stage, self._chooser = Stage.LEARN, CodecChooser([EXACT], ANY_ERROR)
        self._agreement: Optional[Agreement] = None
        self._window, self._left = LEAST_OPERATIONS, 2 * LEAST_OPERATIONS
        self._usual_bytes = self._bytes = 0
        self._began: Optional[float] = None
        self._exact_per_byte = 0.0
        self._seconds: List[float] = []  # of the current unit's windows

    @property
    def choice(self) -> Optional[Choice]:
        return self._chooser.choice

    def join(self, member: Member) -> None:
        """Drops candidates that the group cannot carry out. All ranks must call it first."""
        self._tolerances = accepted(member, self._tolerances)

    def options(self, member: Member, size: int) -> abi.OperationOptions:
        """Options of the operation that is about to start; `size` is in bytes."""
        with self._lock:
            if self._began is None:
                self._began = self._now()
            if self._left == 0:
                self._end_window(member)
            place = self._backward_order.next_place()
            self._calls_of_a_pass = place[1] if place is not None else 0
            self._left -= 1
            self._bytes += size
            candidate = EXACT if self._stage is Stage.LEARN else self._chooser.candidate
            tolerance = self._tolerances[candidate]
            if tolerance is None:
                return member.communicator.options()
            return abi.OperationOptions.from_buffer_copy(tolerance)

    def _end_window(self, member: Member) -> None:
        if self._stage is Stage.LEARN:
            self._learn(member)
        elif self._stage is Stage.WAIT:
            self._take_answer(member)
        else:
            self._count(member)
        self._left = self._window
        self._bytes, self._began = 0, self._now()

    def _learn(self, member: Member) -> None:
        if self._agreement is None:
            self._agreement = Agreement(member, [float(self._calls_of_a_pass), -self._seconds_per_byte()])
            return
        calls, least = self._answer()
        self._window, self._exact_per_byte = window_of(int(calls)), -least
        self._chooser = CodecChooser(list(self._tolerances), ANY_ERROR)
        self._stage = Stage.COUNT

    def _count(self, member: Member) -> None:
        if self._usual_bytes == 0:
            self._usual_bytes = self._bytes
            self._chooser.hint_exact(self._exact_per_byte * self._usual_bytes)
        self._seconds.append(self._seconds_per_byte() * self._usual_bytes)
        if len(self._seconds) < self._chooser.units:
            return
        if self._chooser.purpose is Purpose.SETTLE:
            self._chooser.note(Seen())
        else:
            self._agreement = Agreement(member, [statistics.median(self._seconds)])
            self._stage = Stage.WAIT
        self._seconds = []

    def _seconds_per_byte(self) -> float:
        """For the window that ends."""
        assert self._began is not None
        return (self._now() - self._began) / self._bytes

    def _take_answer(self, member: Member) -> None:
        before = self.choice
        self._chooser.note(Seen(seconds=self._answer()[0]))
        self._stage = Stage.COUNT
        if self.choice is not before:
            say(member, self.choice, f"windows of {self._window} all-reduces")

    def _answer(self) -> List[float]:
        assert self._agreement is not None
        agreement, self._agreement = self._agreement, None
        return agreement.result()


class BackendCodec:
    """`tolerance`: the options of operations that may lose something. There is no error feedback: the backend cannot
    match tensors between steps. `auto`: chooses the options of all-reduces instead, or None."""

    def __init__(self, tolerance: abi.OperationOptions, auto: Optional[AutoWindows] = None) -> None:
        self.auto, self._tolerance = auto, tolerance
        # Whether reduce-scatters go through the codec. None: unknown before the first.
        self._scatters: Optional[bool] = None if auto is None else False

    def applies_to(self, operation: str, dtype: torch.dtype, size: int, reduction: int) -> bool:
        """`size` is in bytes, at this rank."""
        return (dtype in FLOATING and reduction in (abi.SUM, abi.AVERAGE) and size >= LEAST_BYTES
                and (operation == "all_reduce" or self._scatters is not False))

    def options(self) -> abi.OperationOptions:
        return abi.OperationOptions.from_buffer_copy(self._tolerance)

    def options_in_turn(self, member: Member, operation: str, size: int) -> abi.OperationOptions:
        """Options of the operation that is about to start."""
        if operation == "reduce_scatter":
            return self._scatter_options(member)
        return self.options() if self.auto is None else self.auto.options(member, size)

    def _scatter_options(self, member: Member) -> abi.OperationOptions:
        options = self.options()
        options.least_contributors = 0.0
        if self._scatters is None:
            self._scatters = is_accepted(member, options, "reduce_scatter")
        return options if self._scatters else member.communicator.options()


def codec_from_environment() -> Optional[BackendCodec]:
    """None if everything is exact. An invalid value is a ValueError with every codec."""
    library = abi.default_library()
    name = library.variable("SPILLWAY_CODEC")
    bits, bound = library.variable_if_set("SPILLWAY_BITS"), library.variable_if_set("SPILLWAY_LOSS_BOUND")
    loss_bound = None if bound is None else float(bound)
    least_contributors = float(library.variable("SPILLWAY_LEAST_CONTRIBUTORS"))
    if name == Exact.name:
        return None
    if name != Auto.name:
        return backend_codec(codec_named(name, None if bits is None else int(bits)), loss_bound, least_contributors)
    if bits is not None:
        raise ValueError("SPILLWAY_CODEC=auto chooses the bits itself: unset SPILLWAY_BITS")
    return backend_codec(Auto(), loss_bound, least_contributors)


def codec_of(pg_options: Any) -> Optional[BackendCodec]:
    """The codec of a new group: that of `pg_options`, if it is one, else that of the environment."""
    if isinstance(pg_options, Codec):
        return backend_codec(pg_options)
    if pg_options is None or isinstance(pg_options, OF_TORCH):
        return codec_from_environment()
    raise TypeError(f"pg_options is {pg_options!r}: the backend \"spillway\" takes a codec of spillway.torch, such as "
                    "Planes(bits=5), or torch's own Backend.Options")


def backend_codec(codec: Codec, loss_bound: Optional[float] = None,
                  least_contributors: float = 0.0) -> Optional[BackendCodec]:
    def options(codec: Codec, only_if_it_loses: bool = False) -> abi.OperationOptions:
        ignores_bound = only_if_it_loses and codec.loss_bound == 0.0
        return codec.options(None if ignores_bound else loss_bound, least_contributors)

    if isinstance(codec, Exact):
        return None
    if not isinstance(codec, Auto):
        return BackendCodec(options(codec))
    candidates = tolerances_of(WINDOW_CANDIDATES,
                               lambda candidate, its_bits: options(codec_named(candidate, its_bits), True))
    return BackendCodec(options(Planes()), AutoWindows(candidates))
