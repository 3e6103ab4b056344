# SPDX-License-Identifier: Apache-2.0
"""Makes "spillway" a backend of torch.distributed, and sets the variables that init_process_group() reads.

torch_variables(): mpirun and srun do not set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, but others, which say the
same to the library. Variables that are set stay unchanged. If RANK is set, torch goes by it, and so does this module.

register(): releases of torch differ in the parameters of register_backend: `devices` came with 2.0. All accept a
creator that returns a ProcessGroup.
"""
import inspect
import os
from typing import Any, Dict, Optional

import torch.distributed as dist

from ..abi import default_library
from ..errors import LibraryNotFoundError
from .backend_codec import codec_from_environment
from .process_group import BACKEND, SpillwayGroup
from .rendezvous import join_through_store
from .staged_group import StagedWorld, staged_world

def torch_variables() -> Dict[str, str]:
    """The variables to set. None without the library: creating a group reports that."""
    if "RANK" in os.environ:
        return {}
    try:
        launch = default_library().launch()
    except LibraryNotFoundError:
        return {}
    if launch is None:
        return {}
    values = {"RANK": launch.rank, "WORLD_SIZE": launch.world,
              "LOCAL_RANK": launch.local_rank if launch.local_rank >= 0 else None,
              "LOCAL_WORLD_SIZE": launch.local_world if launch.local_world >= 0 else None,
              "MASTER_ADDR": launch.host.decode() or None, "MASTER_PORT": launch.port or None}
    return {name: str(value) for name, value in values.items() if value is not None and name not in os.environ}


_staged: Optional[StagedWorld] = None


def create_group(options: Any, pg_options: Any = None) -> SpillwayGroup:
    """`options`: torch's DistributedBackendOptions."""
    codec = codec_from_environment()  # before the ranks meet: each rank then reports its own errors at once
    name = str(options.group_id or "default")
    if _staged is not None:
        return _staged.create_group(options, name, codec)
    communicator = join_through_store(options.store, options.group_rank, options.group_size, options.timeout,
                                      f"torch {name}", options.global_ranks_in_group)
    return SpillwayGroup(communicator, codec)


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
