# SPDX-License-Identifier: Apache-2.0
"""Finds the fastest codec by trying: takes times and errors, returns decisions.

    chooser = CodecChooser(candidates, max_error=0.1)
    chooser.candidate, chooser.purpose, chooser.units        # the coming units' codec, its purpose, and their number
    chooser.note(Seen(seconds, error, zeros))                # measurements of these units
    chooser.choice                                           # the last choice, with all trials; None before the first

A unit is a training step, or anything else whose time is the same again and again. A candidate's first unit settles,
unless it is exact or in use: its tables, scales and error feedback have yet to reach their usual state. Its second
unit is timed, and its error measured. A candidate that is far behind, or errs more than allowed, is dropped at once.
The rest take turns, in rounds that grow longer as fewer are left, and medians decide. A candidate that stays long is
close to the best, so trials cost little. Among those within TIE of the shortest, the chooser takes the one with the
least error. The one in use stays if it is within STAYS.

Candidates that cannot win are not tried. More bits of one codec take longer, nearly in proportion: the times of two
precisions predict a third. For entropy-coded integers, every bit quarters the error: the first measurement tells which
precision fits.

After a choice, the chooser looks every LOOK_EVERY units whether the time is the same, within CHANGE, and the error
allowed; if not, it tries all again. Now and then it tries the best few anyway. The more often a choice was confirmed,
the longer the next change has to last.

Invariants: decisions follow from noted values alone, so ranks that note the same choose the same. `candidates`
contains "exact", which is always allowed. One thread at a time.
"""
import collections
import dataclasses
import enum
import math
import statistics
from typing import Deque, Generator, List, NamedTuple, Optional, Sequence, Tuple

SETTLING_LIMIT = 2.0                  # times the shortest; a slower first unit gets no second
ROUNDS = ((1.5, 7, 1), (1.2, 3, 2), (1.08, 3, 4))  # limit over the shortest, contenders kept, turns
TURN = 2                              # units per turn
TIE = 1.03
STAYS = 1.05
SKIPPED_PLANES, SKIPPED_EXACT = 1.25, 4.0  # predicted, over the shortest: not tried. Exact needs no coding
LEAST_ZEROS = 0.5                     # share of the gradient, for codecs made for zeros
LOOK_EVERY = 50
CHANGE = 1.3
LOOKS_TO_RETRY = 100
LOOKS_TOO_COARSE = 2                  # consecutive; one step of small gradients after large ones says little
MAX_PATIENCE = 32                     # looks before a change is believed
FEW = 3
CODED_PRECISIONS = (4, 14)            # range of a fit
EXACT_BITS = 32


class Candidate(NamedTuple):
    codec: str
    precision: int = EXACT_BITS

    def __str__(self) -> str:
        return self.codec if self.codec == "exact" else f"{self.codec} {self.precision}"

    @staticmethod
    def parse(text: str) -> "Candidate":
        codec, _, precision = text.partition(" ")
        return Candidate(codec, int(precision) if precision else EXACT_BITS)


EXACT = Candidate("exact")


class Purpose(enum.Enum):
    SETTLE = "settle"
    TIME = "time"
    USE = "use"


class Seen(NamedTuple):
    """Measurements of units that are over; the same at all ranks. None: not known."""
    seconds: Optional[float] = None  # per unit, the median if there were several
    error: Optional[float] = None    # squared, over the exact sum's energy
    zeros: Optional[float] = None    # share of the exact sum


@dataclasses.dataclass(frozen=True)
class Trial:
    candidate: Candidate
    seconds: Optional[float]  # median per unit; None: not timed
    error: Optional[float]    # None: not measured
    outcome: str

    def __str__(self) -> str:
        seconds = "" if self.seconds is None else f"{1e3 * self.seconds:.4g} ms, "
        error = "" if self.error is None else f"error {self.error:.2g}, "
        return f"{self.candidate}: {seconds}{error}{self.outcome}"


@dataclasses.dataclass(frozen=True)
class Choice:
    """`units`: the number that preceded the choice. `trials`: in the order in which they were tried."""
    candidate: Candidate
    why: str
    units: int
    trials: Tuple[Trial, ...] = ()

    def __str__(self) -> str:
        return f"{self.candidate}: {self.why}"

    def table(self) -> str:
        return "\n".join(map(str, self.trials))


class Contender:
    """A candidate during its trials."""

    def __init__(self, candidate: Candidate, in_use: Optional[Candidate]) -> None:
        self.candidate, self.is_settled = candidate, candidate in (in_use, EXACT)
        self.timed: List[float] = []
        self.error: Optional[float] = 0.0 if candidate == EXACT else None
        self.settling: Optional[float] = None
        self.dropped = ""  # the reason

    @property
    def is_known(self) -> bool:
        return bool(self.timed) or self.settling is not None

    @property
    def seconds(self) -> float:
        """Valid if `is_known`."""
        return statistics.median(self.timed) if self.timed else self.settling or 0.0

    @property
    def is_racing(self) -> bool:
        return not self.dropped and bool(self.timed)

    def coarseness(self) -> float:
        """Its error or, if nobody measures, what its bits suggest."""
        return 4.0 ** -self.candidate.precision if self.error is None else self.error


