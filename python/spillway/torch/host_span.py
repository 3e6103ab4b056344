# SPDX-License-Identifier: Apache-2.0
"""The host memory of one side of an operation, as the library reads and writes it: equal parts in a row, one per rank
or only one.

It is the tensor's own memory if possible: one contiguous CPU tensor of a type that the library has, whose values are
what its memory says (torch conjugates and negates lazily). Otherwise it is a copy, pinned if a tensor is on a CUDA
device. `bring()` fills it, and `take_back()` writes it to the tensors. An operation that reads values brings them.
One that writes values takes them back, and calls order_behind_caller() when it starts.
"""
from typing import Callable, Optional, Sequence

import torch

from .. import abi
from . import cuda_copies
from .element_types import PADDING, TYPES


def check_tensor(tensor: torch.Tensor, operation: str) -> None:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"{operation}: Spillway moves dense tensors; this one is {tensor.layout}, {tensor.dtype}. "
                        "Call to_dense() or dequantize() first")
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{operation}: Spillway moves tensors of the CPU and of CUDA devices, not of "
                        f"{tensor.device.type}. Copy it to the CPU first")
    if tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{operation} cannot be captured in a CUDA graph, because it goes through the host: capture "
                           "what is before and behind it, and call it between the replays")


def check_alike(tensors: Sequence[torch.Tensor], operation: str) -> None:
    first = tensors[0]
    for tensor in tensors:
        check_tensor(tensor, operation)
        if (tensor.numel(), tensor.dtype, tensor.device) != (first.numel(), first.dtype, first.device):
            raise ValueError(f"{operation}: its tensors must be alike; one is {tuple(first.shape)} {first.dtype} on "
                             f"{first.device}, another {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}")


def is_aligned(tensor: torch.Tensor) -> bool:
    return tensor.data_ptr() % 4 == 0


class HostSpan:
    """One part per tensor, or one tensor divided into `parts`."""

    def __init__(self, tensors: Sequence[torch.Tensor], operation: str, parts: Optional[int] = None) -> None:
        check_alike(tensors, operation)
        self._tensors = [tensor.detach() for tensor in tensors]
        self._parts = len(tensors) if parts is None else parts
        first = self._tensors[0]
        self.dtype, self.device = first.dtype, first.device
        numel = first.numel() * len(tensors)
        if numel % self._parts:
            raise ValueError(f"{operation}: {numel} elements cannot be divided among {self._parts} ranks")
        self._part_bytes = numel // self._parts * first.element_size()
        self._is_native = self.dtype in TYPES
        self._stride = self._part_bytes if self._is_native else -(-self._part_bytes // PADDING) * PADDING
        self.is_direct = self._may_be_direct()
        self._memory = first if self.is_direct else self._allocate()
        # Started copies, for tensors on a CUDA device.
        self.brought: Optional[cuda_copies.Copy] = None
        self.taken_back: Optional[cuda_copies.Copy] = None

    def _may_be_direct(self) -> bool:
        if self._part_bytes == 0:
            return True  # nothing to copy
        first = self._tensors[0]
        return (len(self._tensors) == 1 and self.device.type == "cpu" and first.is_contiguous()
                and not first.is_conj() and not first.is_neg()
                and self._stride == self._part_bytes and (self._is_native or is_aligned(first)))

    def _allocate(self) -> torch.Tensor:
        # A padded span has zeros behind its parts: no other process memory may travel with them.
        make = torch.empty if self._is_native else torch.zeros
        return make(self._parts * self._stride, dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    @property
    def type(self) -> int:
        return TYPES.get(self.dtype, abi.INT32)

    @property
    def count(self) -> int:
        """Elements per part, as the library counts them."""
        size = self._tensors[0].element_size() if self._is_native else 4
        return self._stride // size

    @property
    def pointer(self) -> int:
        return self._memory.data_ptr()

    @property
    def memory(self) -> torch.Tensor:
        return self._memory

    def bring(self) -> Optional[Callable[[], None]]:
        """Fills the span from its tensors. Returns a function that blocks until it is filled, or None if it is."""
        if self.is_direct:
            return None
        if self.device.type == "cuda":
            self.brought = cuda_copies.to_host(self.device, self._outgoing())
            return self.brought.wait
        for host, tensor in self._outgoing():
            host.copy_(tensor)
        return None

    def order_behind_caller(self) -> None:
        """Orders take_back() behind the work that the caller's stream still has on the tensors."""
        if self.device.type == "cuda":
            cuda_copies.wait_for_caller(self.device)

    def take_back(self) -> Optional["torch.cuda.Event"]:
        """Writes the span to its tensors, unless they share memory. Returns the event on their device after which
        they have the values, or None if they have them now."""
        if self.is_direct:
            return None
        if self.device.type == "cuda":
            self.taken_back = cuda_copies.to_device(self.device, self._incoming())
            return self.taken_back.end
        for tensor, host in self._incoming():
            tensor.copy_(host)
        return None

    def _parts_in_memory(self) -> torch.Tensor:
        """One row per part."""
        rows = self._memory.view(self._parts, self._stride)
        return rows[:, :self._part_bytes].view(self.dtype)

    def _outgoing(self) -> cuda_copies.Pairs:
        """Destinations in the span, and their source tensors."""
        rows = self._parts_in_memory()
        if len(self._tensors) == self._parts:
            return [(row.view(tensor.shape), tensor) for row, tensor in zip(rows, self._tensors)]
        return [(rows, self._tensors[0].reshape(rows.shape))]

    def _incoming(self) -> cuda_copies.Pairs:
        """Destination tensors, and their values in the span."""
        rows = self._parts_in_memory()
        if len(self._tensors) == self._parts:
            return [(tensor, row.view(tensor.shape)) for tensor, row in zip(self._tensors, rows)]
        return [(self._tensors[0], rows.reshape(self._tensors[0].shape))]
