# SPDX-License-Identifier: Apache-2.0
"""An all-reduce of sparse COO tensors: their coalesced sum, the same at all ranks.

Ranks exchange their sizes, then their entries, padded to the largest; each rank adds for itself. The second of the
two operations keeps its turn: later calls begin after it. float16 and bfloat16 are added as float32 and rounded once,
like in dense tensors.

Any thread may wait.
"""
import threading
from typing import Any, List, Optional

import torch

from .. import abi
from ..errors import SpillwayError, Status
from .operation import Member, Operation
from .tensors import HostSpan, reduction_from

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
         torch.int64, torch.complex64, torch.complex128)
ADDED_AS = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
MAX_DIMENSIONS = 64


class Size:
    """A sparse tensor's size, as ranks exchange it: entries, the type's number, sparse dimensions, and the shape."""

    LENGTH = 3 + MAX_DIMENSIONS

    def __init__(self, numbers: List[int]) -> None:
        self.entries, self._type, self.sparse_dim, *dimensions = numbers
        self.shape = tuple(dimension for dimension in dimensions if dimension >= 0)

    @staticmethod
    def of(tensor: torch.Tensor) -> torch.Tensor:
        padding = [-1] * (MAX_DIMENSIONS - tensor.dim())
        return torch.tensor([tensor._nnz(), TYPES.index(tensor.dtype), tensor.sparse_dim(), *tensor.shape, *padding])

    @property
    def dtype(self) -> torch.dtype:
        return TYPES[self._type]

    def is_like(self, other: "Size") -> bool:
        return (self._type, self.sparse_dim, self.shape) == (other._type, other.sparse_dim, other.shape)

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}, {self.sparse_dim} of its dimensions sparse"


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def check(tensor: torch.Tensor, options: Any) -> None:
    if reduction_from(options, "all_reduce") != abi.SUM:
        raise ValueError("all_reduce: of sparse tensors there are sums alone. Use SUM, or call to_dense() first")
    if tensor.dtype not in TYPES:
        raise TypeError(f"all_reduce: Spillway cannot add up sparse tensors of {tensor.dtype}. Convert it first")
    if tensor.dim() > MAX_DIMENSIONS:
        raise ValueError(f"all_reduce: a sparse tensor may have {MAX_DIMENSIONS} dimensions, not {tensor.dim()}")


class SparseAllReduce:
    def __init__(self, tensor: torch.Tensor, options: Any) -> None:
        check(tensor, options)
        self._tensor = tensor
        self._mine = tensor.detach().coalesce().cpu()
        self._has_begun = threading.Event()
        self._lock = threading.Lock()
        self._is_finished = False
        self._error: Optional[Exception] = None
        self._sizes: List[Size] = []

    def start(self, member: Member) -> "SparseAllReduce":
        world = member.communicator.world
        mine, everybody = Size.of(self._mine), torch.empty(world * Size.LENGTH, dtype=torch.int64)
        self._told, self._contents = everybody.view(world, -1), torch.empty(0, dtype=torch.uint8)
        self._first = self._all_gather(mine, everybody, world).start(member)
        self._second: Optional[Operation] = None
        member.order.submit(self._hear, lambda: self._go_on(member))
        return self

    @staticmethod
    def _all_gather(mine: torch.Tensor, everybody: torch.Tensor, world: int) -> Operation:
        send, receive = HostSpan([mine], "all_reduce"), HostSpan([everybody], "all_reduce", world)
        return Operation("all_gather", send, receive, send.pointer, receive.pointer, send.count, send.type)

    def _hear(self) -> None:
        try:
            self._first.wait()
            self._sizes = [Size(numbers) for numbers in self._told.tolist()]
        except Exception as error:
            self._error = error

    def _go_on(self, member: Member) -> None:
        try:
            if self._error is None:
                self._check_alike()
                self._send_contents(member)
        except Exception as error:
            self._error = error
        self._has_begun.set()

    def _check_alike(self) -> None:
        first = self._sizes[0]
        for rank, size in enumerate(self._sizes):
            if not size.is_like(first):
                raise ValueError(f"all_reduce: its sparse tensors must be alike; rank 0's is {first}, rank {rank}'s "
                                 f"{size}")

    def _send_contents(self, member: Member) -> None:
        mine = torch.cat([bytes_of(self._mine.indices()), bytes_of(self._mine.values())])
        longest = max(self._bytes_of(size) for size in self._sizes)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[:mine.numel()] = mine
        self._contents = torch.empty(len(self._sizes), longest, dtype=torch.uint8)
        self._second = self._all_gather(padded, self._contents.view(-1), len(self._sizes)).begin_in_turn(member)

    def _bytes_of(self, size: Size) -> int:
        index = size.sparse_dim * torch.empty(0, dtype=torch.int64).element_size()
        return size.entries * (index + self._numel_of_entry(size) * torch.empty(0, dtype=size.dtype).element_size())

    @staticmethod
    def _numel_of_entry(size: Size) -> int:
        return torch.Size(size.shape[size.sparse_dim:]).numel()

    def _part(self, size: Size, contents: torch.Tensor) -> torch.Tensor:
        """One rank's tensor."""
        indices_end = size.entries * size.sparse_dim * 8
        # Copied, because a view of another type needs aligned memory.
        indices = contents[:indices_end].clone().view(torch.int64).view(size.sparse_dim, size.entries)
        values = contents[indices_end:self._bytes_of(size)].clone().view(size.dtype)
        values = values.view(size.entries, *size.shape[size.sparse_dim:]).to(ADDED_AS.get(size.dtype, size.dtype))
        return torch.sparse_coo_tensor(indices, values, size.shape)._coalesced_(True)

    def wait(self, timeout_s: Optional[float] = None) -> None:
        if not self._has_begun.wait(timeout_s):
            raise SpillwayError(Status.IN_PROGRESS, f"all_reduce has not ended after {timeout_s} s")
        if self._error is not None:
            raise self._error
        assert self._second is not None
        self._second.wait(timeout_s)
        self._finish()

    def is_done(self) -> bool:
        """True once the sum is in place or the operation has failed."""
        if not self._has_begun.is_set():
            return False
        if self._error is not None or self._second is None:
            return True
        if not self._second.is_done():
            return False
        try:
            self.wait()
        except Exception as error:
            self._error = error
        return True

    def _finish(self) -> None:
        with self._lock:
            if self._is_finished:
                return
            parts = [self._part(size, contents) for size, contents in zip(self._sizes, self._contents)]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            with torch.no_grad():
                self._tensor.copy_(total.coalesce().to(self._tensor.dtype).to(self._tensor.device))
            if self._tensor.is_cuda:
                torch.cuda.current_stream(self._tensor.device).synchronize()  # any stream may read next
            self._is_finished = True

    @property
    def devices(self) -> List[torch.device]:
        return []
