# SPDX-License-Identifier: Apache-2.0
"""A process group of a staged world, the changes that torch's own start-up needs there, and the watch over the values
that the script reads.

torch's ranks meet in a store that rank 0 hosts and that waits for all of them. Here the lowest real rank hosts it, as
torchrun's agent would, whether rank 0 is real or not. It also adds the virtual ranks to torch's counts in the store.

Nobody has the objects that a virtual rank would broadcast or scatter. The lowest real rank's objects are broadcast
instead, and None is scattered.

ReadWatch: where a script reads values that virtual ranks contributed to, its control flow may differ from that of the
real job. Results of operations are recorded, as tensors with the virtual ranks' contribution. A script reads one when
it turns it, or a view of it, into a number, a list or an array (READS). A warning then names the place, the operation
and where that was called. Each place warns once. With `spillway emulate stage --strict` it is an error instead.
torch's own object collectives read their results, so they are detected as well. Not tracked: values calculated from
such a result, and copies. A result that the script has since written to counts as the script's own.
"""
import datetime
import functools
import os
import sys
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .. import abi
from ..errors import SpillwayError, Status
from .backend_codec import BackendCodec
from .operation import Operation, OperationGroup, SpillwayWork
from .collectives import OWN_TAG, Collectives
from .process_group import SpillwayBackend, SpillwayGroup, collectives_of
from .stage_link import StageLink
from .staged import UNEVEN, StagedCommunicator, join_staged
from .tensors import allow_gpu_coding

# ---- Reads of results by the script ----

READS = ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__")
PACKAGES = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)


