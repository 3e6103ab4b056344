# SPDX-License-Identifier: Apache-2.0
"""A real rank's place in a group of a staged world (spillway emulate stage): SpillwayGroup uses it as its
Communicator. An operation ends when real ranks have exchanged their data and its time at the stage has come,
whichever is later.

    call ──► stage: when does it end?            ──► the answer, a time of the clock
        └──► real ranks' own communicator, then the virtual ranks' data is filled in (staged_data.py)

Waits are sleeps. Threads: any may call and wait; all real ranks of a group call in the same order.
"""
import datetime
import threading
import time
from typing import Any, List, Optional, Sequence

from .. import abi
from ..communicator import Communicator
from ..errors import SpillwayError, Status
from ..request import OperationReport, operation_report_from
from . import staged_data
from .meeting import join_through_store
from .stage_link import Answer, StageLink
from .staged_data import SIZES, Exchange, Place
from .threads import waiters

ROOTED = ("broadcast", "reduce", "gather", "scatter")
OF_PARTS = ("reduce_scatter", "all_to_all", "scatter")  # sizes count all ranks' parts
UNEVEN = "uneven_all_to_all"  # the stage's part of an all-to-all with uneven sizes


class StagedRequest:
    """Like a Request (request.py). `made_up` names what virtual ranks contributed to, or is None."""

    def __init__(self, link: StageLink, described: str, answer: Answer, exchange: Exchange,
                 communicator: Optional[Communicator], source: Optional[int], made_up: Optional[str], keep: Any) -> None:
        self._link, self._described, self._answer, self._exchange = link, described, answer, exchange
        self._communicator, self._source, self.made_up, self.keep = communicator, source, made_up, keep
        self._error: Optional[SpillwayError] = None
        self._is_exchanged = threading.Event()
        if exchange.is_trivial:
            self._is_exchanged.set()
        else:
            waiters.run(self._carry_out)

    def _carry_out(self) -> None:
        try:
            if self._exchange.request is not None:
                self._exchange.request.wait()
            self._exchange.finish()
        except SpillwayError as error:
            self._error = error
        except Exception as error:  # waiting threads must get it
            self._error = SpillwayError(Status.INTERNAL, f"{self._described}: {error}")
        self._is_exchanged.set()

    def wait(self, timeout_ms: int = -1) -> bool:
        began_ns = time.monotonic_ns()
        deadline_ns = None if timeout_ms < 0 else began_ns + timeout_ms * 1_000_000

        def left_s() -> Optional[float]:
            return None if deadline_ns is None else max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)

        try:
            end_ns = self._answer.wait(left_s())
        except SpillwayError as error:
            self._give_up(error)
            raise SpillwayError(error.status, f"{self._described}: {error}") from None
        if end_ns is None or not self._is_exchanged.wait(left_s()):
            return False
        if self._error is not None:
            raise self._error
        if deadline_ns is not None and deadline_ns < end_ns:
            self._link.sleep.until(deadline_ns)
            return False
        self._link.sleep.until(end_ns)
        self._link.note_wait(began_ns, time.monotonic_ns())
        return True

    def _give_up(self, error: SpillwayError) -> None:
        """Aborts the real ranks' own exchange, which might not end by itself."""
        if self._communicator is not None and self._communicator.handle is not None:
            self._communicator.abort(f"the stage: {error}")

    def is_done(self) -> bool:
        if not self._answer.is_there():
            return False
        if self._answer.error is not None:
            return True
        if not self._is_exchanged.is_set():
            return False
        end_ns = self._answer.wait(0)
        return self._error is not None or (end_ns is not None and time.monotonic_ns() >= end_ns)

    def status(self) -> Status:
        error = self._answer.error or self._error
        if error is not None:
            return Status(error.status)
        return Status.OK if self.is_done() else Status.IN_PROGRESS

    def source(self) -> Optional[int]:
        return self._source

    def report(self) -> OperationReport:
        """Covers what real ranks exchanged; all zeros if nothing."""
        if self._exchange.request is None:
            return operation_report_from(abi.OperationReport(), (), ())
        return self._exchange.request.report()


