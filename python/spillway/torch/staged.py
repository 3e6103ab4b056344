# SPDX-License-Identifier: Apache-2.0
"""A real rank's place in a group of a staged world (spillway emulate stage): SpillwayGroup uses it as its
Communicator. An operation ends when real ranks have exchanged their data and its time at the stage has come,
whichever is later.

    call ──► stage: when does it end?            ──► the answer, a time of the clock
        └──► real ranks' own communicator, then the virtual ranks' data is filled in

Real ranks exchange their data over a communicator of the group's real ranks; the virtual ranks' data is filled in:

    reductions      virtual ranks have the mean of the real ones: averages stay, a sum of K real ranks is scaled to
                    all N (whole numbers are rounded down), minimum and maximum stay; in products they count as ones
    gathers         copies of the lowest real rank's part
    broadcast       from a virtual root: the lowest real rank's data
    all-to-all      what this rank sent to the virtual one
    scatter, receive from a virtual rank: zeros

An Exchange is made by the call of an operation, when its input is there. `request` is the operation among real ranks,
or None. finish() fills in the rest when that has ended, in any thread.

Waits are sleeps. Threads: any may call and wait; all real ranks of a group call in the same order.
"""
import ctypes
import datetime
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from .. import abi
from ..communicator import Communicator
from ..errors import SpillwayError, Status
from ..request import OperationReport, Request, operation_report_from
from .operation import waiters
from .rendezvous import join_through_store
from .stage_link import Answer, StageLink
from .tensors import TYPES

# ---- The data ----

DTYPES = {number: dtype for dtype, number in TYPES.items() if dtype != torch.bool}
SIZES = {number: torch.empty((), dtype=dtype).element_size() for number, dtype in DTYPES.items()}


def memory_at(pointer: int, count: int, element_type: int) -> torch.Tensor:
    """The host memory at `pointer`, as a tensor."""
    dtype = DTYPES[element_type]
    if count == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer((ctypes.c_uint8 * (count * SIZES[element_type])).from_address(pointer), dtype=dtype)


class Place:
    """The real ranks of a group: `real` are their places in the group, ascending."""

    def __init__(self, world: int, real: List[int], own: int, communicator: Optional[Communicator]) -> None:
        self.world, self.real, self.own, self.communicator = world, real, own, communicator
        self.own_index = real.index(own)
        self.index = {place: index for index, place in enumerate(real)}
        self.virtual = world - len(real)

    def is_real(self, place: int) -> bool:
        return place in self.index

    def start(self, operation: str, *arguments: Any, options: Any = None) -> Optional[Request]:
        """Starts it among the real ranks; None if this is the only one."""
        if self.communicator is None:
            return None
        return self.communicator.start(operation, *arguments, options=options)


class Exchange:
    def __init__(self, request: Optional[Request] = None, finish: Optional[Callable[[], None]] = None,
                 keep: Any = None) -> None:
        self.request, self._finish, self._keep = request, finish, keep

    @property
    def is_trivial(self) -> bool:
        return self.request is None and self._finish is None

    def finish(self) -> None:
        if self._finish is not None:
            self._finish()
        self._finish = self._keep = None


def scale_sum(values: torch.Tensor, place: Place) -> None:
    if place.virtual == 0:
        return
    if values.dtype.is_floating_point:
        values.mul_(place.world / len(place.real))
    else:
        wide = values.to(torch.int64).mul_(place.world)
        values.copy_(wide.div_(len(place.real), rounding_mode="floor"))


def reduced(place: Place, receive: int, count: int, element_type: int, reduction: int) -> None:
    if reduction == abi.SUM:
        scale_sum(memory_at(receive, count, element_type), place)


def copy(receive: int, send: int, count: int, element_type: int) -> None:
    if receive != send:
        ctypes.memmove(receive, send, count * SIZES[element_type])


# ---- Each operation, with the arguments of its C function ----

