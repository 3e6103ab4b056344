# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a group get a communicator: rank 0 makes an id, and torch carries it to the others, through the
group's store or through another group. With parameter servers, the job's default group meets at the launcher's
address instead (SPILLWAY_COMM_ID), because servers have no part in torch's store. Other groups do without servers.

In a store (IdInStore), waiting ranks log from time to time that they wait, and which ranks are missing. torch itself
is silent for the group's timeout, half an hour by default. If rank 0 cannot make an id, the others learn why. They
poll instead of calling store.get(): torch 1.13's store cannot be used after a wait that took too long.

Limits: only the first MAX_LOOKED_FOR ranks of a group are checked. One rendezvous at a time in a store.
"""
import datetime
import logging
import os
import time
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist

from ..abi import UniqueId, default_library
from ..communicator import Communicator
from ..errors import SpillwayError, Status

LONGEST_MS = 2**31 - 1
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.25
FIRST_NOTICE_S = 10.0
MAX_LOOKED_FOR = 256
MAX_NAMED = 12
REFUSAL = "refused:"  # no id starts with it

log = logging.getLogger("spillway")


def id_from_hex(text: str) -> UniqueId:
    return UniqueId.from_buffer_copy(bytes.fromhex(text))


def prefix_of_this_start() -> str:
    """A key prefix: a job that torchrun restarts must not find the id of its last start."""
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return f"spillway/{run}/{restart}"


def name_ranks(ranks: List[int], world: int) -> str:
    named = [str(rank) for rank in ranks[:MAX_NAMED]]
    if len(ranks) > MAX_NAMED:
        named.append(f"{len(ranks) - MAX_NAMED} more")
    listed = named[0] if len(named) == 1 else ", ".join(named[:-1]) + " and " + named[-1]
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {listed} of {world}"


class IdInStore:
    def __init__(self, store: Any, rank: int, world: int, patience_s: float, note: str = "") -> None:
        """`note` is appended to error messages."""
        self._store, self._rank, self._world, self._patience_s = store, rank, world, patience_s
        self._note = f" ({note})" if note else ""
        self._prefix = prefix_of_this_start()

    def offer(self, make: Callable[[], UniqueId]) -> UniqueId:
        """Called at rank 0. If `make` fails, rank 0 publishes the reason before it raises."""
        try:
            made = make()
        except SpillwayError as error:
            self._put(f"{REFUSAL}{error}")
            raise self._failure(str(error)) from None
        self._put(bytes(made).hex())
        return made

    def fetch(self) -> UniqueId:
        """Called at the other ranks."""
        try:
            self._store.add(self._came(self._rank), 1)
            self._wait_until_offered()
            self._store.add(self._came(self._rank), -1)
            text = self._store.get(self._id_key()).decode()
        except SpillwayError:
            raise
        except RuntimeError as error:  # from torch
            raise self._failure("torch's store is gone, because rank 0 or what started it has ended; see what it "
                                f"printed ({error})") from error
        if text.startswith(REFUSAL):
            raise self._failure(f"rank 0 cannot make it: {text[len(REFUSAL):]}")
        return id_from_hex(text)

    def clear(self) -> None:
        """Called at rank 0 when all ranks have the id: the next rendezvous in this store makes another."""
        self._store.delete_key(self._id_key())
        self._store.delete_key(self._offered_key())

    def _put(self, text: str) -> None:
        self._store.set(self._id_key(), text)
        self._store.add(self._offered_key(), 1)

    def _wait_until_offered(self) -> None:
        begin = time.monotonic()
        pause_s, notice_s = FIRST_PAUSE_S, FIRST_NOTICE_S
        while self._store.add(self._offered_key(), 0) == 0:
            waited_s = time.monotonic() - begin
            if waited_s >= self._patience_s:
                raise self._failure(f"after {self._patience_s:g} s {self._who_is_missing()}. See that all ranks were "
                                    "started, or wait longer (SPILLWAY_RENDEZVOUS_TIMEOUT)")
            if waited_s >= notice_s:
                log.warning("rank %d of %d waits for its group: after %.0f s of %g s %s", self._rank, self._world,
                            waited_s, self._patience_s, self._who_is_missing())
                notice_s *= 2
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _who_is_missing(self) -> str:
        missing = [rank for rank in range(1, min(self._world, MAX_LOOKED_FOR))
                   if self._store.add(self._came(rank), 0) == 0]
        if not missing:
            return f"{name_ranks([0], self._world)} has not come"
        return f"{name_ranks([0, *missing], self._world)} have not come (rank 0 may wait in torch's store for the rest)"

    def _failure(self, why: str) -> SpillwayError:
        return SpillwayError(Status.UNAVAILABLE,
                             f"rank {self._rank} of {self._world} cannot join its group: {why}{self._note}")

    def _id_key(self) -> str:
        return f"{self._prefix}/id"

    def _offered_key(self) -> str:
        return f"{self._prefix}/offered"

    def _came(self, rank: int) -> str:
        return f"{self._prefix}/came/{rank}"


def patience_for(timeout: datetime.timedelta) -> datetime.timedelta:
    """How long to wait for the other ranks; by default as long as for an operation."""
    seconds = default_library().variable_if_set("SPILLWAY_RENDEZVOUS_TIMEOUT")
    return timeout if seconds is None else datetime.timedelta(seconds=float(seconds))


def milliseconds(timeout: datetime.timedelta) -> int:
    return max(1, min(LONGEST_MS, int(timeout.total_seconds() * 1000)))


def note_on_ranks(global_ranks: Optional[Sequence[int]]) -> str:
    """Maps group ranks to job ranks: messages name the former, users think of the latter."""
    if not global_ranks or list(global_ranks) == list(range(len(global_ranks))):
        return ""
    return "in this group, ranks 0, 1, ... are the job's " + ", ".join(map(str, global_ranks))


def join_through_store(store: Any, rank: int, world: int, timeout: datetime.timedelta, name: str,
                       global_ranks: Optional[Sequence[int]] = None) -> Communicator:
    patience = patience_for(timeout)
    if not global_ranks and int(default_library().variable("SPILLWAY_SERVERS")) > 0:
        return join_with_servers(rank, world, name=name.encode(), operation_timeout_ms=milliseconds(timeout),
                                 rendezvous_timeout_ms=milliseconds(patience))
    note = note_on_ranks(global_ranks)
    place = IdInStore(store, rank, world, patience.total_seconds(), note)
    unique_id = place.offer(default_library().unique_id) if rank == 0 else place.fetch()
    communicator = Communicator(unique_id, rank=rank, world=world, name=name.encode(), note=note,
                                operation_timeout_ms=milliseconds(timeout),
                                rendezvous_timeout_ms=milliseconds(patience))
    if rank == 0:
        place.clear()
    return communicator


def join_with_servers(rank: int, world: int, **fields: Any) -> Communicator:
    """Joins as the launcher's variables say; they must match what torch was told."""
    communicator = Communicator(**fields)
    told = (communicator.rank, communicator.world)
    if told != (rank, world):
        communicator.close()
        raise SpillwayError(Status.INVALID_ARGUMENT,
                            f"rank {rank} of {world} cannot join its group: the environment says rank {told[0]} of "
                            f"{told[1]}, which is what counts with parameter servers (SPILLWAY_SERVERS); set RANK and "
                            "WORLD_SIZE to what init_process_group is given, or start the script with torchrun")
    return communicator