class StagedCommunicator:
    """`ranks` are the group's job ranks, ascending. `communicator` joins its real ranks; None if there is only one."""

    handle = None  # not a communicator of the library

    def __init__(self, link: StageLink, name: str, ranks: Sequence[int], communicator: Optional[Communicator]) -> None:
        self.library = abi.default_library()
        self.rank, self.world = ranks.index(link.rank), len(ranks)
        self._link, self._name, self.ranks, self._communicator = link, name, ranks, communicator
        real = set(link.real)
        self.place = Place(self.world, [place for place, rank in enumerate(ranks) if rank in real], self.rank,
                           communicator)
        self._lock = threading.Lock()
        self._calls = 0
        self._is_closed = False
        self._group = link.group(name, ranks)

    def options(self) -> abi.OperationOptions:
        return self.library.options()

    def start(self, operation: str, *arguments: Any, options: Optional[abi.OperationOptions] = None,
              keep: Any = None) -> StagedRequest:
        """Like Communicator.start()."""
        with self._lock:
            if self._is_closed:
                raise SpillwayError(Status.INVALID_ARGUMENT, f"{self._describe(operation)}: the communicator is closed")
            if operation in ("send", "receive"):
                return self._start_message(operation, arguments, options, keep)
            sequence, self._calls = self._calls, self._calls + 1
            root = arguments[-1] if operation in ROOTED else 0
            described = f"{operation} {sequence} of group '{self._name}' at rank {self._link.rank}"
            if operation == UNEVEN:
                answer = self._link.call("all_to_all", self._group, arguments[0], self.ranks[0], uneven=True)
                exchange = Exchange()
            else:
                answer = self._link.call(operation, self._group, self._bytes(operation, arguments), self.ranks[root],
                                         patience_ms=0 if options is None else options.timeout_ms)
                exchange = getattr(staged_data, operation)(self.place, *arguments, options=options)
            made_up = described if self._has_virtual_part(operation, root) else None
            return StagedRequest(self._link, described, answer, exchange, self._communicator, None, made_up,
                                 (arguments, options, keep))

    def _start_message(self, verb: str, arguments: Any, options: Optional[abi.OperationOptions],
                       keep: Any) -> StagedRequest:
        _, count, element_type, peer = arguments
        if peer == abi.ANY_RANK:
            raise SpillwayError(Status.INVALID_ARGUMENT, f"{self._describe(verb)}: in a staged world a receive must say "
                                "from which rank: any rank may be a virtual one")
        described = f"{verb} {'to' if verb == 'send' else 'from'} rank {self.ranks[peer]} in group '{self._name}' at " \
                    f"rank {self._link.rank}"
        answer = self._link.message(verb, self.ranks[peer], self._group, count * SIZES[element_type],
                                    0 if options is None else options.tag)
        exchange = getattr(staged_data, verb)(self.place, *arguments, options=options)
        made_up = described if verb == "receive" and not self.place.is_real(peer) else None
        return StagedRequest(self._link, described, answer, exchange, self._communicator,
                             peer if verb == "receive" else None, made_up, (arguments, options, keep))

    def _bytes(self, operation: str, arguments: Any) -> int:
        """Bytes that a rank hands in, over all parts."""
        if operation == "barrier":
            return 0
        count, element_type = arguments[2], arguments[3]
        return count * SIZES[element_type] * (self.world if operation in OF_PARTS else 1)

    def _has_virtual_part(self, operation: str, root: int) -> bool:
        if self.place.virtual == 0 or operation in ("barrier", UNEVEN):
            return False
        return operation not in ("broadcast", "scatter") or not self.place.is_real(root)

    def run(self, operation: str, *arguments: Any, options: Optional[abi.OperationOptions] = None) -> None:
        self.start(operation, *arguments, options=options).wait()

    def abort(self, why: str) -> None:
        if self._communicator is not None:
            self._communicator.abort(why)

    def check_health(self) -> None:
        if self._communicator is not None:
            self._communicator.check_health()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        if self._communicator is not None:
            self._communicator.close()

    def _describe(self, operation: str) -> str:
        return f"{operation} at rank {self.rank} of {self.world} in group '{self._name}'"


def join_staged(link: StageLink, store: Any, world: int, timeout: datetime.timedelta, name: str,
                global_ranks: Optional[Sequence[int]]) -> StagedCommunicator:
    """Real ranks of the group meet through the store, as they would without virtual ones."""
    if int(abi.default_library().variable("SPILLWAY_SERVERS")) > 0:
        raise SpillwayError(Status.INVALID_ARGUMENT, "a staged world has no parameter servers: unset SPILLWAY_SERVERS")
    ranks: List[int] = list(global_ranks) if global_ranks else list(range(world))
    real = sorted(set(ranks) & set(link.real))
    communicator = None
    if len(real) > 1:
        communicator = join_through_store(store, real.index(link.rank), len(real), timeout, f"real ranks of {name}", real)
    return StagedCommunicator(link, name, ranks, communicator)
