# SPDX-License-Identifier: Apache-2.0
"""Whether the backend's all-reduces may lose something, as the environment says: a script needs nothing of Spillway
but the backend's name.

    SPILLWAY_MODE                 "exact" or "tolerant"
    SPILLWAY_PRECISION            bits per value on the way to the sums
    SPILLWAY_GATHER_PRECISION     and back
    SPILLWAY_LOSS_BOUND           share of a contribution's packets that may stay missing
    SPILLWAY_LEAST_CONTRIBUTORS   above 0: late ranks are not waited for, as long as this share of the ranks is there
    SPILLWAY_TOLERANT_BYTES       smaller tensors are added up exactly

Tolerant are sums and averages of floating-point tensors; everything else is exact in both modes. The variables must be
the same at all ranks. A value that is not allowed is an error in both modes, so that a typing mistake is found
before it matters.
"""
import dataclasses
from typing import Mapping, Optional

import torch

from .. import abi
from .element_types import FLOATING
from .hook_options import MOST_BITS, HookOptions
from .variables import value_of

MODES = ("exact", "tolerant")
DEFAULT_PRECISION = 5  # of a mean of independent gradients, the error is 0.5 % of the energy
DEFAULT_LOSS_BOUND = 0.01
DEFAULT_LEAST_BYTES = 64 * 1024  # below it, what coding saves is less than what it costs


@dataclasses.dataclass(frozen=True)
class TolerantMode:
    least_bytes: int
    options: HookOptions

    def applies_to(self, tensor: torch.Tensor, reduction: int) -> bool:
        return (tensor.dtype in FLOATING and reduction in (abi.SUM, abi.AVERAGE)
                and tensor.numel() * tensor.element_size() >= self.least_bytes)

    def fill(self, options: abi.OperationOptions) -> None:
        # Without error feedback: the backend does not know which tensor of a step is which of the last.
        self.options.fill(options, feedback_tensor=0)


def one_of_modes(text: str) -> str:
    if text not in MODES:
        raise ValueError
    return text


def bits_per_value(text: str) -> int:
    if not 1 <= int(text) <= MOST_BITS:
        raise ValueError
    return int(text)


def share(text: str) -> float:
    if not 0.0 <= float(text) <= 1.0:
        raise ValueError
    return float(text)


def byte_count(text: str) -> int:
    if int(text) < 0:
        raise ValueError
    return int(text)


def mode_from(environment: Mapping[str, str]) -> Optional[TolerantMode]:
    """None: all is exact."""
    bits = f"bits per value, from 1 to {MOST_BITS}"
    mode = value_of(environment, "SPILLWAY_MODE", one_of_modes, "one of " + ", ".join(MODES), MODES[0])
    precision = value_of(environment, "SPILLWAY_PRECISION", bits_per_value, bits, DEFAULT_PRECISION)
    gather_precision = value_of(environment, "SPILLWAY_GATHER_PRECISION", bits_per_value, bits, precision)
    loss_bound = value_of(environment, "SPILLWAY_LOSS_BOUND", share, "a share, from 0 to 1", DEFAULT_LOSS_BOUND)
    least = value_of(environment, "SPILLWAY_LEAST_CONTRIBUTORS", share, "a share of the ranks, from 0 to 1", 0.0)
    least_bytes = value_of(environment, "SPILLWAY_TOLERANT_BYTES", byte_count, "a number of bytes, 0 or more",
                           DEFAULT_LEAST_BYTES)
    if mode == "exact":
        return None
    return TolerantMode(least_bytes, HookOptions(precision=precision, gather_precision=gather_precision,
                                                 loss_bound=loss_bound, least_contributors=least))