def place_of_caller() -> str:
    """file:line of the nearest frame that is neither torch's nor this package's."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGES):
        frame = frame.f_back  # type: ignore[assignment]
    return "a thread of torch's" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


class ReadWatch:
    """Any thread may note and look."""

    def __init__(self, link: StageLink) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._noted: Dict[int, Tuple["weakref.ref[torch.Tensor]", int, str]] = {}  # by id: tensor, version, text
        self._told: Set[str] = set()

    def note(self, tensors: List[torch.Tensor], text: str) -> None:
        for tensor in tensors:
            key = id(tensor)
            reference = weakref.ref(tensor, lambda _, key=key: self._noted.pop(key, None))
            self._noted[key] = (reference, tensor._version, text)

    def look(self, tensor: torch.Tensor, read: str) -> None:
        text = self._text_of(tensor) or (self._text_of(tensor._base) if tensor._base is not None else None)
        if text is None:
            return
        self.tell(f"{read}() looks at a result that virtual ranks had a part in ({text})")

    def tell(self, what: str) -> None:
        """Warns once per calling place."""
        place = place_of_caller()
        with self._lock:
            if place in self._told:
                return
            self._told.add(place)
            self._link.reads = len(self._told)
        message = f"{place}: {what}: what the script does with it may differ from the real job"
        if self._link.is_strict:
            raise SpillwayError(Status.MISMATCH, message)
        warnings.warn(f"Spillway: {message}", stacklevel=4)

    def _text_of(self, tensor: torch.Tensor) -> Optional[str]:
        noted = self._noted.get(id(tensor))
        if noted is None or noted[0]() is not tensor or noted[1] != tensor._version:
            return None
        return noted[2]

    def watch(self) -> None:
        """Watches reads in the whole process from now on."""
        for name in READS:
            setattr(torch.Tensor, name, self._looking(name, getattr(torch.Tensor, name)))

    def _looking(self, name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(read)
        def look_and_read(tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
            if self._noted:
                self.look(tensor, name)
            return read(tensor, *arguments, **named)

        return look_and_read


class WatchedOperation:
    """An operation (operation.py) that records its results when they are there."""

    def __init__(self, operation: Any, reads: ReadWatch, tensors: List[torch.Tensor]) -> None:
        self._operation, self._reads, self._tensors = operation, reads, tensors
        self._place = place_of_caller()

    def wait(self, timeout_s: Optional[float] = None) -> None:
        self._operation.wait(timeout_s)
        self._note()

    def is_done(self) -> bool:
        is_done = self._operation.is_done()
        if is_done:
            self._note()
        return is_done

    def _note(self) -> None:
        tensors, self._tensors = self._tensors, []
        if tensors:
            text = self._operation.request.virtual_part
            if text is not None:
                self._reads.note(tensors, f"{text}, called at {self._place}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operation, name)


# ---- The group ----

STORE_PATIENCE = datetime.timedelta(minutes=30)


class StagedCollectives(Collectives):
    """The part that both faces of a staged group share."""

    def __init__(self, communicator: StagedCommunicator, codec: Optional[BackendCodec], *, reads: ReadWatch,
                 **of_face: Any) -> None:
        self._reads, self._place = reads, communicator.place
        super().__init__(communicator, codec, **of_face)  # type: ignore[arg-type]

    def _work(self, operation: Any, result: List[torch.Tensor]) -> SpillwayWork:
        if isinstance(operation, Operation) and self._place.virtual > 0 and result:
            is_per_rank = len(result) == self._world
            virtual = [tensor for place, tensor in enumerate(result)
                       if not is_per_rank or not self._place.is_real(place)]
            operation = WatchedOperation(operation, self._reads, virtual)
        return super()._work(operation, result)

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> SpillwayWork:
        """Real ranks exchange messages, as in any world; the stage sees one collective of all ranks. A virtual rank
        returns what it is sent, or zeros if sizes differ."""
        outputs, inputs = list(output_tensors), list(input_tensors)
        if len(outputs) != self._world or len(inputs) != self._world:
            raise ValueError(f"all_to_all: {self._world} ranks need as many tensors; there are {len(inputs)} in and "
                             f"{len(outputs)} out")
        real = [peer for peer in self._place.real if peer != self._rank]
        operations: List[Any] = [self._begin_receive(outputs[peer], peer, OWN_TAG)
                                 for peer in real if outputs[peer].numel()]
        operations += [self._begin_send(inputs[peer], peer, OWN_TAG) for peer in real if inputs[peer].numel()]
        size = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
        operations.append(Operation(UNEVEN, None, None, size).start(self.member))
        for peer, (output, given) in enumerate(zip(outputs, inputs)):
            if peer == self._rank or not self._place.is_real(peer):
                same = output.numel() == given.numel()
                output.detach().copy_(given.detach().view_as(output)) if same else output.detach().zero_()
        return self._work(OperationGroup(operations), outputs)


class StagedGroup(StagedCollectives, SpillwayGroup):
    pass


class StagedBackend(StagedCollectives, SpillwayBackend):
    pass


class StandInStore:
    """A store in which the lowest real rank also counts for the virtual ones."""

    def __init__(self, store: Any, virtual: int) -> None:
        self._store, self._virtual = store, virtual

    def add(self, key: str, amount: int) -> int:
        return self._store.add(key, amount + self._virtual if amount == 1 else amount)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class StagedWorld:
    """This process's part in a staged world. Made once, before torch's groups."""

    def __init__(self, path: str) -> None:
        if "RANK" not in os.environ:
            raise SpillwayError(Status.INVALID_ARGUMENT, "SPILLWAY_STAGE is set and RANK is not: start the script with "
                                "`spillway emulate stage` or `spillway emulate enter`")
        self.link = StageLink(path, int(os.environ["RANK"]))
        self.reads = ReadWatch(self.link)
        self.reads.watch()
        os.environ.update({"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"})
        allow_gpu_coding(False)  # the host fills in virtual ranks' parts
        self._held: Optional[bytearray] = None
        self._store = self._host_store() if self.link.rank == self.link.real[0] else None
        self._stand_in_at_barriers()
        self._stand_in_for_objects()

    def _host_store(self) -> Any:
        return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, True, STORE_PATIENCE,
                             wait_for_workers=False)

    def _stand_in_at_barriers(self) -> None:
        """torch counts ranks in its store at the end of init_process_group and new_group, some releases always."""
        counted = distributed_c10d._store_based_barrier
        virtual = self.link.world - len(self.link.real) if self.link.rank == self.link.real[0] else 0

        def barrier(rank: int, store: Any, *arguments: Any, **named: Any) -> None:
            counted(rank, StandInStore(store, virtual), *arguments, **named)

        distributed_c10d._store_based_barrier = barrier

    def _stand_in_for_objects(self) -> None:
        broadcast, scatter = dist.broadcast_object_list, dist.scatter_object_list

        def broadcast_object_list(object_list: List[Any], src: Optional[int] = None, group: Any = None,
                                  *arguments: Any, **named: Any) -> None:
            source = self._source_of(src, group, named.pop("group_src", None))
            if source not in self.link.real:
                self.reads.tell(f"broadcast_object_list() from rank {source}, a virtual one")
                source = next(rank for rank in self.link.real if rank in self._ranks_of(group))
            broadcast(object_list, source, group, *arguments, **named)

        def scatter_object_list(scatter_object_output_list: List[Any], scatter_object_input_list: Any = None,
                                src: Optional[int] = None, group: Any = None, group_src: Optional[int] = None) -> None:
            source = self._source_of(src, group, group_src)
            if source in self.link.real:
                scatter(scatter_object_output_list, scatter_object_input_list, source, group)
                return
            self.reads.tell(f"scatter_object_list() from rank {source}, a virtual one")
            scatter_object_output_list[0] = None

        for module in (dist, distributed_c10d):
            module.broadcast_object_list, module.scatter_object_list = broadcast_object_list, scatter_object_list

    def _ranks_of(self, group: Any) -> Sequence[int]:
        own = collectives_of(group)
        return own.communicator.ranks if isinstance(own, StagedCollectives) else range(self.link.world)

    def _source_of(self, src: Optional[int], group: Any, group_src: Optional[int]) -> int:
        """The job rank of the source; newer releases of torch also take a group rank."""
        return (src or 0) if group_src is None else self._ranks_of(group)[group_src]

    def join(self, store: Any, world: int, timeout: datetime.timedelta, name: str,
             global_ranks: Optional[Sequence[int]]) -> StagedCommunicator:
        if self._held is None:  # stands for the library's memory of virtual ranks; written, so that it is resident
            self._held = bytearray(b"\1") * self.link.memory_bytes
        return join_staged(self.link, store, world, timeout, name, global_ranks)


def staged_world() -> Optional[StagedWorld]:
    """The world that SPILLWAY_STAGE names; None if all ranks are real."""
    path = abi.default_library().variable_if_set("SPILLWAY_STAGE")
    return StagedWorld(path) if path else None
