# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a group come to a communicator: rank 0 makes an id, and torch carries it to the others,
through the store the group was made with or through another group.
"""
import datetime
import os
from typing import Any, List, Mapping, Optional, Sequence

import torch.distributed as dist

from ..abi import default_library
from ..communicator import Communicator
from .id_in_store import IdInStore, id_from_hex
from .variables import value_of

LONGEST_MS = 2**31 - 1
LEAST_S, MOST_S = 0.1, 86_400.0  # as src/runtime/timeouts.h has them


def seconds(text: str) -> datetime.timedelta:
    if not LEAST_S <= float(text) <= MOST_S:
        raise ValueError
    return datetime.timedelta(seconds=float(text))


def patience_of(environment: Mapping[str, str], timeout: datetime.timedelta) -> datetime.timedelta:
    """How long to wait for the other ranks; without the variable, as long as for an operation."""
    allowed = f"a number of seconds from {LEAST_S:g} to {MOST_S:g}, such as 5 or 0.5"
    return value_of(environment, "SPILLWAY_RENDEZVOUS_TIMEOUT", seconds, allowed, timeout)


def milliseconds(timeout: datetime.timedelta) -> int:
    return max(1, min(LONGEST_MS, int(timeout.total_seconds() * 1000)))


def note_on_ranks(global_ranks: Optional[Sequence[int]]) -> str:
    """Messages name the ranks of the group; users think of those of the job."""
    if not global_ranks or list(global_ranks) == list(range(len(global_ranks))):
        return ""
    return "in this group, ranks 0, 1, ... are the job's " + ", ".join(map(str, global_ranks))


def join_through_store(store: Any, rank: int, world: int, timeout: datetime.timedelta, name: str,
                       global_ranks: Optional[Sequence[int]] = None) -> Communicator:
    patience = patience_of(os.environ, timeout)
    note = note_on_ranks(global_ranks)
    meeting = IdInStore(store, rank, world, patience.total_seconds(), note)
    unique_id = meeting.offer(default_library().unique_id) if rank == 0 else meeting.fetch()
    communicator = Communicator(unique_id, rank=rank, world=world, name=name.encode(), note=note,
                                operation_timeout_ms=milliseconds(timeout),
                                rendezvous_timeout_ms=milliseconds(patience))
    if rank == 0:
        meeting.clear()
    return communicator


def join_through_group(group: Any, name: str, **fields: Any) -> Communicator:
    """A second communicator for the ranks of a process group of any backend."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    ranks = [dist.get_global_rank(group, each) for each in range(world)] if is_sub_group(group) else range(world)
    carried: List[Optional[str]] = [bytes(default_library().unique_id()).hex() if rank == 0 else None]
    dist.broadcast_object_list(carried, src=ranks[0], group=group)
    assert carried[0] is not None
    return Communicator(id_from_hex(carried[0]), rank=rank, world=world, name=name.encode(),
                        note=note_on_ranks(ranks), **fields)


def is_sub_group(group: Any) -> bool:
    return group is not None and group is not dist.group.WORLD
