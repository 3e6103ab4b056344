# SPDX-License-Identifier: Apache-2.0
"""The codec Auto of a hook: times its steps, now and then measures their error, and uses the codec that the
chooser picks.

A step's time runs from the end of the previous backward pass to its own end. So a codec that takes processors from the
model pays for them. A pause before the first bucket counts as the usual gap: an evaluation or a checkpoint is not
held against a codec. Link and processor time are not measured apart: a step contains both.

The error is a sample: SAMPLED evenly spread values of each bucket are averaged exactly after the step, outside of its
time. The sample's zeros say how sparse gradients are.

Invariants: ranks agree on the longest time and the largest error of all, so they always use the same codec. They agree
after trial steps, and every LOOK_EVERY steps while a codec is in use; the answer is awaited when the next step begins.
In steps that do not count (warm-up, exact()) only the all-reduces are timed, as a hint of what exact takes: a first
step contains much that no other has.

Threads: the one that runs the backward pass.
"""
import collections
import logging
import math
import statistics
import time
from typing import Callable, Deque, Dict, List, Optional, Sequence, Tuple

import torch

from .. import abi
from ..errors import SpillwayError, Status
from .codec_chooser import EXACT, Candidate, Choice, CodecChooser, Seen
from .operation import Member, Operation
from .tensors import HostSpan

# Defaults with error feedback and without. On a CNN's gradients the error is 0.006 for 5 planes, 0.05 for 4 bits of
# levels, and 0.1 to 0.5 for entropy-coded integers of 8 bits; half of the latter is carried over from the last step.
# With feedback all of them learn as exact does.
MAX_ERROR, MAX_ERROR_WITHOUT_FEEDBACK = 0.3, 0.01
SAMPLED = 1 << 14
USUAL_GAPS = 16      # the last gaps that count
PAUSE = 3.0          # times the usual gap between two steps
UNKNOWN = -1.0       # no time, error or share
REFUSALS = (Status.INVALID_ARGUMENT, Status.LIMIT_EXCEEDED, Status.UNAVAILABLE)

HOOK_CANDIDATES = (Candidate("planes", 5), Candidate("levels", 4), Candidate("entropy", 8), Candidate("sketch", 8),
                   Candidate("planes", 8), Candidate("planes", 16), EXACT)

log = logging.getLogger("spillway")

Tolerances = Dict[Candidate, Optional[abi.OperationOptions]]  # None: exact
MakeOptions = Callable[[str, int], abi.OperationOptions]


# ---- Candidates ----

def tolerances_of(candidates: Sequence[Candidate], make: MakeOptions) -> Tolerances:
    """Options per candidate. Drops those that the library lacks or that conflict with the caller's arguments, for
    which `make` raises ValueError. For the finest planes that is the caller's mistake and propagates."""
    made: Tolerances = {EXACT: None, Candidate("planes", 16): make("planes", 16)}
    for candidate in candidates:
        if candidate in made or candidate.codec not in abi.CODECS:
            continue
        try:
            made[candidate] = make(*candidate)
        except ValueError:
            continue
    return {candidate: made[candidate] for candidate in candidates if candidate in made}


def average(member: Member, tensor: torch.Tensor, reduction: int = abi.AVERAGE) -> Operation:
    """Starts an exact average in place."""
    span = HostSpan([tensor], "all_reduce")
    return Operation("all_reduce", span, span, span.pointer, span.pointer, span.count, span.type,
                     reduction).start(member)


def is_accepted(member: Member, options: abi.OperationOptions, operation: str = "all_reduce") -> bool:
    """True if the group can carry it out; encryption, servers and the number of ranks forbid some. All ranks must call
    it."""
    world = member.communicator.world
    send = HostSpan([torch.zeros(SAMPLED * world)], operation, 1 if operation == "all_reduce" else world)
    receive = HostSpan([torch.zeros(send.count)], operation)
    try:
        Operation(operation, send, receive, send.pointer, receive.pointer, send.count, send.type, abi.AVERAGE,
                  options=options).start(member).wait()
    except SpillwayError as error:
        if error.status not in REFUSALS:
            raise
        return False
    return True


def accepted(member: Member, tolerances: Tolerances) -> Tolerances:
    """All ranks must call it."""
    return {candidate: options for candidate, options in tolerances.items()
            if options is None or is_accepted(member, options)}


def say(member: Member, choice: Optional[Choice], what: str) -> None:
    if choice is not None and member.communicator.rank == 0:
        log.info("codec auto, after %d %s: %s\n%s", choice.units, what, choice, choice.table())


# ---- Agreement ----

class Agreement:
    """An all-reduce under way: the element-wise maximum over all ranks."""

    def __init__(self, member: Member, values: Sequence[float]) -> None:
        self._values = torch.tensor(values, dtype=torch.float64)
        self._operation = average(member, self._values, reduction=abi.MAX)

    def result(self) -> List[float]:
        self._operation.wait()
        return self._values.tolist()


def known(value: float) -> Optional[float]:
    return None if value == UNKNOWN else value


