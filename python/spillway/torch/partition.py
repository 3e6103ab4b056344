# SPDX-License-Identifier: Apache-2.0
"""Groups that survive changes of members, such as tensor-parallel pairs. Every rank of the job is in one of them.

    data = spillway.torch.partition([[0, 2], [1, 3]])        # all processes call it, standbys too
    model = DistributedDataParallel(model, process_group=data.group)
    job = spillway.torch.elastic(model, optimizer, standbys=1, groups=[data], replicas=data)

`group` is a torch group, usable with all of torch.distributed. A standby's group has one member until it takes a
place. After a change of members it is the group of the process's new rank (elastic_job.py).

Threads: the one that trains.
"""
from typing import Dict, List, Sequence

import torch.distributed as dist

from ..abi import default_library
from ..communicator import Communicator
from .collectives import Collectives
from .process_group import collectives_of, follow_members


def partition(parts: Sequence[Sequence[int]]) -> "Partition":
    """Makes a group of each part, and one for each process that is in none. Parts contain the ranks from 0 on, each
    once; their order is the order in the group."""
    lists = [list(part) for part in parts]
    ranks = sorted(rank for part in lists for rank in part)
    if not ranks or ranks != list(range(len(ranks))) or not all(lists):
        raise ValueError(f"a partition has each rank from 0 on in one of its parts, unlike {lists}")
    if default_library().variable_if_set("SPILLWAY_JOB") is not None:
        lists_here = []  # a process that joins later has no group yet
    elif len(ranks) > dist.get_world_size():
        raise ValueError(f"the partition names {len(ranks)} ranks, and there are {dist.get_world_size()}")
    else:
        lists_here = lists
    named = {rank for part in lists_here for rank in part}
    alone = [[rank] for rank in range(dist.get_world_size()) if rank not in named]
    groups = [dist.new_group(part) for part in lists_here + alone]
    own = [(group, found) for group, found in ((group, collectives_of(group)) for group in groups) if found is not None]
    if len(own) != 1:
        raise TypeError('partition() needs the backend "spillway": init_process_group("spillway")')
    return Partition(lists, *own[0])


class Partition:
    """Made by partition()."""

    def __init__(self, parts: List[List[int]], group: dist.ProcessGroup, own: Collectives) -> None:
        self.parts, self.group, self.member = parts, group, own.member
        follow_members(group)

    @property
    def world(self) -> int:
        return sum(len(part) for part in self.parts)

    def part_of(self, rank: int) -> List[int]:
        return next(part for part in self.parts if rank in part)

    def follow(self, communicator: Communicator, rank: int) -> None:
        """Moves to the group of the process's new rank."""
        self.member.move_to(communicator)
        known = ranks_of_groups()[self.group]
        known.clear()
        known.update({each: place for place, each in enumerate(self.part_of(rank))})


def ranks_of_groups() -> Dict[dist.ProcessGroup, Dict[int, int]]:
    """torch's own table: per group, its members' job ranks and their ranks in it."""
    world = getattr(dist.distributed_c10d, "_world", None)
    return world.pg_group_ranks if world is not None else dist.distributed_c10d._pg_group_ranks
