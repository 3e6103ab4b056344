# SPDX-License-Identifier: Apache-2.0
"""An operation that was started: how it ends, and what came of it, as plain values.

A request keeps what it is told to keep (buffers, options) as long as it lives. Any thread may ask it anything.
"""
import ctypes
import dataclasses
import time
from typing import Any, Optional, Tuple

from . import abi
from .errors import SpillwayError, Status

# A wait is cut into pieces of this length, so that Ctrl-C is heard between them.
LONGEST_DEAFNESS_MS = 200


@dataclasses.dataclass(frozen=True)
class PeerReport:
    """What came from one rank. `late`: it was not waited for."""

    packets_whole: int
    packets_trimmed: int
    packets_missing: int
    late: bool


@dataclasses.dataclass(frozen=True)
class ShardReport:
    """Who is in the sum of elements first to first + count - 1. `contributors` 0: nobody, they are zero."""

    first: int
    count: int
    owner: int
    contributors: int


@dataclasses.dataclass(frozen=True)
class PartSeconds:
    """How long the parts of an operation took at this rank, each of all its pieces together; pieces overlap, so that
    parts may add up to more than the operation. Of what a GPU coded the times are its own.

    `encode`: values to messages. `to_host`, `to_device`: copies from and to a GPU, of messages or, where the CPU codes,
    of values. `exchange`: from the first message that could leave to the last that came. `decode`: messages to values,
    and their sums. `gpu_wait`: until it was this rank's turn on the GPU."""

    encode: float = 0.0
    to_host: float = 0.0
    exchange: float = 0.0
    to_device: float = 0.0
    decode: float = 0.0
    gpu_wait: float = 0.0

    def __add__(self, other: "PartSeconds") -> "PartSeconds":
        return PartSeconds(*(mine + theirs for mine, theirs in zip(dataclasses.astuple(self),
                                                                   dataclasses.astuple(other))))


@dataclasses.dataclass(frozen=True)
class OperationReport:
    """Of this rank. Packets from others are in exactly one of whole, trimmed and missing; what is sent
    includes repeats. `contributors`, `empty_shards`, `drift`, `absent_elements`, `shards` and `code` are of tolerant
    all-reduces; `absent_elements`: that no rank is in the sum of, so they are zero at all ranks. `source`: the rank
    that a receive's message came from. `algorithm` and `code`: what was used, by name.

    Of thc and blocks, in the shards that this rank owns: `parts_added` of other ranks' parts were added up by switches
    on the way, `parts_alone` came by themselves, `chunks_flushed` had parts that had to be asked for. `values_clipped`:
    of this rank's, too large for the scale; of coded and sketch as well.

    Of coded and sketch, what this rank coded itself: `coded_values`, the `coded_bytes` they took, in messages of which
    `coded_tables` had to carry a table. Of sketch, the same at all ranks: `sketch_predicted` values were expected not to
    be zero, all in a dense step; `sketch_misses` others were not, of which `sketch_unrecovered` are owed to the next
    step.

    `parts`: how long each took. `gpu_bytes`: of the tensor, that a GPU coded."""

    seconds: float
    packets_whole: int
    packets_trimmed: int
    packets_missing: int
    packets_sent: int
    packets_repeated: int
    wire_bytes_sent: int
    contributors: int
    empty_shards: int
    drift: float
    peers: Tuple[PeerReport, ...]
    source: Optional[int] = None
    absent_elements: int = 0
    shards: Tuple[ShardReport, ...] = ()
    algorithm: str = "automatic"
    code: str = "planes"
    parts_added: int = 0
    parts_alone: int = 0
    chunks_flushed: int = 0
    values_clipped: int = 0
    coded_values: int = 0
    coded_bytes: int = 0
    coded_tables: int = 0
    sketch_predicted: int = 0
    sketch_misses: int = 0
    sketch_unrecovered: int = 0
    parts: PartSeconds = PartSeconds()
    gpu_bytes: int = 0

    @property
    def late_ranks(self) -> Tuple[int, ...]:
        return tuple(rank for rank, peer in enumerate(self.peers) if peer.late)


def peer_report_from(raw: abi.PeerReport) -> PeerReport:
    return PeerReport(raw.packets_whole, raw.packets_trimmed, raw.packets_missing, bool(raw.late))


def shard_report_from(raw: abi.ShardReport) -> ShardReport:
    return ShardReport(raw.first, raw.count, raw.owner, raw.contributors)


def source_from(raw: abi.OperationReport) -> Optional[int]:
    return None if raw.source == abi.ANY_RANK else raw.source