def number(value: Optional[float]) -> float:
    return UNKNOWN if value is None or not math.isfinite(value) else value


class StepClock:
    """Measures steps without the pauses between them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._gaps: Deque[float] = collections.deque(maxlen=USUAL_GAPS)
        self._ended: Optional[float] = None
        self._began = 0.0
        self._gap = 0.0

    def begin(self) -> None:
        """Call at the step's first bucket."""
        self._began = self._now()
        usual = statistics.median_low(self._gaps) if self._gaps else 0.0
        gap = usual if self._ended is None else self._began - self._ended
        if self._ended is not None:
            self._gaps.append(gap)
        self._gap = usual if usual and gap > PAUSE * usual else gap

    def end(self) -> float:
        return self._gap + self._now() - self._began

    def rest(self) -> None:
        """The next step's time begins here."""
        self._ended = self._now()


class ErrorSample:
    """Some values of each bucket in a step, from before averaging. A sampled value stands for `stride` values."""

    def __init__(self) -> None:
        self._now: List[torch.Tensor] = []
        self._before: List[torch.Tensor] = []
        self._strides: List[int] = []

    def add(self, bucket: torch.Tensor) -> None:
        if bucket.is_floating_point():
            stride = bucket.numel() // SAMPLED | 1  # odd, so that samples do not all fall in one matrix column
            self._now.append(bucket.detach()[::stride])
            self._before.append(self._now[-1].float().clone())
            self._strides.append(stride)

    def error_and_zeros(self, member: Member) -> Tuple[float, float]:
        """Call when the step is over."""
        if not self._now:
            return UNKNOWN, UNKNOWN
        average_of_all = torch.cat(self._before)
        average(member, average_of_all).wait()
        error = energy = zeros = values = 0.0
        exact_parts = average_of_all.split([len(some) for some in self._now])
        for now, exact, stride in zip(self._now, exact_parts, self._strides):
            error += stride * float((now.double() - exact.double()).square().sum())
            energy += stride * float(exact.double().square().sum())
            zeros += stride * int((exact == 0).sum())
            values += stride * len(exact)
        return number(error / energy if energy else None), zeros / values


# ---- The hook's side ----

class AutoCodec:
    """`tolerances`: options of all candidates; the group must accept each of them."""

    def __init__(self, member: Member, tolerances: Tolerances, make: MakeOptions, max_error: float) -> None:
        self._member, self._tolerances, self._make, self._max_error = member, tolerances, make, max_error
        self._chooser = CodecChooser(list(tolerances), max_error)
        self._clock = StepClock()
        self._hint: Optional[float] = None
        self._agreement: Optional[Agreement] = None
        self._sample: Optional[ErrorSample] = None
        self._seconds: List[float] = []  # of the current trial or use
        self._said: Optional[Choice] = None

    @property
    def choice(self) -> Optional[Choice]:
        return self._chooser.choice

    @property
    def tolerance(self) -> Optional[abi.OperationOptions]:
        """Options of the step under way, if it counts. None: exact."""
        candidate = self._chooser.candidate
        if candidate not in self._tolerances:
            self._tolerances[candidate] = self._make(*candidate)
        return self._tolerances[candidate]

    def resume(self, candidate: Candidate) -> None:
        """Restarts with the choice that a checkpoint recorded."""
        self._chooser = CodecChooser(list(self._tolerances), self._max_error, candidate)
        self._agreement, self._seconds = None, []

    def begin_step(self, counts: bool) -> None:
        """Call at the step's first bucket."""
        self._take_agreement()
        self._clock.begin()
        is_last = len(self._seconds) + 1 == self._chooser.units
        self._sample = ErrorSample() if counts and is_last and self._chooser.is_measured else None

    def add(self, bucket: torch.Tensor) -> None:
        """Call before the bucket is averaged."""
        if self._sample is not None:
            self._sample.add(bucket)

    def end_step(self, counts: bool, longest: Callable[[], float]) -> None:
        """Call when all buckets are averaged; `longest` returns the seconds of the slowest bucket."""
        seconds = self._clock.end()
        if counts:
            self._seconds.append(seconds)
            if len(self._seconds) == self._chooser.units:
                self._agree()
        else:
            self._hint = min(longest(), math.inf if self._hint is None else self._hint)
        self._clock.rest()

    def _agree(self) -> None:
        error, zeros = (UNKNOWN, UNKNOWN) if self._sample is None else self._sample.error_and_zeros(self._member)
        hint = -math.inf if self._hint is None else -self._hint  # the shortest: its rank waited for no other
        self._agreement = Agreement(self._member, (statistics.median(self._seconds), error, zeros, hint))
        self._hint, self._seconds = None, []

    def _take_agreement(self) -> None:
        if self._agreement is None:
            return
        agreement, self._agreement = self._agreement, None
        seconds, error, zeros, hint = agreement.result()
        if math.isfinite(hint):
            self._chooser.hint_exact(-hint)
        self._chooser.note(Seen(seconds, known(error), known(zeros)))
        if self.choice is not self._said:
            self._said = self.choice
            say(self._member, self.choice, "steps")