def all_reduce(place: Place, send: int, receive: int, count: int, element_type: int, reduction: int,
               options: Any = None) -> Exchange:
    request = place.start("all_reduce", send, receive, count, element_type, reduction, options=options)

    def finish() -> None:
        if request is None:
            copy(receive, send, count, element_type)
        reduced(place, receive, count, element_type, reduction)

    return Exchange(request, finish)


def reduce(place: Place, send: int, receive: Optional[int], count: int, element_type: int, reduction: int, root: int,
           options: Any = None) -> Exchange:
    if not place.is_real(root):
        return Exchange()
    request = place.start("reduce", send, receive, count, element_type, reduction, place.index[root], options=options)

    def finish() -> None:
        if receive is None:
            return
        if request is None:
            copy(receive, send, count, element_type)
        reduced(place, receive, count, element_type, reduction)

    return Exchange(request, finish)


def real_parts(place: Place, send: int, count: int, element_type: int) -> torch.Tensor:
    """The parts for real ranks, one after another, out of one part per rank."""
    rows = memory_at(send, place.world * count, element_type).view(place.world, count)
    return rows[place.real].contiguous()


def reduce_scatter(place: Place, send: int, receive: int, count: int, element_type: int, reduction: int,
                   options: Any = None) -> Exchange:
    parts = real_parts(place, send, count, element_type)
    request = place.start("reduce_scatter", parts.data_ptr(), receive, count, element_type, reduction, options=options)

    def finish() -> None:
        if request is None:
            copy(receive, parts.data_ptr(), count, element_type)
        reduced(place, receive, count, element_type, reduction)

    return Exchange(request, finish, parts)


def fill_parts(place: Place, receive: int, parts: torch.Tensor, count: int, element_type: int) -> None:
    rows = memory_at(receive, place.world * count, element_type).view(place.world, count)
    rows.copy_(parts[:1].expand(place.world, count))
    rows[place.real] = parts


def own_part(place: Place, send: int, count: int, element_type: int) -> torch.Tensor:
    """Room for the real ranks' parts. A single real rank's part is already filled in."""
    parts = torch.empty(len(place.real), count, dtype=DTYPES[element_type])
    if place.communicator is None:
        parts[0] = memory_at(send, count, element_type)
    return parts


def all_gather(place: Place, send: int, receive: int, count: int, element_type: int, options: Any = None) -> Exchange:
    parts = own_part(place, send, count, element_type)
    request = place.start("all_gather", send, parts.data_ptr(), count, element_type, options=options)
    return Exchange(request, lambda: fill_parts(place, receive, parts, count, element_type), parts)


def gather(place: Place, send: int, receive: Optional[int], count: int, element_type: int, root: int,
           options: Any = None) -> Exchange:
    if not place.is_real(root):
        return Exchange()
    if receive is None:
        return Exchange(place.start("gather", send, None, count, element_type, place.index[root], options=options))
    parts = own_part(place, send, count, element_type)
    request = place.start("gather", send, parts.data_ptr(), count, element_type, place.index[root], options=options)
    return Exchange(request, lambda: fill_parts(place, receive, parts, count, element_type), parts)


def scatter(place: Place, send: Optional[int], receive: int, count: int, element_type: int, root: int,
            options: Any = None) -> Exchange:
    if not place.is_real(root):
        return Exchange(finish=lambda: memory_at(receive, count, element_type).zero_())
    parts = None if send is None else real_parts(place, send, count, element_type)
    request = place.start("scatter", None if parts is None else parts.data_ptr(), receive, count, element_type,
                          place.index[root], options=options)
    if request is not None or parts is None:
        return Exchange(request, keep=parts)
    return Exchange(finish=lambda: copy(receive, parts.data_ptr(), count, element_type), keep=parts)


def broadcast(place: Place, send: Optional[int], receive: int, count: int, element_type: int, root: int,
              options: Any = None) -> Exchange:
    """The lowest real rank stands in for a virtual root."""
    index = place.index.get(root, 0)
    source = (send or receive) if place.own_index == index else None
    return Exchange(place.start("broadcast", source, receive, count, element_type, index, options=options))


