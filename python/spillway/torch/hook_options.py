# SPDX-License-Identifier: Apache-2.0
"""How much of a gradient may be lost on the way. A plain value, checked when it is made."""
import dataclasses

from ..abi import OperationOptions

CODECS = ("planes", "exact")
MOST_BITS = 32
MOST_URGENT = 7


@dataclasses.dataclass(frozen=True)
class HookOptions:
    codec: str = "planes"
    precision: int = 16
    gather_precision: int = 16
    loss_bound: float = 0.01
    min_planes: int = 1
    least_contributors: float = 0.0
    lossy_gather: bool = False
    error_feedback: bool = True
    warm_up_steps: int = 1
    measure_every: int = 0

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ValueError(f"codec is {self.codec!r}; there are {', '.join(map(repr, CODECS))}")
        if not 1 <= self.precision <= MOST_BITS or not 1 <= self.gather_precision <= MOST_BITS:
            raise ValueError(f"precision {self.precision} and gather_precision {self.gather_precision} are bits per "
                             f"value, from 1 to {MOST_BITS}")
        if not 0.0 <= self.loss_bound <= 1.0 or not 0.0 <= self.least_contributors <= 1.0:
            raise ValueError(f"loss_bound {self.loss_bound} and least_contributors {self.least_contributors} are "
                             "shares, from 0 to 1")
        if self.warm_up_steps < 0 or self.measure_every < 0:
            raise ValueError("warm_up_steps and measure_every are 0 or more")

    def fill(self, options: OperationOptions, feedback_tensor: int) -> None:
        options.tolerant = 1
        options.precision, options.gather_precision = self.precision, self.gather_precision
        options.loss_ppm = round(self.loss_bound * 1_000_000)
        options.min_planes = self.min_planes
        options.lossy_gather = int(self.lossy_gather)
        options.least_contributors = self.least_contributors
        options.feedback_tensor = feedback_tensor if self.error_feedback else 0
