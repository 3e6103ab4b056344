# SPDX-License-Identifier: Apache-2.0
"""A started operation: how it ends, and its report as plain values.

A request keeps alive what it was given (buffers, options). Its report is read from the library the first time that
somebody asks, once the operation has ended, and kept. Any thread may use it.
"""
import ctypes
import dataclasses
import time
from typing import Any, Optional, Tuple

from . import abi
from .errors import SpillwayError, Status


@dataclasses.dataclass(frozen=True)
class PeerReport:
    """Packets from one rank. `late`: the operation did not wait for it."""

    packets_whole: int
    packets_trimmed: int
    packets_missing: int
    late: bool


@dataclasses.dataclass(frozen=True)
class ShardReport:
    """Contributors to the sum of elements first to first + count - 1. With 0 contributors the elements are zero."""

    first: int
    count: int
    owner: int
    contributors: int


@dataclasses.dataclass(frozen=True)
class PartSeconds:
    """Time of an operation's parts at this rank, each summed over all pieces. Pieces overlap, so the parts may add up
    to more than the operation. If a GPU coded, the GPU measured the times.

    `encode`: values to messages. `to_host`, `to_device`: copies from and to a GPU, of messages or, if the CPU codes,
    of values. `exchange`: from the first message that could leave to the last that came. `decode`: messages to
    values, and their sums. `gpu_wait`: until it was this rank's turn on the GPU."""

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
    """This rank's view of an operation. Every packet from others is counted once: whole, trimmed or missing. Sent
    packets include retransmissions. Only tolerant all-reduces set `contributors`, `empty_shards`,
    `absent_elements`, `shards` and `codec`. `absent_elements`: elements without a contributor; they are zero at all
    ranks. `source`: the rank that a receive's message came from. `algorithm` and `codec`: the ones used, by name.

    With levels and blocks, in the shards that this rank owns: switches on the way added `parts_added` of the other
    ranks' parts; `parts_alone` arrived unsummed; the owner had to request parts of `chunks_flushed`.
    `values_clipped`: this rank's values that were too large for the scale; also with entropy and sketch.

    With entropy and sketch, for the values that this rank coded: their number `entropy_values`, the `entropy_bytes`
    they took, and the `entropy_tables` messages that had to carry a table. With sketch, equal at all ranks:
    `sketch_predicted` values were expected to be nonzero (all of them in a dense step); `sketch_misses` others were
    nonzero, and `sketch_unrecovered` of these are carried over to the next step.

    `parts`: time of each part. `gpu_bytes`: bytes of the tensor that a GPU coded."""

    seconds: float
    packets_whole: int
    packets_trimmed: int
    packets_missing: int
    packets_sent: int
    packets_repeated: int
    wire_bytes_sent: int
    contributors: int
    empty_shards: int
    peers: Tuple[PeerReport, ...]
    source: Optional[int] = None
    absent_elements: int = 0
    shards: Tuple[ShardReport, ...] = ()
    algorithm: str = "auto"
    codec: str = "planes"
    parts_added: int = 0
    parts_alone: int = 0
    chunks_flushed: int = 0
    values_clipped: int = 0
    entropy_values: int = 0
    entropy_bytes: int = 0
    entropy_tables: int = 0
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
    """The name, or the number if a newer library has more of them."""
    return names[number] if number < len(names) else str(number)


