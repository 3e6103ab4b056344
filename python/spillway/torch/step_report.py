# SPDX-License-Identifier: Apache-2.0
"""What a training step's gradients went through, all buckets together, as this rank saw it."""
import dataclasses
from typing import Any, Optional, Sequence, Tuple

from ..request import OperationReport


@dataclasses.dataclass(frozen=True)
class StepReport:
    step: int                    # counted from 0 by the hook
    exact: bool
    buckets: int
    gradient_bytes: int          # as they are in memory
    wire_bytes: int              # sent by this rank, repeats included
    packets: int                 # that were due here
    trimmed: int                 # of them, came shortened
    lost: int                    # of them, did not come and were not waited for
    repeated: int                # sent again by this rank
    late_ranks: Tuple[int, ...]  # that some bucket did not wait for
    contributors: int            # ranks in the sum that has the fewest, empty shards aside; 0 if exact
    empty_shards: int            # without a sum: their owner was too late
    absent_elements: int         # of gradients that no rank is in the sum of: zero at all ranks
    drift: float                 # expected, of replicas; above 0 with lossy_gather only
    nmse: Optional[float]        # squared error over energy, of steps that were measured
    seconds: float               # the longest of the buckets, from its call to its end

    def scalars(self) -> "dict[str, float]":
        """For plots."""
        values = {"gradient_bytes": self.gradient_bytes, "wire_bytes": self.wire_bytes, "trimmed": self.trimmed,
                  "lost": self.lost, "late_ranks": len(self.late_ranks), "seconds": self.seconds}
        return values if self.nmse is None else {**values, "nmse": self.nmse}


def step_report(step: int, exact: bool, gradient_bytes: int, reports: Sequence[OperationReport],
                nmse: Optional[float]) -> StepReport:
    def total(field: str) -> Any:
        return sum(getattr(report, field) for report in reports)

    late = sorted({rank for report in reports for rank in report.late_ranks})
    return StepReport(step=step, exact=exact, buckets=len(reports), gradient_bytes=gradient_bytes,
                      wire_bytes=total("wire_bytes_sent"),
                      packets=total("packets_whole") + total("packets_trimmed") + total("packets_missing"),
                      trimmed=total("packets_trimmed"), lost=total("packets_missing"),
                      repeated=total("packets_repeated"), late_ranks=tuple(late),
                      contributors=min((report.contributors for report in reports), default=0),
                      empty_shards=total("empty_shards"), absent_elements=total("absent_elements"),
                      drift=max((report.drift for report in reports), default=0.0),
                      nmse=nmse, seconds=max((report.seconds for report in reports), default=0.0))
