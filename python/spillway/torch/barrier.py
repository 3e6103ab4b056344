# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.monitored_barrier() for Spillway's groups too: torch itself lets no backend but Gloo have one."""
import datetime
from typing import Any, Optional

import torch.distributed as dist

from .process_group import SpillwayGroup


def monitored_barrier(group: Any = None, timeout: Optional[datetime.timedelta] = None,
                      wait_all_ranks: bool = False) -> None:
    """Arguments as torch's. With Spillway's groups, which are of no use after a barrier that failed, every rank that
    came is told of all that did not, whatever `wait_all_ranks` says; without a `timeout`, after the group's."""
    group = dist.group.WORLD if group is None else group
    if isinstance(group, SpillwayGroup):
        group.monitored_barrier(timeout, wait_all_ranks)
    else:
        dist.monitored_barrier(group, timeout, wait_all_ranks)
