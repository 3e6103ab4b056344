# SPDX-License-Identifier: Apache-2.0
"""The state of a training job at the beginning of a step, and its transfer to a process that lacks it. The bytes go
straight into that process's tensors, in parts from several ranks at once, over a communicator of the new epoch.
Nothing goes through a disk.

    source 0 ── size, description ──────────────────► receiver     all tensors' kinds, and everything that is no tensor
    source i ── its share of the pieces ────────────► receiver     large tensors in place, small ones packed
    source i ── checksums of these ─────────────────► receiver

A receiver whose tensors differ from the description (another model) fails with a message. If a source dies, the whole
transfer fails, the receiver still has no state, and the next epoch starts it again.

Any member of the job may be a source, so a receiver takes data and never code (state_description.py). It allocates no
more than its own model justifies: tensors that it lacks (an optimizer's, before its first step) may have at most
MAX_TIMES_OWN times the bytes of its own tensors, plus MAX_NEW_BYTES.

Limits: pieces of PIECE_BYTES; MAX_PIECES of a state; MAX_DESCRIPTION_BYTES. Threads: the one that trains.
"""
import copy
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from .. import abi
from ..communicator import Communicator
from ..request import Request
from .state_description import MAX_DESCRIPTION_BYTES, Flat, TensorKind, describe, fill, flatten, read

SCHEDULER = getattr(torch.optim.lr_scheduler, "LRScheduler", torch.optim.lr_scheduler._LRScheduler)
SMALL_BYTES = 256 << 10    # smaller tensors are packed together
PIECE_BYTES = 16 << 20
CHECKING_THREADS = 2
MAX_PIECES = 60_000        # limited by message tags
MAX_TIMES_OWN = 16         # Adam for a bfloat16 model with float32 copies needs 6
MAX_NEW_BYTES = 64 << 20
SIZE_TAG, DESCRIPTION_TAG, CHECKSUMS_TAG, FIRST_PIECE_TAG = 1, 2, 3, 16


class TrainingState:
    """State of a model, its optimizers and anything else with state_dict() and load_state_dict()."""

    def __init__(self, model: torch.nn.Module, optimizers: Sequence[Any], extra: Sequence[Any]) -> None:
        self._model, self._optimizers, self._extra = model, list(optimizers), list(extra)

    def tree(self) -> Dict[str, Any]:
        """All state; its tensors are the ones that training uses."""
        return {"model": self._model.state_dict(), "optimizers": [each.state_dict() for each in self._optimizers],
                "extra": [without_code(each.state_dict()) if isinstance(each, SCHEDULER) else each.state_dict()
                          for each in self._extra]}

    def adopt(self, tree: Dict[str, Any], own: Dict[str, Any]) -> None:
        """Loads `tree`. `own` is the earlier tree(), whose tensors were used to receive those of `tree` where they
        fit."""
        check_alike(tree, own)
        for optimizer, saved, before in zip(self._optimizers, tree["optimizers"], own["optimizers"]):
            if not is_same_state(saved["state"], before["state"]):
                optimizer.load_state_dict(saved)
                continue
            for group, values in zip(optimizer.param_groups, saved["param_groups"]):
                group.update({name: value for name, value in values.items() if name != "params"})
        for each, saved in zip(self._extra, tree["extra"]):
            each.load_state_dict(saved)

    def check(self) -> None:
        """Raises TypeError if a part of the state cannot be sent."""
        describe(flatten(self.tree()))

    def snapshot(self) -> "Snapshot":
        return Snapshot(self._model, self._extra)


def check_alike(tree: Any, own: Dict[str, Any]) -> None:
    """Checks that the received tree has the parts that adopt() uses."""
    fits = isinstance(tree, dict) and all(isinstance(tree.get(part), list) and len(tree[part]) == len(own[part])
                                          for part in ("optimizers", "extra"))
    fits = fits and all(isinstance(saved, dict) and isinstance(saved.get("state"), dict)
                        and isinstance(saved.get("param_groups"), list)
                        and len(saved["param_groups"]) == len(before["param_groups"])
                        and all(isinstance(group, dict) for group in saved["param_groups"])
                        for saved, before in zip(tree["optimizers"], own["optimizers"]))
    if not fits:
        raise RuntimeError("the state that came is not this job's: it has other optimizers or other states beside "
                           "them; start every process with the same script")


def without_code(state: Any) -> Any:
    """Drops functions, which some of torch's schedulers keep in their state. A joining process has its own from the
    same script: load_state_dict() leaves what it is not given."""
    if isinstance(state, dict):
        kept = copy.copy(state)  # a Counter stays a Counter
        kept.clear()
        kept.update({key: without_code(each) for key, each in state.items() if not callable(each)})
        return kept
    return [without_code(each) for each in state] if isinstance(state, list) else state


