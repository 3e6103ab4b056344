# SPDX-License-Identifier: Apache-2.0
"""What came of an operation, as plain values."""
import dataclasses
from typing import Tuple

from . import abi


@dataclasses.dataclass(frozen=True)
class PeerReport:
    """What came from one rank. `late`: it was not waited for."""

    packets_whole: int
    packets_trimmed: int
    packets_missing: int
    late: bool


@dataclasses.dataclass(frozen=True)
class OperationReport:
    """Of this rank. Packets from others are in exactly one of whole, trimmed and missing; what is sent
    includes repeats. `contributors`, `empty_shards` and `drift` are of tolerant all-reduces."""

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

    @property
    def late_ranks(self) -> Tuple[int, ...]:
        return tuple(rank for rank, peer in enumerate(self.peers) if peer.late)


def peer_report_from(raw: abi.PeerReport) -> PeerReport:
    return PeerReport(raw.packets_whole, raw.packets_trimmed, raw.packets_missing, bool(raw.late))


def operation_report_from(raw: abi.OperationReport, peers: Tuple[PeerReport, ...]) -> OperationReport:
    return OperationReport(seconds=raw.duration_ns / 1e9, packets_whole=raw.packets_whole,
                           packets_trimmed=raw.packets_trimmed, packets_missing=raw.packets_missing,
                           packets_sent=raw.packets_sent, packets_repeated=raw.packets_repeated,
                           wire_bytes_sent=raw.wire_bytes_sent, contributors=raw.contributors,
                           empty_shards=raw.empty_shards, drift=raw.drift, peers=peers)
