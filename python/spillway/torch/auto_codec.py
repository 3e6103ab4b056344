# SPDX-License-Identifier: Apache-2.0
"""codec="auto": a hook's steps are timed, now and then compared with the exact sum, and go by what the chooser says.

A step's time goes from the end of the backward pass before it to its own end: a code that takes processors from the
model pays for them, too. Of the part before the first bucket a pause counts as what is usual, so that an evaluation or a
checkpoint is held against no code. Links and processors are not measured apart: a step has both in it.

The error is of a sample: SAMPLED values of each bucket, evenly spread, are averaged exactly behind the step, outside of
its time. Their zeros say how sparse gradients are.

Invariants: ranks go by what they agreed on, the longest time and the largest error of all, so they always use the same
code. They agree behind steps of trials, and while a code is in use behind every LOOK_EVERY-th; the answer is waited for
when the next step begins. Of steps that do not count (warm-up, exact()) only the all-reduces are timed, as a hint of what
exact takes: a first step has much in it that no other has.
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
from .host_span import HostSpan
from .operation import Member, Operation

# By default, with error feedback and without. On a CNN's gradients 5 planes err by 0.006, 4 bits of thc by 0.05, coded
# numbers of 8 bits by 0.1 to 0.5, half of it what the last step still owed; with feedback all learn as exact does.
MAX_ERROR, MAX_ERROR_WITHOUT_FEEDBACK = 0.3, 0.01
SAMPLED = 1 << 14
USUAL_GAPS = 16      # of the last so many
PAUSE = 3.0          # times what is usual between two steps
UNKNOWN = -1.0       # no time, error or share
REFUSALS = (Status.INVALID_ARGUMENT, Status.LIMIT_EXCEEDED, Status.UNAVAILABLE)

HOOK_CANDIDATES = (Candidate("planes", 5), Candidate("thc", 4), Candidate("coded", 8), Candidate("sketch", 8),
                   Candidate("planes", 8), Candidate("planes", 16), EXACT)

log = logging.getLogger("spillway")

Tolerances = Dict[Candidate, Optional[abi.OperationOptions]]  # None: exact
MakeOptions = Callable[[str, int], abi.OperationOptions]


# ---- What there is to choose from ----

def tolerances_of(candidates: Sequence[Candidate], make: MakeOptions) -> Tolerances:
    """Without those that the library does not have, or that do not go with the caller's arguments. `make` raises a
    ValueError for these; for the finest planes it is the caller's mistake."""
    made: Tolerances = {EXACT: None, Candidate("planes", 16): make("planes", 16)}
    for candidate in candidates:
        if candidate in made or candidate.codec not in abi.CODES:
            continue
        try:
            made[candidate] = make(*candidate)
        except ValueError:
            continue
    return {candidate: made[candidate] for candidate in candidates if candidate in made}


def average(member: Member, tensor: torch.Tensor, options: Optional[abi.OperationOptions] = None,
            reduction: int = abi.AVERAGE) -> Operation:
    """In place; under way."""
    span = HostSpan([tensor], "all_reduce")
    return Operation("all_reduce", span, span, span.pointer, span.pointer, span.count, span.type, reduction,
                     options=options).start(member)


def is_accepted(member: Member, options: abi.OperationOptions) -> bool:
    """Whether the group can carry it out (encryption, servers and the number of ranks forbid some)."""
    try:
        average(member, torch.zeros(SAMPLED), options).wait()
    except SpillwayError as error:
        if error.status not in REFUSALS:
            raise
        return False
    return True


def accepted(member: Member, tolerances: Tolerances) -> Tolerances:
    """All ranks call it."""
    return {candidate: options for candidate, options in tolerances.items()
            if options is None or is_accepted(member, options)}


def say(member: Member, choice: Optional[Choice], what: str) -> None:
    if choice is not None and member.communicator.rank == 0:
        log.info("codec auto, after %d %s: %s\n%s", choice.units, what, choice, choice.table())


# ---- What ranks agree on ----