def join_through_group(group: Any, name: str, **fields: Any) -> Communicator:
    """A second communicator for the ranks of a process group of any backend."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    ranks = [dist.get_global_rank(group, each) for each in range(world)] if is_sub_group(group) else range(world)
    made = default_library().unique_id() if rank == 0 else UniqueId()
    return Communicator(carry_id(made, ranks[0], group), rank=rank, world=world, name=name.encode(),
                        note=note_on_ranks(ranks), **fields)


def carry_id(own: UniqueId, source: int, group: Any) -> UniqueId:
    """Broadcasts rank `source`'s id as bytes. torch's object collectives would unpickle it, so a forged source could
    run code here."""
    carried = torch.tensor(list(bytes(own)), dtype=torch.uint8, device=device_of(group))
    dist.broadcast(carried, src=source, group=group)
    return UniqueId.from_buffer_copy(bytes(carried.tolist()))


def device_of(group: Any) -> torch.device:
    """The device that the group's backend wants: torch's own choice, which has no public name."""
    for name in ("_get_object_coll_device", "_get_pg_default_device"):
        choose = getattr(dist.distributed_c10d, name, None)
        if choose is not None:
            return torch.device(choose(group))
    on_gpu = dist.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def is_sub_group(group: Any) -> bool:
    return group is not None and group is not dist.group.WORLD
