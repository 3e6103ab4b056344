# SPDX-License-Identifier: Apache-2.0
"""The Work that torch.distributed gets for a started operation.

C++ that holds a Work sees only its own half of the object. Some releases of torch release the Python half with its
last reference in Python, and the remaining half waits for ever. So every Work is kept here until somebody has waited
for it or its Future has its result. Beyond MAX_KEPT, each new Work evicts the oldest one whose operation has ended.
"""
import collections
import datetime
import threading
from typing import Any, List, Optional

import torch
from torch.distributed import Work

from . import cuda_copies
from .backward import before_backward_ends
from .threads import waiters

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
    with cuda_copies.on_copy_streams(operation.devices):
        try:
            operation.wait()
        except Exception as error:
            future.set_exception(error)
            return
        future.set_result(result)


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
