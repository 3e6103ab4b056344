# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.monitored_barrier() that also works with Spillway's groups; torch allows it for Gloo only."""
import datetime
from typing import Any, Optional

import torch.distributed as dist

from .process_group import SpillwayGroup


def monitored_barrier(group: Any = None, timeout: Optional[datetime.timedelta] = None,
                      wait_all_ranks: bool = False) -> None:
    """Takes torch's arguments. In a Spillway group, every rank that came learns all ranks that did not, whatever
    `wait_all_ranks` says; the group is unusable after a failed barrier. Without a `timeout`, the group's applies."""
    group = dist.group.WORLD if group is None else group
    if isinstance(group, SpillwayGroup):
        group.monitored_barrier(timeout, wait_all_ranks)
    else:
        dist.monitored_barrier(group, timeout, wait_all_ranks)