def all_to_all(place: Place, send: int, receive: int, count: int, element_type: int, options: Any = None) -> Exchange:
    parts = real_parts(place, send, count, element_type)
    got = torch.empty_like(parts)
    request = place.start("all_to_all", parts.data_ptr(), got.data_ptr(), count, element_type, options=options)

    def finish() -> None:
        copy(receive, send, place.world * count, element_type)
        if request is not None:
            memory_at(receive, place.world * count, element_type).view(place.world, count)[place.real] = got

    return Exchange(request, finish, (parts, got))


def barrier(place: Place, options: Any = None) -> Exchange:
    """Real ranks meet at the stage."""
    return Exchange()


def send(place: Place, pointer: int, count: int, element_type: int, peer: int, options: Any = None) -> Exchange:
    if not place.is_real(peer):
        return Exchange()
    return Exchange(place.start("send", pointer, count, element_type, place.index[peer], options=options))


def receive(place: Place, pointer: int, count: int, element_type: int, peer: int, options: Any = None) -> Exchange:
    if not place.is_real(peer):
        return Exchange(finish=lambda: memory_at(pointer, count, element_type).zero_())
    return Exchange(place.start("receive", pointer, count, element_type, place.index[peer], options=options))


EXCHANGES: Dict[str, Callable[..., Exchange]] = {
    each.__name__: each for each in (all_reduce, reduce, reduce_scatter, all_gather, gather, scatter, broadcast,
                                     all_to_all, barrier, send, receive)}


# ---- The communicator ----

ROOTED = ("broadcast", "reduce", "gather", "scatter")
OF_PARTS = ("reduce_scatter", "all_to_all", "scatter")  # sizes count all ranks' parts
UNEVEN = "uneven_all_to_all"  # the stage's part of an all-to-all with uneven sizes


class StagedRequest:
    """Like a Request (request.py). `virtual_part` names the operation if virtual ranks contributed to its result;
    otherwise it is None."""

    def __init__(self, link: StageLink, described: str, answer: Answer, exchange: Exchange,
                 communicator: Optional[Communicator], source: Optional[int], virtual_part: Optional[str],
                 keep: Any) -> None:
        self._link, self._described, self._answer, self._exchange = link, described, answer, exchange
        self._communicator, self._source, self.virtual_part, self.keep = communicator, source, virtual_part, keep
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

    def seconds(self) -> float:
        return self.report().seconds

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
                exchange = EXCHANGES[operation](self.place, *arguments, options=options)
            virtual_part = described if self._has_virtual_part(operation, root) else None
            return StagedRequest(self._link, described, answer, exchange, self._communicator, None, virtual_part,
                                 (arguments, options, keep))

    def _start_message(self, verb: str, arguments: Any, options: Optional[abi.OperationOptions],
                       keep: Any) -> StagedRequest:
        _, count, element_type, peer = arguments
        if peer == abi.ANY_RANK:
            raise SpillwayError(Status.INVALID_ARGUMENT, f"{self._describe(verb)}: in a staged world a receive must "
                                "say from which rank: any rank may be a virtual one")
        described = f"{verb} {'to' if verb == 'send' else 'from'} rank {self.ranks[peer]} in group '{self._name}' at " \
                    f"rank {self._link.rank}"
        answer = self._link.message(verb, self.ranks[peer], self._group, count * SIZES[element_type],
                                    0 if options is None else options.tag)
        exchange = EXCHANGES[verb](self.place, *arguments, options=options)
        virtual_part = described if verb == "receive" and not self.place.is_real(peer) else None
        return StagedRequest(self._link, described, answer, exchange, self._communicator,
                             peer if verb == "receive" else None, virtual_part, (arguments, options, keep))

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
        communicator = join_through_store(store, real.index(link.rank), len(real), timeout, f"real ranks of {name}",
                                          real)
    return StagedCommunicator(link, name, ranks, communicator)
