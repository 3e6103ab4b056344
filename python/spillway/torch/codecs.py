# SPDX-License-Identifier: Apache-2.0
"""How a hook's gradients travel, as users say it: a code, bits per value, who adds, and where scales come from.

    planes            bit planes, which may be cut
    thc, blocks       numbers that switches and servers can add without decoding them
    coded             whole numbers, coded as short as they come; all arrive
    sketch            the same of gradients that are mostly zero, in the same places from step to step
    exact             as they are
    auto              whichever of these makes the shortest steps (auto_codec.py)

What does not go together is a ValueError that says what does; ranges are the library's to check.
"""
from typing import Any, Dict, Optional

from .. import abi

AUTO = "auto"
CODECS = (*abi.CODES, "exact", AUTO)
SCALES = ("exact", "predicted")
PRECISIONS = {"thc": 4, "coded": 8, "sketch": 8}  # by default, the first as in THC
PRECISION = 16  # of all others
CODED = ("coded", "sketch")
LOSS_BOUND = 0.01


def default_precision(codec: str) -> int:
    return PRECISIONS.get(codec, PRECISION)


def default_loss_bound(codec: str) -> float:
    """Coded numbers arrive whole."""
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
    """Of the arguments beside codec="auto"."""
    one_of("scale", scale, SCALES)
    if precision is not None or algorithm != "automatic":
        raise ValueError("codec 'auto' chooses precision and algorithm itself: leave them away, or choose a codec")
    if lossy_gather:
        raise ValueError("codec 'auto' compares sums that are the same at all ranks: leave lossy_gather off, or choose a "
                         "codec")
    if not 0.0 < max_error < 1.0:
        raise ValueError(f"max_error is {max_error:g}: it must be above 0 and below 1")


def exact_algorithm(algorithm: str) -> int:
    """Of what loses nothing beside it: no switch can add that."""
    return abi.ALGORITHMS.index("automatic" if algorithm == "switch" else algorithm)
