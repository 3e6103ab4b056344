# SPDX-License-Identifier: Apache-2.0
"""One operation on tensors, the threads that wait for it, and the Work that torch.distributed gets for it.

Operation: its values are brought to the host, the library gets them in call order, and results are taken back. The
first thread that finds the operation ended takes its results back, once; then tensors and buffers are released. Any
thread may wait.

SubmissionOrder: operations of one communicator reach the library in call order, even if some must first wait for
values from a device. An operation that is ready, with none before it still waiting, begins in its caller's thread.
All others queue, and one thread begins them in turn.

Waiters: the package's own threads, so that the library's threads never wait for the interpreter's lock. A job gets an
idle thread or a new one, so a waiting job never blocks another. There are at most MAX_THREADS; further jobs wait for a
free one. The threads end with the process.

SpillwayWork: C++ that holds a Work sees only its own half of the object. Some releases of torch release the Python half
with its last reference in Python, and the remaining half waits for ever. So every Work is kept here until somebody has
waited for it or its Future has its result. Beyond MAX_KEPT, each new Work evicts the oldest one whose operation has
ended.
"""
import collections
import datetime
import os
import queue
import threading
import time
from typing import Any, Callable, Deque, List, Optional, Sequence, Tuple

import torch
from torch.distributed import Work

from .. import abi
from ..communicator import Communicator
from ..errors import SpillwayError, Status
from ..request import PartSeconds, Request
from .backward import before_backward_ends
from .tensors import Copy, Span, let_current_stream_wait, on_copy_streams
from .work_holder import asking

# ---- Threads ----

MAX_THREADS = 512


class Waiters:
    def __init__(self) -> None:
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)  # a child has none of its parent's threads

    def _begin_anew(self) -> None:
        self._jobs: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads = 0

    def run(self, job: Callable[[], None]) -> None:
        """`job` must not raise."""
        self._jobs.put(job)
        if self._idle.acquire(blocking=False):
            return
        with self._lock:
            if self._threads < MAX_THREADS:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"spillway-wait-{self._threads}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._jobs.get()()
            self._idle.release()


waiters = Waiters()

Ready = Optional[Callable[[], None]]  # blocks until the operation may begin; None: it may


class SubmissionOrder:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: Deque[Tuple[Ready, Callable[[], None]]] = collections.deque()

    def submit(self, ready: Ready, begin: Callable[[], None]) -> None:
        """`begin` must not raise."""
        with self._lock:
            if ready is None and not self._queue:
                begin()
                return
            self._queue.append((ready, begin))
            if len(self._queue) == 1:
                waiters.run(self._begin_all)

    def _begin_all(self) -> None:
        while True:
            ready, begin = self._queue[0]
            if ready is not None:
                ready()
            begin()
            with self._lock:
                self._queue.popleft()
                if not self._queue:
                    return


# ---- Operations ----

