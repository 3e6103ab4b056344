# SPDX-License-Identifier: Apache-2.0
"""Tensors that all ranks take from the group's first rank: parameters at the start, and buffers after every backward
pass, as DistributedDataParallel does before every forward pass.

Buffers travel while the next forward pass may already run. One urgent operation carries all of a device; the next
module with buffers waits for it.

Threads: one at a time.
"""
from typing import Any, List, Sequence

import torch
import torch.distributed as dist
from torch import nn

from .process_group import collectives_of


def start_broadcast(group: Any, tensor: torch.Tensor) -> Any:
    """From the group's first rank, in place. Returns the work."""
    own = collectives_of(group)
    if own is not None:
        return own.broadcast_urgently(tensor)
    options = dist.BroadcastOptions()
    options.rootRank = options.rootTensor = 0
    return group.broadcast([tensor], options)


def broadcast(group: Any, tensors: Sequence[torch.Tensor]) -> None:
    dense = [tensor.detach().contiguous() for tensor in tensors]
    works = [start_broadcast(group, values) for values in dense]
    for work, tensor, values in zip(works, tensors, dense):
        work.wait()
        if values.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(values)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


class Packed:
    """Tensors of one device on their way, as bytes. Those that somebody writes to meanwhile, such as load_state_dict(),
    keep what they then have."""

    def __init__(self, group: Any, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors, self._versions = tensors, [tensor._version for tensor in tensors]
        self._parts = [bytes_of(tensor) for tensor in tensors]
        self._sent = torch.cat(self._parts)
        self._work = start_broadcast(group, self._sent)

    def finish(self) -> None:
        self._work.wait()
        received = self._sent.split([part.numel() for part in self._parts])
        for tensor, version, values in zip(self._tensors, self._versions, received):
            if tensor._version == version:
                # A copy of the values, because a part may begin where its type must not.
                tensor.detach().copy_(values.clone().view(tensor.dtype).view(tensor.shape))


class Buffers:
    def __init__(self, group: Any, module: nn.Module) -> None:
        self._group, self._module = group, module
        self._under_way: List[Packed] = []

    def start(self) -> None:
        """At all ranks alike."""
        self.finish()
        by_device: dict = {}
        for buffer in self._module.buffers():
            if buffer.numel():
                by_device.setdefault(buffer.device, []).append(buffer)
        self._under_way = [Packed(self._group, buffers) for buffers in by_device.values()]

    def finish(self) -> None:
        under_way, self._under_way = self._under_way, []
        for packed in under_way:
            packed.finish()
