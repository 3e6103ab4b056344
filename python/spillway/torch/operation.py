# SPDX-License-Identifier: Apache-2.0
"""One operation on tensors: its values are brought to the host, the library gets them in call order, and results are
taken back.

The first thread that finds the operation ended takes its results back, once; then tensors and buffers are released.
Any thread may wait.
"""
import threading
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from .. import abi
from ..communicator import Communicator
from ..errors import SpillwayError, Status
from ..request import PartSeconds, Request
from . import cuda_copies
from .device_span import Span
from .threads import SubmissionOrder


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
        self._copies: Tuple[Optional[cuda_copies.Copy], Optional[cuda_copies.Copy]] = (None, None)
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

    def _finish(self) -> None:
        with self._lock:
            if self._receive is not None:
                self._taken_back = self._receive.take_back()
                self._copies = (self._send.brought if self._send is not None else None, self._receive.taken_back)
            self._send = self._receive = None
            self.request.keep = None
        if self._device is not None and self._taken_back is not None:
            cuda_copies.let_current_stream_wait(self._device, self._taken_back)

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