class Member:
    """A rank's place in a group: a communicator and the order of its calls. A change of members replaces both
    (elastic_job.py)."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self.order = SubmissionOrder()
        # Operations end at once, without other ranks; buffers keep what they contain.
        self.is_alone = False
        # Gets an error; returns whether the operation must end as if it had succeeded.
        self.forgives: Callable[[Exception], bool] = lambda error: False
        # Whether this step's results are thrown away.
        self.is_step_lost: Callable[[], bool] = lambda: self.is_alone
        self.waited_s = 0.0  # in waits for operations, over all threads

    def move_to(self, communicator: Communicator) -> None:
        self.communicator, self.order = communicator, SubmissionOrder()


class Operation:
    """`send` and `receive` are its sides, or None; both are the same span if it works in place."""

    def __init__(self, name: str, send: Optional[Span], receive: Optional[Span], *arguments: Any,
                 options: Optional[abi.OperationOptions] = None) -> None:
        self._name, self._send, self._receive = name, send, receive
        self._arguments, self._options = arguments, options
        self._has_begun = threading.Event()
        self._lock = threading.Lock()
        self._device = receive.device if receive is not None and receive.device.type == "cuda" else None
        self._taken_back: Optional["torch.cuda.Event"] = None
        # Copies of values to the host and back, once the operation has ended; None if there are none.
        self._copies: Tuple[Optional[Copy], Optional[Copy]] = (None, None)
        self._request: Optional[Request] = None
        self._error: Optional[Exception] = None
        self._member: Optional[Member] = None

    def start(self, member: Member) -> "Operation":
        """Raises the library's refusal at once, unless the operation has to wait for its turn."""
        ready = self._send.bring() if self._send is not None else None
        if self._receive is not None:
            self._receive.order_behind_caller()
        member.order.submit(ready, lambda: self._begin(member))
        if self._has_begun.is_set() and self._error is not None and not member.forgives(self._error):
            raise self._error
        return self

    def begin_in_turn(self, member: Member) -> "Operation":
        """Like start(), for a caller that already has the turn in the member's order."""
        ready = self._send.bring() if self._send is not None else None
        if ready is not None:
            ready()
        self._begin(member)
        return self

    def _begin(self, member: Member) -> None:
        self._member = member
        try:
            if not member.is_alone:
                self._request = member.communicator.start(self._name, *self._arguments, options=self._options,
                                                          keep=(self._send, self._receive))
        except Exception as error:
            self._error = error
        self._has_begun.set()

    def wait(self, timeout_s: Optional[float] = None) -> None:
        """Returns when results are in place. Raises if the operation failed or the time is up."""
        if not self._has_begun.wait(timeout_s):
            raise SpillwayError(Status.IN_PROGRESS, f"{self._name} has not begun after {timeout_s} s")
        assert self._member is not None
        began = time.monotonic()
        try:
            self._wait_for_request(timeout_s)
        except SpillwayError as error:
            if not self._member.forgives(error):
                raise
            self._send = self._receive = None
        self._member.waited_s += time.monotonic() - began

    def _wait_for_request(self, timeout_s: Optional[float]) -> None:
        if self._error is not None:
            raise self._error
        if self._request is None:
            return  # alone
        if not self._request.wait(-1 if timeout_s is None else int(timeout_s * 1000)):
            raise SpillwayError(Status.IN_PROGRESS, f"{self._name} has not ended after {timeout_s} s")
        self._finish()

    def is_done(self) -> bool:
        """True once results are in place or the operation has failed."""
        if not self._has_begun.is_set():
            return False
        if self._error is not None or self._request is None:
            return True
        if not self._request.is_done():
            return False
        if self._request.status() == Status.OK:
            self._finish()
        return True

    @property
    def has_result(self) -> bool:
        """False before its end, and if it failed or ended alone."""
        return self._error is None and self._request is not None and self._request.status() == Status.OK

    def _finish(self) -> None:
        with self._lock:
            if self._receive is not None:
                self._taken_back = self._receive.take_back()
                self._copies = (self._send.brought if self._send is not None else None, self._receive.taken_back)
            self._send = self._receive = None
            self.request.keep = None
        if self._device is not None and self._taken_back is not None:
            let_current_stream_wait(self._device, self._taken_back)

    @property
    def request(self) -> Request:
        """The request of an operation that has begun."""
        assert self._request is not None
        return self._request

    def copy_seconds(self) -> PartSeconds:
        """Time of value copies from and to a GPU, after wait(). Waits for the copies' end."""
        to_host, to_device = (copy.seconds() if copy is not None else 0.0 for copy in self._copies)
        return PartSeconds(to_host=to_host, to_device=to_device)

    def source_rank(self) -> int:
        """The source of a receive that has succeeded."""
        source = self.request.source()
        if source is None:
            raise RuntimeError(f"{self._name} receives from no rank")
        return source

    @property
    def devices(self) -> List[torch.device]:
        """CUDA devices that results go to."""
        return [] if self._device is None else [self._device]


class OperationGroup:
    """Several operations that are waited for as one."""

    def __init__(self, operations: Sequence[Any]) -> None:
        self._operations = list(operations)

    def wait(self, timeout_s: Optional[float] = None) -> None:
        for operation in self._operations:
            operation.wait(timeout_s)

    def is_done(self) -> bool:
        return all([operation.is_done() for operation in self._operations])

    @property
    def devices(self) -> List[torch.device]:
        return list(dict.fromkeys(device for operation in self._operations for device in operation.devices))


