# SPDX-License-Identifier: Apache-2.0
"""How a hook's gradients travel, as users say it: a code, bits per value, who adds, and where scales come from.

    planes            bit planes, which may be cut
    thc, blocks       numbers that switches and servers can add without decoding them
    exact             as they are

What does not go together is a ValueError that says what does; ranges are the library's to check.
"""
from typing import Any, Dict, Optional

from .. import abi

CODECS = (*abi.CODES, "exact")
SCALES = ("exact", "predicted")
THC_PRECISION = 4  # by default, as in THC
PRECISION = 16  # of all others


def default_precision(codec: str) -> int:
    return THC_PRECISION if codec == "thc" else PRECISION


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
    if scale == "predicted" and not can_be_added:
        raise ValueError(f"codec {codec!r} needs no scale in common: leave scale away, or choose 'thc' or 'blocks'")
    if scale == "predicted" and not error_feedback:
        raise ValueError("a predicted scale cuts off what has grown, which error feedback makes up for in the next "
                         "step: leave error_feedback on, or choose scale='exact'")
    return {"code": abi.CODES.index(codec) if codec in abi.CODES else 0,
            "precision": default_precision(codec) if precision is None else precision,
            "algorithm": abi.ALGORITHMS.index(algorithm), "predicts_scale": int(scale == "predicted")}


def exact_algorithm(algorithm: str) -> int:
    """Of what loses nothing beside it: no switch can add that."""
    return abi.ALGORITHMS.index("automatic" if algorithm == "switch" else algorithm)
