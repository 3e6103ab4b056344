# SPDX-License-Identifier: Apache-2.0
"""One training step's gradients, over all buckets, as this rank saw it."""
import dataclasses
from typing import Any, Optional, Sequence, Tuple

from ..request import OperationReport, PartSeconds
from .codec_chooser import Choice


@dataclasses.dataclass(frozen=True)
class StepReport:
    step: int                    # counted from 0 by the hook
    exact: bool
    codec: str                   # "exact", or the code used: "planes", "thc", "blocks", "coded",
                                 # "sketch"
    buckets: int
    gradient_bytes: int          # in memory
    wire_bytes: int              # sent by this rank, with retransmissions
    packets: int                 # expected at this rank
    trimmed: int                 # of these, arrived shortened
    lost: int                    # of these, did not arrive and were not waited for
    repeated: int                # retransmitted by this rank
    late_ranks: Tuple[int, ...]  # that at least one bucket did not wait for
    contributors: int            # ranks in the smallest sum, without empty shards; 0 if exact
    empty_shards: int            # without a sum, because their owner was too late
    absent_elements: int         # elements without a contributor: zero at all ranks
    parts_added: int             # thc, blocks, in shards owned here: parts that switches added
    parts_alone: int             # parts that arrived unsummed
    chunks_flushed: int          # chunks whose parts the owner had to request
    values_clipped: int          # this rank's, too large for the scale; also with coded codes
    drift: float                 # expected, between replicas; above 0 only with lossy_gather
    nmse: Optional[float]        # squared error over energy, in measured steps
    seconds: float               # of the slowest bucket, from its call to its end
    bits_per_value: Optional[float] = None  # with coded ones, for what this rank coded
    tables: int = 0              # with coded ones, messages that had to carry a table
    predicted: int = 0           # with sketch, values expected to be nonzero; all of them in a dense step
    misses: int = 0              # other values that were nonzero
    unrecovered: int = 0         # of these, carried over to the next step
    gpu_bytes: int = 0           # gradient bytes that a GPU coded
    cpu_bytes: int = 0           # and that the CPU coded; the rest was sent as it was
    parts: PartSeconds = PartSeconds()  # time of each part, over all buckets
    choice: Optional[Choice] = None  # with auto: the last choice, its reason and trials; None before the first

    def scalars(self) -> "dict[str, float]":
        """For plots."""
        values = {"gradient_bytes": self.gradient_bytes, "wire_bytes": self.wire_bytes, "trimmed": self.trimmed,
                  "lost": self.lost, "late_ranks": len(self.late_ranks), "seconds": self.seconds}
        if self.gpu_bytes:
            values.update(gpu_bytes=self.gpu_bytes)
        values.update({f"{part}_seconds": seconds for part, seconds in dataclasses.asdict(self.parts).items() if seconds})
        if self.codec in ("thc", "blocks"):
            values.update(parts_added=self.parts_added, parts_alone=self.parts_alone,
                          chunks_flushed=self.chunks_flushed, values_clipped=self.values_clipped)
        if self.bits_per_value is not None:
            values.update(bits_per_value=self.bits_per_value, values_clipped=self.values_clipped)
        if self.codec == "sketch":
            values.update(predicted=self.predicted, misses=self.misses, unrecovered=self.unrecovered)
        return values if self.nmse is None else {**values, "nmse": self.nmse}


def codec_of(exact: bool, reports: Sequence[OperationReport]) -> str:
    """The code of tolerant buckets. SPILLWAY_ALGORITHM may have replaced the hook's code with one that switches can
    add."""
    codes = [report.code for report in reports if report.contributors > 0]
    return codes[0] if codes and not exact else "exact"


def step_report(step: int, exact: bool, gradient_bytes: int, reports: Sequence[OperationReport],
                nmse: Optional[float], choice: Optional[Choice] = None) -> StepReport:
    def total(field: str) -> Any:
        return sum(getattr(report, field) for report in reports)

    coded_values = total("coded_values")
    late = sorted({rank for report in reports for rank in report.late_ranks})
    return StepReport(step=step, exact=exact, codec=codec_of(exact, reports), buckets=len(reports),
                      gradient_bytes=gradient_bytes, wire_bytes=total("wire_bytes_sent"),
                      packets=total("packets_whole") + total("packets_trimmed") + total("packets_missing"),
                      trimmed=total("packets_trimmed"), lost=total("packets_missing"),
                      repeated=total("packets_repeated"), late_ranks=tuple(late),
                      contributors=min((report.contributors for report in reports), default=0),
                      empty_shards=total("empty_shards"), absent_elements=total("absent_elements"),
                      parts_added=total("parts_added"), parts_alone=total("parts_alone"),
                      chunks_flushed=total("chunks_flushed"), values_clipped=total("values_clipped"),
                      drift=max((report.drift for report in reports), default=0.0),
                      nmse=nmse, seconds=max((report.seconds for report in reports), default=0.0),
                      bits_per_value=8 * total("coded_bytes") / coded_values if coded_values else None,
                      tables=total("coded_tables"), predicted=total("sketch_predicted"), misses=total("sketch_misses"),
                      unrecovered=total("sketch_unrecovered"), gpu_bytes=total("gpu_bytes"),
                      cpu_bytes=0 if exact else gradient_bytes - total("gpu_bytes"),
                      parts=sum((report.parts for report in reports), PartSeconds()), choice=choice)
