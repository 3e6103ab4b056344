# SPDX-License-Identifier: Apache-2.0
"""Makes "spillway" a backend of torch.distributed.

Releases differ in the parameters of register_backend: `devices` came with 2.0. All accept a creator that returns a
ProcessGroup.
"""
import inspect
from typing import Any, Optional

import torch.distributed as dist

from ..errors import LibraryNotFoundError
from .meeting import join_through_store
from .mode import layers_from_environment, mode_from_environment
from .process_group import BACKEND, SpillwayGroup
from .staged_group import StagedWorld, staged_world

_staged: Optional[StagedWorld] = None


def create_group(options: Any, pg_options: Any = None) -> SpillwayGroup:
    """`options`: torch's DistributedBackendOptions."""
    # Read before the ranks meet: each rank then reports its own errors at once.
    mode, layers = mode_from_environment(), layers_from_environment()
    name = str(options.group_id or "default")
    if _staged is not None:
        return _staged.create_group(options, name, mode, layers)
    communicator = join_through_store(options.store, options.group_rank, options.group_size, options.timeout,
                                      f"torch {name}", options.global_ranks_in_group)
    return SpillwayGroup(communicator, mode, layers)


def register() -> None:
    """Does nothing the second time."""
    global _staged
    if hasattr(dist.Backend, BACKEND.upper()):
        return
    try:
        _staged = staged_world()
    except LibraryNotFoundError:
        pass  # creating a group reports it
    takes = inspect.signature(dist.Backend.register_backend).parameters
    extra = {"devices": ["cpu", "cuda"]} if "devices" in takes else {}
    dist.Backend.register_backend(BACKEND, create_group, extended_api=True, **extra)
