# SPDX-License-Identifier: Apache-2.0
"""Makes "spillway" a backend of torch.distributed, and knows the launchers that torch does not.

register(): releases of torch differ in the parameters of register_backend: `devices` came with 2.0. Where a Python
class can be a backend, the creator returns one (process_group.py), elsewhere a whole ProcessGroup.

env:// of init_process_group(): mpirun and srun do not set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, but others,
which say the same to the library. They are set when a rendezvous needs them, and not by the import. Variables that are
set stay unchanged. If RANK is set, torch goes by it, and so does this module.
"""
import datetime
import importlib
import inspect
import os
from typing import Any, Dict, Iterator, List, Optional

import torch.distributed as dist

from ..abi import default_library
from ..errors import LibraryNotFoundError
from .backend_codec import codec_of
from .collectives import BACKEND, Collectives
from .process_group import DEVICES, C10dBackend, SpillwayBackend, SpillwayGroup, takes_backends
from .rendezvous import join_through_store
from .staged_group import StagedBackend, StagedGroup, StagedWorld, staged_world


# ---- Launchers ----

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


def rendezvous_with(torchs: Any) -> Any:
    def rendezvous(url: str, *arguments: Any, **named: Any) -> Iterator[Any]:
        os.environ.update(torch_variables())
        return torchs(url, *arguments, **named)

    return rendezvous


def take_launchers_variables() -> None:
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    handlers["env"] = rendezvous_with(handlers["env"])


# ---- Groups ----

_staged: Optional[StagedWorld] = None


def create_group(options: Any, pg_options: Any = None) -> Collectives:
    """`options`: torch's DistributedBackendOptions."""
    return make_group(options.store, options.group_rank, options.group_size, options.timeout,
                      str(options.group_id or "default"), list(options.global_ranks_in_group), pg_options)


def make_group(store: Any, rank: int, world: int, timeout: datetime.timedelta, name: str, global_ranks: List[int],
               pg_options: Any) -> Collectives:
    """`global_ranks`: empty for the default group."""
    codec = codec_of(pg_options)  # before the ranks meet: each rank then reports its own errors at once
    of_face: Dict[str, Any] = {}
    if takes_backends():
        of_torch = C10dBackend.Options(BACKEND, timeout=timeout)
        of_torch.global_ranks_in_group, of_torch.group_name = global_ranks, name

        def split_off(its_store: Any, its_rank: int, its_ranks: List[int], its_options: Any) -> Collectives:
            patience = getattr(its_options, "_timeout", None) or timeout
            its_name = getattr(its_options, "group_name", "") or f"{name}, split"
            return make_group(its_store, its_rank, len(its_ranks), patience, its_name, its_ranks, pg_options)

        of_face = {"split_off": split_off, "options": of_torch}
    if _staged is not None:
        staged = _staged.join(store, world, timeout, name, global_ranks)
        face = StagedBackend if takes_backends() else StagedGroup
        return face(staged, codec, reads=_staged.reads, **of_face)
    communicator = join_through_store(store, rank, world, timeout, f"torch {name}", global_ranks)
    return (SpillwayBackend if takes_backends() else SpillwayGroup)(communicator, codec, **of_face)


def register() -> None:
    """Does nothing the second time."""
    global _staged
    if hasattr(dist.Backend, BACKEND.upper()):
        return
    take_launchers_variables()
    try:
        _staged = staged_world()
    except LibraryNotFoundError:
        pass  # creating a group reports it
    takes = inspect.signature(dist.Backend.register_backend).parameters
    extra = {"devices": list(DEVICES)} if "devices" in takes else {}
    dist.Backend.register_backend(BACKEND, create_group, extended_api=True, **extra)