def is_same_state(one: Any, other: Any) -> bool:
    """True for the same tensor objects and equal other values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same_state(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor):
        return one is other
    return bool(type(one) is type(other) and one == other)


class Snapshot:
    """The state that a step changes before its optimizer does: buffers and the script's own state. Small, as a rule."""

    def __init__(self, model: torch.nn.Module, extra: Sequence[Any]) -> None:
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
        self._extra = [(each, copy.deepcopy(each.state_dict())) for each in extra]

    def restore(self) -> None:
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)
        for each, state in self._extra:
            each.load_state_dict(copy.deepcopy(state))


# ---- From rank to rank ----

class Piece(NamedTuple):
    tensor: torch.Tensor  # contiguous bytes
    tag: int


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes; the tensor must be contiguous."""
    return tensor.detach().reshape(-1).view(torch.uint8)


class Layout:
    """Which tensors travel packed, and how everything is cut into pieces. The same at both ends."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        # Tensors on other devices, or not contiguous, travel through a copy.
        self._hosts = [tensor if is_plain(tensor) else tensor.detach().cpu().contiguous() for tensor in tensors]
        self._tensors = list(tensors)
        self._small = [at for at, tensor in enumerate(self._hosts) if 0 < size_of(tensor) < SMALL_BYTES]
        self._packed = torch.empty(sum(size_of(self._hosts[at]) for at in self._small), dtype=torch.uint8)

    def pack(self) -> None:
        for part, at in self._parts():
            part.copy_(bytes_of(self._hosts[at]))

    def unpack(self) -> None:
        for part, at in self._parts():
            bytes_of(self._hosts[at]).copy_(part)
        with torch.no_grad():
            for tensor, host in zip(self._tensors, self._hosts):
                if tensor is not host:
                    tensor.copy_(host)

    def _parts(self) -> Iterator[Tuple[torch.Tensor, int]]:
        begin = 0
        for at in self._small:
            end = begin + size_of(self._hosts[at])
            yield self._packed[begin:end], at
            begin = end

    def pieces(self) -> List[Piece]:
        runs = [self._packed] if self._packed.numel() else []
        runs += [bytes_of(tensor) for tensor in self._hosts if size_of(tensor) >= SMALL_BYTES]
        cut = [part for run in runs for part in run.split(PIECE_BYTES)]
        if len(cut) > MAX_PIECES:
            raise RuntimeError(f"a state of {sum(part.numel() for part in cut)} bytes is too large to be moved: there "
                               f"may be {MAX_PIECES} pieces of {PIECE_BYTES} bytes")
        return [Piece(part, FIRST_PIECE_TAG + at) for at, part in enumerate(cut)]