class IntegerAverage:
    """A sum of integers that is divided by the number of ranks when it is there. Fractions are dropped, as with NCCL."""

    def __init__(self, operation: Operation, sums: torch.Tensor, world: int) -> None:
        self._operation, self._world = operation, world
        self._sums: Optional[torch.Tensor] = sums.detach()
        self._lock = threading.Lock()

    def wait(self, timeout_s: Optional[float] = None) -> None:
        self._operation.wait(timeout_s)
        self._divide()

    def is_done(self) -> bool:
        is_done = self._operation.is_done()
        if is_done:
            self._divide()
        return is_done

    def _divide(self) -> None:
        """On a device it is queued behind the copy of the sums: the operation made the current stream wait for it."""
        if not self._operation.has_result:
            return
        with self._lock:
            sums, self._sums = self._sums, None
            if sums is not None:
                sums.div_(self._world, rounding_mode="trunc")
                if sums.is_cuda:
                    torch.cuda.current_stream(sums.device).synchronize()  # any stream may read next

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operation, name)


# ---- Works ----

MAX_KEPT = 256
LONGEST_MS = 2**32 - 1


class Kept:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: "collections.OrderedDict[int, Any]" = collections.OrderedDict()

    def add(self, work: Any) -> None:
        with self._lock:
            self._works[id(work)] = work
            if len(self._works) > MAX_KEPT:
                self._let_one_go()

    def _let_one_go(self) -> None:
        oldest_ended = next((key for key, work in self._works.items() if work.is_completed()), None)
        if oldest_ended is not None:
            del self._works[oldest_ended]

    def discard(self, work: Any) -> None:
        with self._lock:
            self._works.pop(id(work), None)


kept = Kept()


def seconds_of(timeout: Optional[datetime.timedelta]) -> Optional[float]:
    """torch's 0 means no timeout."""
    return timeout.total_seconds() if timeout else None


def milliseconds_of(timeout: Optional[datetime.timedelta]) -> int:
    """For the C interface: 0 if there is no timeout, which torch may also express as a negative one."""
    if timeout is None or timeout <= datetime.timedelta():
        return 0
    return max(1, min(LONGEST_MS, int(timeout.total_seconds() * 1000)))


def make_future(devices: List[torch.device]) -> "torch.futures.Future[Any]":
    return torch.futures.Future(devices=devices) if devices else torch.futures.Future()


def resolve(future: "torch.futures.Future[Any]", operation: Any, result: Any) -> None:
    """Waits for the operation. When it gets its result, a Future with CUDA devices records their current streams:
    here the copy streams, behind the copies."""
    with on_copy_streams(operation.devices):
        try:
            operation.wait()
        except Exception as error:
            future.set_exception(error)
            return
        future.set_result(result)


NO_FUTURE: "torch.futures.Future[Any]" = torch.futures.Future()  # when only the Work is asked for (work_holder.py)


class SpillwayWork(Work):
    """`result` are the tensors that the operation fills."""

    def __init__(self, operation: Any, result: List[torch.Tensor]) -> None:
        super().__init__()
        self.operation = operation
        self._result = result
        self._lock = threading.Lock()
        self._future: Optional["torch.futures.Future[Any]"] = None
        kept.add(self)

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        self.operation.wait(seconds_of(timeout))
        kept.discard(self)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.operation.is_done()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[Exception]:
        """The error of an operation that has ended."""
        if not self.is_completed():
            return None
        try:
            self.operation.wait()
        except Exception as error:
            return error
        return None

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._result

    def _source_rank(self) -> int:
        """The source of a receive from any rank, which torch asks for afterwards."""
        self.wait()
        return self.operation.source_rank()

    source_rank = _source_rank

    def get_future(self) -> "torch.futures.Future[Any]":
        if asking.is_asking:
            asking.found = self
            return NO_FUTURE
        with self._lock:
            if self._future is None:
                self._future = make_future(self.operation.devices)
                future = self._future
                waiters.run(lambda: self._resolve(future))
                before_backward_ends(self.operation.wait)
            return self._future

    def _resolve(self, future: "torch.futures.Future[Any]") -> None:
        resolve(future, self.operation, self._result)
        kept.discard(self)
