# SPDX-License-Identifier: Apache-2.0
"""Reads from the environment whether the backend's all-reduces may lose something. A script needs nothing of Spillway
but the backend's name.

    SPILLWAY_MODE=tolerant, and for the details SPILLWAY_CODEC, SPILLWAY_PRECISION, SPILLWAY_GATHER_PRECISION,
    SPILLWAY_LOSS_BOUND, SPILLWAY_IMPORTANCE, SPILLWAY_EXPENDABLE, SPILLWAY_LEAST_CONTRIBUTORS and
    SPILLWAY_TOLERANT_BYTES; in both modes SPILLWAY_PRIORITY (docs/environment.md)

Sums and averages of floating-point tensors are tolerant; everything else is exact in both modes. With
SPILLWAY_CODEC=auto their code is found by trial (auto_windows.py). Each rank has its own importance, expendable and
priority; the other variables must be the same at all ranks. An invalid value is an error in both modes, so that a
typo is found before it matters.
"""
from typing import Any, Dict, Optional

import torch

from .. import abi
from .auto_codec import tolerances_of
from .auto_windows import WINDOW_CANDIDATES, AutoWindows
from .codecs import AUTO, default_loss_bound, default_precision
from .element_types import FLOATING
from .layers import LayerPolicy
from .operation import Member


class TolerantMode:
    """`tolerance`: the options of tolerant all-reduces. There is no error feedback: the backend cannot match tensors
    between steps. `auto`: chooses the options instead, or None."""

    def __init__(self, least_bytes: int, tolerance: abi.OperationOptions, auto: Optional[AutoWindows] = None) -> None:
        self.least_bytes, self.auto, self._tolerance = least_bytes, auto, tolerance

    def applies_to(self, tensor: torch.Tensor, reduction: int) -> bool:
        return (tensor.dtype in FLOATING and reduction in (abi.SUM, abi.AVERAGE)
                and tensor.numel() * tensor.element_size() >= self.least_bytes)

    def options(self) -> abi.OperationOptions:
        return abi.OperationOptions.from_buffer_copy(self._tolerance)

    def options_in_turn(self, member: Member, tensor: torch.Tensor) -> abi.OperationOptions:
        """Options of the operation that is about to start."""
        if self.auto is None:
            return self.options()
        return self.auto.options(member, tensor.numel() * tensor.element_size())


def mode_from_environment() -> Optional[TolerantMode]:
    """None if everything is exact. An invalid value is a ValueError in both modes."""
    library = abi.default_library()
    mode = library.variable("SPILLWAY_MODE")
    codec = library.variable("SPILLWAY_CODEC")
    is_auto, codec = codec == AUTO, "planes" if codec == AUTO else codec
    precision = precision_from(library, codec)
    loss_bound = loss_bound_from(library, codec)
    gather_precision = int(library.variable("SPILLWAY_GATHER_PRECISION") or 0)
    least_contributors = float(library.variable("SPILLWAY_LEAST_CONTRIBUTORS"))
    importance = importance_from(library)
    least_bytes = int(library.variable("SPILLWAY_TOLERANT_BYTES"))

    def options(name: str, bits: int) -> abi.OperationOptions:
        return library.tolerant_options(
            code=abi.CODES.index(name), precision=bits, gather_precision=gather_precision or bits,
            loss_bound=0.0 if is_auto and default_loss_bound(name) == 0.0 else loss_bound,
            least_contributors=least_contributors, **importance)

    if is_auto and library.variable_if_set("SPILLWAY_PRECISION") is not None:
        raise ValueError("SPILLWAY_CODEC=auto chooses the precision itself: leave SPILLWAY_PRECISION away")
    if mode == "exact":
        return None
    auto = AutoWindows(tolerances_of(WINDOW_CANDIDATES, options)) if is_auto else None
    return TolerantMode(least_bytes, options(codec, precision), auto)


def precision_from(library: abi.Library, codec: str) -> int:
    """The variable's default is for planes; other codecs have their own."""
    said = int(library.variable("SPILLWAY_PRECISION"))
    is_set = library.variable_if_set("SPILLWAY_PRECISION") is not None
    return said if codec == "planes" or is_set else default_precision(codec)


def loss_bound_from(library: abi.Library, codec: str) -> float:
    """The variable's default is for codecs that may lose something."""
    said = float(library.variable("SPILLWAY_LOSS_BOUND"))
    is_set = library.variable_if_set("SPILLWAY_LOSS_BOUND") is not None
    return said if is_set else min(said, default_loss_bound(codec))


def importance_from(library: abi.Library) -> Dict[str, Any]:
    """Arguments of tolerant_options()."""
    level, expendable = library.variable("SPILLWAY_IMPORTANCE"), library.variable_if_set("SPILLWAY_EXPENDABLE")
    return {"importance": abi.IMPORTANCE_BY_ENERGY if level == "energy" else int(level),
            "expendable": None if expendable is None else float(expendable)}


def layers_from_environment() -> LayerPolicy:
    level = abi.default_library().variable("SPILLWAY_PRIORITY")
    return LayerPolicy(None if level == "layer" else int(level))
