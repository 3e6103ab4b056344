# SPDX-License-Identifier: Apache-2.0
"""How a hook's gradients travel, in the user's words: code, bits per value, algorithm and scale.

    planes            bit planes, which may be trimmed
    thc, blocks       numbers that switches and servers can add without decoding them
    coded             whole numbers in an entropy code; all arrive
    sketch            the same for gradients that are mostly zero, in the same places from step to step
    exact             as they are
    auto              whichever of these makes the shortest steps (auto_codec.py)

Arguments that conflict raise a ValueError that says which ones go together. The library checks ranges.
"""
from typing import Any, Dict, Optional

from .. import abi

AUTO = "auto"
CODECS = (*abi.CODES, "exact", AUTO)
SCALES = ("exact", "predicted")
PRECISIONS = {"thc": 4, "coded": 8, "sketch": 8}  # default bits per value; the first as in THC
PRECISION = 16  # of the other codes
CODED = ("coded", "sketch")
LOSS_BOUND = 0.01


def default_precision(codec: str) -> int:
    return PRECISIONS.get(codec, PRECISION)


def default_loss_bound(codec: str) -> float:
    """Coded numbers all arrive."""
    return 0.0 if codec in CODED else LOSS_BOUND


def one_of(name: str, value: Any, values: "tuple[str, ...]") -> None:
    if value not in values:
        raise ValueError(f"{name} is {value!r}; there are {', '.join(map(repr, values))}")


def code_fields(codec: str, precision: Optional[int], algorithm: str, scale: str,
                error_feedback: bool) -> Dict[str, Any]:
    """Arguments of tolerant_options()."""
    one_of("codec", codec, CODECS)
    one_of("algorithm", algorithm, abi.ALGORITHMS)
    one_of("scale", scale, SCALES)
    can_be_added = codec in ("thc", "blocks")
    if algorithm == "switch" and not can_be_added:
        raise ValueError(f"a switch cannot add what is coded as {codec!r}: choose codec='thc' or codec='blocks'")
    if scale == "predicted" and not can_be_added and codec not in CODED:
        raise ValueError(f"codec {codec!r} needs no scale in common: leave scale away, or choose 'thc', 'blocks', "
                         "'coded' or 'sketch'")
    if scale == "predicted" and not error_feedback:
        raise ValueError("a predicted scale cuts off what has grown, which error feedback makes up for in the next "
                         "step: leave error_feedback on, or choose scale='exact'")
    if codec == "sketch" and not error_feedback:
        raise ValueError("what a sketch has no room for is made up for by error feedback: leave error_feedback on, or "
                         "choose codec='coded'")
    return {"code": abi.CODES.index(codec) if codec in abi.CODES else 0,
            "precision": default_precision(codec) if precision is None else precision,
            "algorithm": abi.ALGORITHMS.index(algorithm), "predicts_scale": int(scale == "predicted")}


def check_auto(precision: Optional[int], algorithm: str, scale: str, lossy_gather: bool, max_error: float) -> None:
    """Checks the arguments given with codec="auto"."""
    one_of("scale", scale, SCALES)
    if precision is not None or algorithm != "automatic":
        raise ValueError("codec 'auto' chooses precision and algorithm itself: leave them away, or choose a codec")
    if lossy_gather:
        raise ValueError("codec 'auto' compares sums that are the same at all ranks: leave lossy_gather off, or choose a "
                         "codec")
    if not 0.0 < max_error < 1.0:
        raise ValueError(f"max_error is {max_error:g}: it must be above 0 and below 1")


def exact_algorithm(algorithm: str) -> int:
    """The algorithm for exact steps of the same hook: no switch can add their values."""
    return abi.ALGORITHMS.index("automatic" if algorithm == "switch" else algorithm)