class Agreement:
    """The largest of what ranks say, place by place; under way."""

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
    """How long steps take, pauses between them left out."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._gaps: Deque[float] = collections.deque(maxlen=USUAL_GAPS)
        self._ended: Optional[float] = None
        self._began = 0.0
        self._gap = 0.0

    def begin(self) -> None:
        """At the first bucket."""
        self._began = self._now()
        usual = statistics.median_low(self._gaps) if self._gaps else 0.0
        gap = usual if self._ended is None else self._began - self._ended
        if self._ended is not None:
            self._gaps.append(gap)
        self._gap = usual if usual and gap > PAUSE * usual else gap

    def end(self) -> float:
        return self._gap + self._now() - self._began

    def rest(self) -> None:
        """The next step begins here."""
        self._ended = self._now()


class ErrorSample:
    """Some values of every bucket of a step, as they were before it. Each stands for as many as its bucket has of its
    kind."""

    def __init__(self) -> None:
        self._now: List[torch.Tensor] = []
        self._before: List[torch.Tensor] = []
        self._strides: List[int] = []

    def add(self, bucket: torch.Tensor) -> None:
        if bucket.is_floating_point():
            stride = bucket.numel() // SAMPLED | 1  # odd: no column of a matrix alone
            self._now.append(bucket.detach()[::stride])
            self._before.append(self._now[-1].float().clone())
            self._strides.append(stride)

    def error_and_zeros(self, member: Member) -> Tuple[float, float]:
        """When the step is over."""
        if not self._now:
            return UNKNOWN, UNKNOWN
        average_of_all = torch.cat(self._before)
        average(member, average_of_all).wait()
        error = energy = zeros = values = 0.0
        for now, exact, stride in zip(self._now, average_of_all.split([len(some) for some in self._now]), self._strides):
            error += stride * float((now.double() - exact.double()).square().sum())
            energy += stride * float(exact.double().square().sum())
            zeros += stride * int((exact == 0).sum())
            values += stride * len(exact)
        return number(error / energy if energy else None), zeros / values


# ---- The hook's half ----

class AutoCodec:
    """`tolerances`: of all candidates, all of which the group accepts."""

    def __init__(self, member: Member, tolerances: Tolerances, make: MakeOptions, max_error: float) -> None:
        self._member, self._tolerances, self._make, self._max_error = member, tolerances, make, max_error
        self._chooser = CodecChooser(list(tolerances), max_error)
        self._clock = StepClock()
        self._hint: Optional[float] = None
        self._agreement: Optional[Agreement] = None
        self._sample: Optional[ErrorSample] = None
        self._seconds: List[float] = []  # of the units under way
        self._said: Optional[Choice] = None

    @property
    def choice(self) -> Optional[Choice]:
        return self._chooser.choice

    @property
    def tolerance(self) -> Optional[abi.OperationOptions]:
        """Of the step under way, if it counts; None: exact."""
        candidate = self._chooser.candidate
        if candidate not in self._tolerances:
            self._tolerances[candidate] = self._make(*candidate)
        return self._tolerances[candidate]

    def resume(self, candidate: Candidate) -> None:
        """With what a checkpoint says was chosen."""
        self._chooser = CodecChooser(list(self._tolerances), self._max_error, candidate)
        self._agreement, self._seconds = None, []

    def begin_step(self, counts: bool) -> None:
        """At its first bucket."""
        self._take_agreement()
        self._clock.begin()
        is_last = len(self._seconds) + 1 == self._chooser.units
        self._sample = ErrorSample() if counts and is_last and self._chooser.is_measured else None

    def add(self, bucket: torch.Tensor) -> None:
        """Before it is averaged."""
        if self._sample is not None:
            self._sample.add(bucket)

    def end_step(self, counts: bool, longest: float) -> None:
        """When all buckets have been averaged; `longest`: seconds that one of them took."""
        seconds = self._clock.end()
        if counts:
            self._seconds.append(seconds)
            if len(self._seconds) == self._chooser.units:
                self._agree()
        else:
            self._hint = longest if self._hint is None else min(self._hint, longest)
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