def fitting_precision(precision: int, error: float, max_error: float) -> int:
    """The fewest coded bits that err at most half of what is allowed, given the error at `precision`."""
    bits = precision + math.ceil(0.5 * math.log2(max(error, 1e-30) / (0.5 * max_error)))
    return min(max(bits, CODED_PRECISIONS[0]), CODED_PRECISIONS[1])


Coming = Tuple[Candidate, Purpose, int]


class CodecChooser:
    """`max_error`: the limit of a unit's error, above 0. `chosen`: an earlier run's choice; nothing is tried at
    first."""

    def __init__(self, candidates: Sequence[Candidate], max_error: float, chosen: Optional[Candidate] = None) -> None:
        self._candidates, self._max_error = list(candidates), max_error
        self._in_use: Optional[Candidate] = chosen
        self._exact_hint: Optional[float] = None
        self._zeros: Optional[float] = None
        self._is_measured = False
        self._contenders: List[Contender] = []
        self._units = 0
        self.choice: Optional[Choice] = None if chosen is None else Choice(chosen, "as before", 0)
        self._plan = self._go_on()
        self._coming: Coming = next(self._plan)

    @property
    def candidate(self) -> Candidate:
        return self._coming[0]

    @property
    def purpose(self) -> Purpose:
        return self._coming[1]

    @property
    def units(self) -> int:
        """Units that pass before the next note()."""
        return self._coming[2]

    @property
    def is_measured(self) -> bool:
        """True if the last of these units must also be compared with the exact sum."""
        return self._is_measured

    def hint_exact(self, seconds: float) -> None:
        """Time of an exact unit before the trials, or of a part of it."""
        self._exact_hint = seconds

    def note(self, seen: Seen) -> None:
        self._units += self.units
        self._zeros = seen.zeros if seen.zeros is not None else self._zeros
        self._coming = self._plan.send(seen)

    def _go_on(self) -> Generator[Coming, Seen, None]:
        tried = self._candidates
        patience = 1
        if self._in_use is not None:
            tried = yield from self._use(self._in_use, patience)
        while True:
            before = self._in_use
            chosen = yield from self._try(tried)
            self._exact_hint = None
            patience = min(2 * patience, MAX_PATIENCE) if chosen == before else 1
            self._in_use = chosen
            tried = yield from self._use(chosen, patience)

    # ---- In use ----

    def _use(self, candidate: Candidate, patience: int) -> Generator[Coming, Seen, List[Candidate]]:
        """Returns the candidates to try again."""
        usual: Optional[float] = None
        too_coarse = 0
        for look in range(LOOKS_TO_RETRY):
            self._is_measured = True
            seen = yield candidate, Purpose.USE, LOOK_EVERY
            too_coarse = too_coarse + 1 if seen.error is not None and seen.error > self._max_error else 0
            if too_coarse == LOOKS_TOO_COARSE:
                return self._incumbent_first(self._candidates)
            if seen.seconds is None:
                continue
            usual = seen.seconds if usual is None else usual
            if look >= patience and not usual / CHANGE <= seen.seconds <= usual * CHANGE:
                return self._incumbent_first(self._candidates)
        return self._incumbent_first(self._best_few())

    def _incumbent_first(self, others: Sequence[Candidate]) -> List[Candidate]:
        assert self._in_use is not None
        return [self._in_use, *(other for other in others if other != self._in_use)]

    def _best_few(self) -> List[Candidate]:
        timed = sorted((each for each in self._contenders if each.timed), key=lambda each: each.seconds)
        return [each.candidate for each in timed[:FEW]] or self._candidates

    # ---- Trials ----

    def _try(self, candidates: Sequence[Candidate]) -> Generator[Coming, Seen, Candidate]:
        self._contenders = []
        waiting: Deque[Contender] = collections.deque(Contender(each, self._in_use) for each in candidates)
        while waiting:
            contender = waiting.popleft()
            self._contenders.append(contender)
            contender.dropped = self._why_not_tried(contender)
            if not contender.dropped:
                yield from self._try_once(contender)
                self._add_what_fits(contender, waiting)
        for limit, most, turns in ROUNDS:
            self._drop_beyond(limit, most)
            yield from self._race(turns)
        return self._choose()

    def _try_once(self, contender: Contender) -> Generator[Coming, Seen, None]:
        if not contender.is_settled:
            self._is_measured = False
            seen = yield contender.candidate, Purpose.SETTLE, 1
            contender.settling = seen.seconds
            shortest = self._shortest()
            if shortest and seen.seconds is not None and seen.seconds > SETTLING_LIMIT * shortest:
                contender.dropped = f"{seen.seconds / shortest:.2g} times the shortest in its first"
                return
        self._is_measured = contender.error is None
        seen = yield contender.candidate, Purpose.TIME, 1
        self._take(contender, seen)

    def _race(self, turns: int) -> Generator[Coming, Seen, None]:
        self._is_measured = False
        racing = self._racing()
        for contender in racing * turns if len(racing) > 1 else []:
            for _ in range(TURN):
                seen = yield contender.candidate, Purpose.TIME, 1
                self._take(contender, seen)

    def _take(self, contender: Contender, seen: Seen) -> None:
        if seen.seconds is not None:
            contender.timed.append(seen.seconds)
        if seen.error is not None and contender.error is None:
            contender.error = seen.error
            if seen.error > self._max_error:
                contender.dropped = f"errs more than {self._max_error:g}"

    def _add_what_fits(self, contender: Contender, waiting: Deque[Contender]) -> None:
        codec, precision = contender.candidate
        if codec != "entropy" or contender.error is None:
            return
        fitting = Candidate(codec, fitting_precision(precision, contender.error, self._max_error))
        if not contender.dropped and fitting.precision > precision:
            return  # it is already precise enough
        if not any(each.candidate == fitting for each in [*self._contenders, *waiting]) and not self._has_fit():
            waiting.appendleft(Contender(fitting, self._in_use))

    def _has_fit(self) -> bool:
        """True if a fitted precision was tried; only one is tried beside the candidates asked for."""
        asked_for = (*self._candidates, self._in_use)
        return any(each.candidate.codec == "entropy" and each.candidate not in asked_for for each in self._contenders)

    def _why_not_tried(self, contender: Contender) -> str:
        """Empty if it is to be tried."""
        if contender.candidate.codec == "sketch" and (self._zeros is None or self._zeros < LEAST_ZEROS):
            return f"not tried: {100 * (self._zeros or 0.0):.0f} % of the gradient are zeros"
        shortest, foretold = self._shortest(), self._foretold(contender.candidate)
        limit = SKIPPED_EXACT if contender.candidate == EXACT else SKIPPED_PLANES
        if shortest and foretold is not None and foretold > limit * shortest:
            return f"not tried: by its bits {foretold / shortest:.2g} times the shortest"
        return ""

    def _foretold(self, candidate: Candidate) -> Optional[float]:
        """The least likely time of planes and exact: a straight line from the time of the fewest bits to that of the
        most, or to the hint for exact."""
        if candidate.codec not in ("planes", "exact"):
            return None
        timed = sorted((each.candidate.precision, each.seconds) for each in self._contenders
                       if each.candidate.codec == "planes" and each.timed)
        ends = timed[-1:] if len(timed) > 1 else []
        ends += [(EXACT_BITS, self._exact_hint)] if self._exact_hint is not None else []
        if not timed or not ends or candidate.precision <= timed[0][0]:
            return None
        fewest, least = timed[0]
        return min(least + (longest - least) * (candidate.precision - fewest) / (most - fewest)
                   for most, longest in ends)

    def _racing(self) -> List[Contender]:
        """Shortest first."""
        return sorted((each for each in self._contenders if each.is_racing), key=lambda each: each.seconds)

    def _shortest(self) -> Optional[float]:
        racing = self._racing()
        return racing[0].seconds if racing else None

    def _drop_beyond(self, limit: float, most: int) -> None:
        """If too many are left, those that tie with the shortest stay first, the most precise before others."""
        shortest = self._shortest() or 0.0
        ranked = sorted(self._racing(), key=lambda each: (0.0 if each.seconds <= TIE * shortest else each.seconds,
                                                          each.coarseness()))
        for place, each in enumerate(ranked):
            if place >= most or each.seconds > limit * shortest:
                each.dropped = f"{each.seconds / shortest:.2f} times the shortest"

    # ---- The choice ----

    def _choose(self) -> Candidate:
        racing = self._racing()
        if not racing:
            return self._decide(EXACT, f"no codec errs less than {self._max_error:g}")
        best = racing[0]
        close = {each.candidate: each for each in racing if each.seconds <= STAYS * best.seconds}
        tied = [each for each in racing if each.seconds <= TIE * best.seconds]
        finest = min(tied, key=Contender.coarseness)
        if self._in_use in close and self._in_use != best.candidate:
            return self._decide(self._in_use, f"in use, and within {100 * (STAYS - 1):.0f} % of the shortest, "
                                f"{best.candidate}")
        if self._in_use == best.candidate or finest is best:
            return self._decide(best.candidate, f"the shortest, {1e3 * best.seconds:.4g} ms")
        return self._decide(finest.candidate, f"within {100 * (TIE - 1):.0f} % of the shortest, {best.candidate}, and "
                            "errs less")

    def _decide(self, chosen: Candidate, why: str) -> Candidate:
        shortest = self._shortest() or math.inf
        trials = tuple(Trial(each.candidate, each.seconds if each.is_known else None, each.error,
                             "chosen" if each.candidate == chosen
                             else each.dropped or f"{each.seconds / shortest:.2f} times the shortest")
                       for each in self._contenders)
        self.choice = Choice(chosen, why, self._units, trials)
        return chosen
