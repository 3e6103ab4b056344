# SPDX-License-Identifier: Apache-2.0
"""The two faces of a Spillway group towards torch.distributed. Both inherit the operations from Collectives.

SpillwayBackend: a backend of torch's own ProcessGroup, where torch lets Python classes be one. torch then treats it as
it treats Gloo: one backend per device type, splitting, coalescing, DETAIL debug mode, flight recorder, compiled
collectives.

SpillwayGroup: the whole process group, in older releases of torch.

collectives_of() finds the operations behind a group that torch hands over.
"""
import datetime
import functools
import weakref
from typing import Any, Callable, List, Optional, Set

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from ..communicator import Communicator
from ..errors import SpillwayError, Status
from .backend_codec import BackendCodec
from .collectives import BACKEND, Collectives
from .work_holder import forward_to_own_works

DEVICES = ("cpu", "cuda")
C10dBackend: Any = getattr(torch._C._distributed_c10d, "Backend", object)


# ---- Older releases ----

class SpillwayGroup(Collectives, ProcessGroup):
    def __init__(self, communicator: Communicator, codec: Optional[BackendCodec] = None, **_: Any) -> None:
        ProcessGroup.__init__(self, communicator.rank, communicator.world)
        Collectives.__init__(self, communicator, codec)
        self._name = self._description = ""

    # torch's own groups pass their names to backends below them; this group has none.
    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def getGroupName(self) -> str:
        return self._name

    def getGroupDesc(self) -> str:
        return self._description

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)
    setGroupName = _set_group_name
    setGroupDesc = _set_group_desc

    # torch asks a group which devices it serves, and takes this group for the backend of each.
    supports_coalescing, supports_splitting = True, False

    @property
    def _device_types(self) -> List[torch.device]:
        return list(map(torch.device, DEVICES))

    def _get_backend(self, device: torch.device) -> "SpillwayGroup":
        return self


# ---- Newer releases ----

ERRORS = {Status.TIMED_OUT: "TIMEOUT", Status.PEER_FAILED: "REMOTE_ERROR"}
# torch's wrapper in DETAIL debug mode keeps only the C++ half of a backend: the Python halves live here until shutdown.
wrapped: Set[Any] = set()


class SpillwayBackend(Collectives, C10dBackend):
    """`split_off` makes a child: it gets a store, a rank, job ranks and torch's options."""

    supports_splitting = supports_coalescing = True

    def __init__(self, communicator: Communicator, codec: Optional[BackendCodec] = None, *,
                 split_off: Callable[[Any, int, List[int], Any], "SpillwayBackend"],
                 options: Any) -> None:
        C10dBackend.__init__(self, communicator.rank, communicator.world)
        Collectives.__init__(self, communicator, codec)
        self._split_off, self._torch_options = split_off, options
        forward_to_own_works()
        leave_out_of_splits()
        if dist.get_debug_level() == dist.DebugLevel.DETAIL:
            wrapped.add(self)

    def shutdown(self) -> None:
        super().shutdown()
        wrapped.discard(self)

    @property
    def options(self) -> Any:
        return self._torch_options

    def split(self, store: Any, ranks: List[int], options: Any) -> "SpillwayBackend":
        if self._rank not in ranks:  # torch would use what it cannot get from this rank (leave_out_of_splits)
            raise NotImplementedError("split_group: this release of torch cannot split a group with several backends "
                                      "at a rank that is in no part. Use new_group(), or give each rank a part")
        parents = list(self._torch_options.global_ranks_in_group) or range(self._world)
        return self._split_off(store, ranks.index(self._rank), [parents[rank] for rank in ranks], options)

    def perform_nocolor_split(self, device: torch.device) -> None:
        """torch calls it at ranks that are in no child; those have no part in one."""

    def get_error(self) -> Any:
        kinds = torch._C._distributed_c10d.ErrorType
        try:
            self.communicator.check_health()
        except SpillwayError as error:
            return getattr(kinds, ERRORS.get(Status(error.status), "COMM_ERROR"))
        return kinds.SUCCESS


@functools.lru_cache(maxsize=None)
def leave_out_of_splits() -> None:
    """torch asks ranks that are in no part to split off one as well, and crashes if a Python backend has none."""
    split_group = ProcessGroup.split_group

    @functools.wraps(split_group)
    def split_or_leave_out(group: Any, new_ranks: List[int], *arguments: Any, **named: Any) -> Any:
        if group.rank() not in new_ranks and all(isinstance(each, Collectives) for each in backends_of(group)):
            return None
        return split_group(group, new_ranks, *arguments, **named)

    ProcessGroup.split_group = split_or_leave_out


@functools.lru_cache(maxsize=None)
def takes_backends() -> bool:
    """True if torch calls the methods of a backend that is a Python class. Some releases have the class and no way to
    derive from it, others ignore what a derived class defines."""
    class Probe(C10dBackend):  # type: ignore[misc]
        def getBackendName(self) -> str:
            return BACKEND

        supports_splitting = True

        def split(self, *_: Any) -> None:
            """Its presence in the base class says that torch would call this one."""

    try:
        probe = Probe(0, 1)
        return bool(C10dBackend.name(probe) == BACKEND and C10dBackend.supports_splitting.fget(probe)
                    and hasattr(C10dBackend, "split"))
    except (AttributeError, RuntimeError, TypeError):
        return False


# ---- The operations behind a group ----

def backends_of(group: Any) -> List[Any]:
    """By device type; without the wrapper that torch puts around a backend in debug mode."""
    backends = [group._get_backend(device) for device in getattr(group, "_device_types", ())]
    return [getattr(backend, "wrapped_pg", backend) for backend in backends]


def collectives_of(group: Any) -> Optional[Collectives]:
    """Spillway's operations behind one of torch's groups; None if the group has no backend of ours."""
    return next((each for each in [group, *backends_of(group)] if isinstance(each, Collectives)), None)


def monitored_barrier(group: Any = None, timeout: Optional[datetime.timedelta] = None,
                      wait_all_ranks: bool = False) -> None:
    """torch.distributed.monitored_barrier() for groups of any backend; older releases of torch allow it for Gloo only.

    It takes torch's arguments. In a Spillway group, every rank that came learns all ranks that did not, whatever
    `wait_all_ranks` says; the group is unusable after a failed barrier. Without a `timeout`, the group's applies."""
    group = dist.group.WORLD if group is None else group
    own = collectives_of(group)
    if own is not None:
        own.monitored_barrier(timeout, wait_all_ranks)
    else:
        dist.monitored_barrier(group, timeout, wait_all_ranks)


# ---- Groups whose members change ----

_moving: "weakref.WeakKeyDictionary[Any, Collectives]" = weakref.WeakKeyDictionary()


def follow_members(group: Any) -> None:
    """Makes torch's group report the present rank and size of its backend from now on. torch's C++ half keeps those
    that the group was made with, and no backend can change them: so ProcessGroup.rank() and size() are replaced."""
    own = collectives_of(group)
    if own is None or own is group:
        return
    if not _moving:
        ProcessGroup.rank = _present(ProcessGroup.rank, Collectives.rank)
        ProcessGroup.size = _present(ProcessGroup.size, Collectives.size)
    _moving[group] = own


def _present(torchs: Callable[[Any], int], ours: Callable[[Collectives], int]) -> Callable[[Any], int]:
    def present(group: Any) -> int:
        own = _moving.get(group)
        return torchs(group) if own is None else ours(own)

    return present
