# SPDX-License-Identifier: Apache-2.0
"""The data that real ranks of a staged world get from an operation. They exchange their own over a communicator of
the group's real ranks; the virtual ranks' data is filled in:

    reductions      virtual ranks have the mean of the real ones: averages stay, a sum of K real ranks is scaled to
                    all N (whole numbers are rounded down), minimum and maximum stay; in products they count as ones
    gathers         copies of the lowest real rank's part
    broadcast       from a virtual root: the lowest real rank's data
    all-to-all      what this rank sent to the virtual one
    scatter, receive from a virtual rank: zeros

An Exchange is made by the call of an operation, when its input is there. `request` is the operation among real ranks,
or None. finish() fills in the rest when that has ended, in any thread.
"""
import ctypes
from typing import Any, Callable, List, Optional

import torch

from .. import abi
from ..communicator import Communicator
from ..request import Request
from .element_types import TYPES

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
