# SPDX-License-Identifier: Apache-2.0
"""DDP's buckets: their names, and the all-reduce of one bucket in one step.

DDP rebuilds its buckets after the first step, so a bucket's index says nothing about its contents. Error feedback is
therefore kept under a hash of the bucket's parameters: a bucket with other parameters is another tensor, without a
residual. Names are the same at all ranks.
"""
import hashlib
from typing import Any, Iterable, Optional, Tuple

import torch

from .. import abi
from ..request import OperationReport
from .device_span import span_of
from .operation import Member, Operation
from .threads import waiters
from .work import make_future, resolve


class BucketNames:
    """`hook`: a number that tells hooks of one communicator apart."""

    def __init__(self, parameters: Iterable[Any], hook: int) -> None:
        self._hook = hook
        self._positions = {id(parameter): position for position, parameter in enumerate(parameters)}

    def feedback_tensor(self, parameters: Iterable[Any]) -> int:
        """Never 0, which means no name."""
        words = [str(self._hook), *(str(self._positions[id(parameter)]) for parameter in parameters)]
        digest = hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") or 1


class BucketRun:
    """One bucket of one step. If it is measured, an exact all-reduce of a copy follows."""

    def __init__(self, buffer: torch.Tensor, is_measured: bool) -> None:
        self._buffer = buffer
        self._operation: Optional[Operation] = None
        self._copy = buffer.detach().clone() if is_measured else None
        self._exact_operation: Optional[Operation] = None
        self.bytes = buffer.numel() * buffer.element_size()

    def start(self, member: Member, options: abi.OperationOptions) -> None:
        self._operation = self._average(member, self._buffer, options)
        if self._copy is not None:
            self._exact_operation = self._average(member, self._copy, member.communicator.options())

    @staticmethod
    def _average(member: Member, tensor: torch.Tensor, options: abi.OperationOptions) -> Operation:
        span = span_of(tensor, "all_reduce", options, member.communicator.world)
        return Operation("all_reduce", span, span, span.pointer, span.pointer, span.count, span.type, abi.AVERAGE,
                         options=options).start(member)

    def future(self) -> "torch.futures.Future[torch.Tensor]":
        assert self._operation is not None
        future, operation = make_future(self._operation.devices), self._operation
        waiters.run(lambda: resolve(future, operation, self._buffer))
        return future

    def wait(self) -> None:
        for operation in (self._operation, self._exact_operation):
            if operation is not None:
                operation.wait()

    def report(self) -> OperationReport:
        assert self._operation is not None
        return self._operation.request.report()

    @property
    def operation(self) -> Operation:
        """The started operation; it releases its tensors once it has ended."""
        assert self._operation is not None
        return self._operation

    def error_and_energy(self) -> Tuple[float, float]:
        assert self._copy is not None
        exact = self._copy.double()
        return float((self._buffer.double() - exact).square().sum()), float(exact.square().sum())