def name_of(number: int, names: Tuple[str, ...]) -> str:
    """A newer library may have more than these."""
    return names[number] if number < len(names) else str(number)


def operation_report_from(raw: abi.OperationReport, peers: Tuple[PeerReport, ...],
                          shards: Tuple[ShardReport, ...]) -> OperationReport:
    return OperationReport(seconds=raw.duration_ns / 1e9, packets_whole=raw.packets_whole,
                           packets_trimmed=raw.packets_trimmed, packets_missing=raw.packets_missing,
                           packets_sent=raw.packets_sent, packets_repeated=raw.packets_repeated,
                           wire_bytes_sent=raw.wire_bytes_sent, contributors=raw.contributors,
                           empty_shards=raw.empty_shards, drift=raw.drift, peers=peers,
                           source=source_from(raw), absent_elements=raw.absent_elements, shards=shards,
                           algorithm=name_of(raw.algorithm, abi.ALGORITHMS), code=name_of(raw.code, abi.CODES),
                           parts_added=raw.parts_added, parts_alone=raw.parts_alone,
                           chunks_flushed=raw.chunks_flushed, values_clipped=raw.values_clipped,
                           coded_values=raw.coded_values, coded_bytes=raw.coded_bytes,
                           coded_tables=raw.coded_tables, sketch_predicted=raw.sketch_predicted,
                           sketch_misses=raw.sketch_misses, sketch_unrecovered=raw.sketch_unrecovered,
                           parts=PartSeconds(encode=raw.encode_ns / 1e9, to_host=raw.to_host_ns / 1e9,
                                             exchange=raw.exchange_ns / 1e9, to_device=raw.to_device_ns / 1e9,
                                             decode=raw.decode_ns / 1e9, gpu_wait=raw.gpu_wait_ns / 1e9),
                           gpu_bytes=raw.gpu_bytes)


class Request:
    def __init__(self, library: abi.Library, handle: ctypes.c_void_p, described: str, keep: Any) -> None:
        self.library, self.handle, self.keep = library, handle, keep
        self._described = described

    def wait(self, timeout_ms: int = -1) -> bool:
        """False when the time was up, -1 waits for as long as it takes; raises when it failed."""
        deadline = None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1000
        while True:
            status = self.library.lib.spillway_request_wait(self.handle, self._piece_ms(deadline))
            if status != Status.IN_PROGRESS:
                self._raise_unless_ok(status)
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    @staticmethod
    def _piece_ms(deadline: Optional[float]) -> int:
        if deadline is None:
            return LONGEST_DEAFNESS_MS
        left = max(0, int((deadline - time.monotonic()) * 1000) + 1)
        return min(LONGEST_DEAFNESS_MS, left)

    def is_done(self) -> bool:
        return bool(self.library.lib.spillway_request_test(self.handle))

    def status(self) -> Status:
        return Status(self.library.lib.spillway_request_status(self.handle))

    def report(self) -> OperationReport:
        """Of an operation that has ended, well or not."""
        raw = self._raw_report()
        peers = tuple(self.peer_report(rank) for rank in range(raw.peers))
        return operation_report_from(raw, peers, tuple(self.shard_report(shard) for shard in range(raw.shards)))

    def source(self) -> Optional[int]:
        """Of a receive that has ended: the rank that its message came from."""
        return source_from(self._raw_report())

    def _raw_report(self) -> abi.OperationReport:
        raw = abi.OperationReport(size=ctypes.sizeof(abi.OperationReport))
        self.library.check(self.library.lib.spillway_request_report(self.handle, ctypes.byref(raw)))
        return raw

    def peer_report(self, rank: int) -> PeerReport:
        raw = abi.PeerReport(size=ctypes.sizeof(abi.PeerReport))
        self.library.check(self.library.lib.spillway_request_peer_report(self.handle, rank, ctypes.byref(raw)))
        return peer_report_from(raw)

    def shard_report(self, shard: int) -> ShardReport:
        raw = abi.ShardReport(size=ctypes.sizeof(abi.ShardReport))
        self.library.check(self.library.lib.spillway_request_shard_report(self.handle, shard, ctypes.byref(raw)))
        return shard_report_from(raw)

    def _raise_unless_ok(self, status: int) -> None:
        if status != Status.OK:
            message = self.library.lib.spillway_request_message(self.handle).decode(errors="replace")
            raise SpillwayError(Status(status), f"{self._described}: {message}")

    def __del__(self) -> None:
        self.library.lib.spillway_request_free(self.handle)