def operation_report_from(raw: abi.OperationReport, peers: Tuple[PeerReport, ...],
                          shards: Tuple[ShardReport, ...]) -> OperationReport:
    return OperationReport(seconds=raw.duration_ns / 1e9, packets_whole=raw.packets_whole,
                           packets_trimmed=raw.packets_trimmed, packets_missing=raw.packets_missing,
                           packets_sent=raw.packets_sent, packets_repeated=raw.packets_repeated,
                           wire_bytes_sent=raw.wire_bytes_sent, contributors=raw.contributors,
                           empty_shards=raw.empty_shards, peers=peers,
                           source=source_from(raw), absent_elements=raw.absent_elements, shards=shards,
                           algorithm=name_of(raw.algorithm, abi.ALGORITHMS), codec=name_of(raw.codec, abi.CODECS),
                           parts_added=raw.parts_added, parts_alone=raw.parts_alone,
                           chunks_flushed=raw.chunks_flushed, values_clipped=raw.values_clipped,
                           entropy_values=raw.entropy_values, entropy_bytes=raw.entropy_bytes,
                           entropy_tables=raw.entropy_tables, sketch_predicted=raw.sketch_predicted,
                           sketch_misses=raw.sketch_misses, sketch_unrecovered=raw.sketch_unrecovered,
                           parts=PartSeconds(encode=raw.encode_ns / 1e9, to_host=raw.to_host_ns / 1e9,
                                             exchange=raw.exchange_ns / 1e9, to_device=raw.to_device_ns / 1e9,
                                             decode=raw.decode_ns / 1e9, gpu_wait=raw.gpu_wait_ns / 1e9),
                           gpu_bytes=raw.gpu_bytes)


class Request:
    def __init__(self, library: abi.Library, handle: ctypes.c_void_p, described: str, keep: Any) -> None:
        self.library, self.handle, self.keep = library, handle, keep
        self._described = described
        self._raw: Optional[abi.OperationReport] = None
        self._report: Optional[OperationReport] = None

    def wait(self, timeout_ms: int = -1) -> bool:
        """False if the time was up; -1 waits without limit. Raises if the operation failed."""
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
            return abi.WAIT_SLICE_MS
        left = max(0, int((deadline - time.monotonic()) * 1000) + 1)
        return min(abi.WAIT_SLICE_MS, left)

    def is_done(self) -> bool:
        return bool(self.library.lib.spillway_request_test(self.handle))

    def status(self) -> Status:
        return Status(self.library.lib.spillway_request_status(self.handle))

    def report(self) -> OperationReport:
        """Report of an operation that has ended, successfully or not."""
        if self._report is None:
            raw = self._raw_report()
            self._report = operation_report_from(raw, self._peer_reports(raw.peers), self._shard_reports(raw.shards))
        return self._report

    def seconds(self) -> float:
        """Duration of an operation that has ended. Cheaper than report(): it reads nothing about other ranks."""
        return self._raw_report().duration_ns / 1e9

    def source(self) -> Optional[int]:
        """The rank that a finished receive's message came from."""
        return source_from(self._raw_report())

    def _raw_report(self) -> abi.OperationReport:
        if self._raw is None:
            raw = abi.OperationReport(size=ctypes.sizeof(abi.OperationReport))
            self.library.check(self.library.lib.spillway_request_report(self.handle, ctypes.byref(raw)))
            self._raw = raw
        return self._raw

    def _peer_reports(self, world: int) -> Tuple[PeerReport, ...]:
        if world == 0:
            return ()
        raw = (abi.PeerReport * world)(abi.PeerReport(size=ctypes.sizeof(abi.PeerReport)))
        self.library.check(self.library.lib.spillway_request_peers(self.handle, raw, world, None))
        return tuple(peer_report_from(peer) for peer in raw)

    def _shard_reports(self, shards: int) -> Tuple[ShardReport, ...]:
        raw = (abi.ShardReport * shards)()
        for number, shard in enumerate(raw):
            shard.size = ctypes.sizeof(abi.ShardReport)
            self.library.check(self.library.lib.spillway_request_shard_report(self.handle, number, ctypes.byref(shard)))
        return tuple(map(shard_report_from, raw))

    def _raise_unless_ok(self, status: int) -> None:
        if status != Status.OK:
            message = self.library.lib.spillway_request_message(self.handle).decode(errors="replace")
            raise SpillwayError(Status(status), f"{self._described}: {message}")

    def __del__(self) -> None:
        self.library.lib.spillway_request_free(self.handle)