def is_plain(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.is_contiguous()


def size_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def share_of(pieces: Sequence[Piece], place: int, places: int) -> List[Piece]:
    """The pieces of the source at index `place` of `places`. Neighbouring pieces go to different sources."""
    return list(pieces[place::places])


def checksum(piece: Piece) -> int:
    return zlib.crc32(piece.tensor.numpy()) if piece.tensor.numel() else 0


def start_message(comm: Communicator, verb: str, data: torch.Tensor, peer: int, tag: int) -> Request:
    options = comm.options()
    options.tag = tag
    return comm.start(verb, data.data_ptr(), data.numel(), abi.UINT8, peer, options=options, keep=data)


def bytes_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def who_has_it(comm: Communicator, has_it: bool) -> List[int]:
    """The ranks that report to have the state; all ranks call it."""
    own = torch.tensor([int(has_it)], dtype=torch.uint8)
    said = torch.zeros(comm.world, dtype=torch.uint8)
    comm.start("all_gather", own.data_ptr(), said.data_ptr(), own.numel(), abi.UINT8, keep=(own, said)).wait()
    return [rank for rank in range(comm.world) if said[rank]]


def send_state(comm: Communicator, state: TrainingState, place: int, sources: int, receivers: Sequence[int]) -> None:
    """Sends the share of the source at index `place` of `sources`."""
    flat = flatten(state.tree())
    layout = Layout(flat.tensors)
    layout.pack()
    mine = share_of(layout.pieces(), place, sources)
    description = bytes_tensor(describe(flat))
    requests: List[Request] = []
    for receiver in receivers:
        if place == 0:
            size = torch.tensor([description.numel()], dtype=torch.int64)
            requests.append(start_message(comm, "send", bytes_of(size), receiver, SIZE_TAG))
            requests.append(start_message(comm, "send", description, receiver, DESCRIPTION_TAG))
        requests += [start_message(comm, "send", piece.tensor, receiver, piece.tag) for piece in mine]
    sums = torch.tensor(checksums(mine) or [0], dtype=torch.int64)
    requests += [start_message(comm, "send", bytes_of(sums), receiver, CHECKSUMS_TAG) for receiver in receivers]
    for request in requests:
        request.wait()


def checksums(pieces: Sequence[Piece]) -> List[int]:
    with ThreadPoolExecutor(CHECKING_THREADS) as pool:
        return list(pool.map(checksum, pieces))


def receive_state(comm: Communicator, state: TrainingState, sources: Sequence[int]) -> int:
    """Returns the number of tensor bytes received."""
    size = torch.zeros(1, dtype=torch.int64)
    start_message(comm, "receive", bytes_of(size), sources[0], SIZE_TAG).wait()
    if not 0 < int(size[0]) <= MAX_DESCRIPTION_BYTES:
        raise RuntimeError(f"rank {sources[0]} has a description of {int(size[0])} bytes for its state, which may have "
                           f"1 to {MAX_DESCRIPTION_BYTES}")
    description = torch.empty(int(size[0]), dtype=torch.uint8)
    start_message(comm, "receive", description, sources[0], DESCRIPTION_TAG).wait()
    tree, kinds = read(description.numpy().tobytes())
    own = state.tree()
    tensors = places_for(kinds, flatten(own))
    layout = Layout(tensors)
    pieces = layout.pieces()
    arrivals = [start_message(comm, "receive", piece.tensor, sources[at % len(sources)], piece.tag)
                for at, piece in enumerate(pieces)]
    told = [torch.zeros(max(1, len(share_of(pieces, place, len(sources)))), dtype=torch.int64)
            for place in range(len(sources))]
    last_words = [start_message(comm, "receive", bytes_of(each), source, CHECKSUMS_TAG)
                  for source, each in zip(sources, told)]
    with ThreadPoolExecutor(CHECKING_THREADS) as pool:
        found = []
        for piece, arrival in zip(pieces, arrivals):
            arrival.wait()
            found.append(pool.submit(checksum, piece))  # while the next ones arrive
    for request in last_words:
        request.wait()
    for place, source in enumerate(sources):
        here = [each.result() for each in found[place::len(sources)]]
        if here != told[place][:len(here)].tolist():
            raise RuntimeError(f"the state that came from rank {source} is not what it sent: its checksums differ")
    layout.unpack()
    state.adopt(fill(tree, tensors), own)
    return sum(size_of(tensor) for tensor in tensors)


def places_for(kinds: Sequence[TensorKind], own: Flat) -> List[torch.Tensor]:
    """This process's matching tensors, and new ones for the rest. A model's tensors must match, and all of them must
    come: one that did not would keep its random initial values."""
    here = {kind.path: (kind, tensor) for kind, tensor in zip(own.kinds, own.tensors)}
    found = [here.pop(kind.path, None) for kind in kinds]  # each path matches once
    fits = [known is not None and known[0] == kind for kind, known in zip(kinds, found)]
    for kind, known, is_fit in zip(kinds, found, fits):
        if not is_fit and kind.path.startswith("/model/"):
            raise RuntimeError(f"this process's model is not the job's: {kind.path[7:]} is {kind.dtype} "
                               f"{list(kind.shape)} there, and here "
                               + ("missing" if known is None else f"{known[0].dtype} {list(known[0].shape)}"))
    left = [path[7:] for path in here if path.startswith("/model/")]
    if left:
        raise RuntimeError(f"the state that came is incomplete: it lacks {len(left)} of the tensors of this process's "
                           f"model, {left[0]} for one; start every process with the same script")
    check_new([kind for kind, is_fit in zip(kinds, fits) if not is_fit], own)
    return [known[1] if known is not None and is_fit else torch.empty(kind.shape, dtype=kind.dtype)
            for kind, known, is_fit in zip(kinds, found, fits)]


def check_new(kinds: Sequence[TensorKind], own: Flat) -> None:
    """Checks the size of new tensors before anything is allocated."""
    new, allowed = sum(kind.size for kind in kinds), MAX_TIMES_OWN * sum(map(size_of, own.tensors)) + MAX_NEW_BYTES
    if new > allowed:
        largest = max(kinds, key=lambda kind: kind.size)
        raise RuntimeError(f"the job's state has tensors of {new} bytes that this process lacks, and {allowed} are "
                           f"allowed beside its model; the largest is {largest.path} with {largest.size} bytes")
