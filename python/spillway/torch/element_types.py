# SPDX-License-Identifier: Apache-2.0
"""How torch's element types and reductions are called in the C interface.

Types the library can add up travel as themselves. All others (uint8, bool, int8, int16, complex, ...) can
only be moved: they travel as 32-bit words, padded to whole blocks of PADDING bytes.
"""
from typing import Any

import torch
from torch.distributed import ReduceOp

from .. import abi

TYPES = {torch.float32: abi.FLOAT32, torch.float64: abi.FLOAT64, torch.float16: abi.FLOAT16,
         torch.bfloat16: abi.BFLOAT16, torch.int32: abi.INT32, torch.int64: abi.INT64}
REDUCTIONS = ((ReduceOp.SUM, abi.SUM), (ReduceOp.AVG, abi.AVERAGE), (ReduceOp.MIN, abi.MIN), (ReduceOp.MAX, abi.MAX))
REFUSED = ("PRODUCT", "BAND", "BOR", "BXOR", "PREMUL_SUM")
FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

PADDING = 16  # the size of torch's largest element, complex128


def check_reducible(dtype: torch.dtype, operation: str) -> None:
    if dtype not in TYPES:
        raise TypeError(f"{operation}: Spillway cannot add up or compare {dtype}, only move it. Convert the tensor "
                        "to float32, float64, float16, bfloat16, int32 or int64 first")


def reduction_from(options: Any, operation: str) -> int:
    """Of torch's options struct, or a ReduceOp itself; None is a sum."""
    wanted = ReduceOp.SUM if options is None else getattr(options, "reduceOp", options)
    for op, reduction in REDUCTIONS:
        if wanted == op:
            return reduction
    name = next((name for name in REFUSED if wanted == getattr(ReduceOp, name, None)), wanted)
    raise ValueError(f"{operation}: Spillway has no {name}; it has SUM, AVG, MIN and MAX. Use all_gather and reduce "
                     "the result, or a gloo group for this call")


def check_average(dtype: torch.dtype, reduction: int, operation: str) -> None:
    if reduction == abi.AVERAGE and dtype not in FLOATING:
        raise TypeError(f"{operation}: an average of {dtype} has no place in {dtype}. Use SUM, or convert the tensor "
                        "to a floating-point type")
