# SPDX-License-Identifier: Apache-2.0
"""Maps torch's element types and reductions to those of the C interface.

Types that the library can add travel as themselves. All others (int16, complex, ...) can only be moved: they travel
as 32-bit words, padded to whole blocks of PADDING bytes.

A bool is a byte, 0 or 1, and stays one: its sum is "any" and its product "all", so that nothing becomes 2.
"""
from typing import Any

import torch
from torch.distributed import ReduceOp

from .. import abi

TYPES = {torch.float32: abi.FLOAT32, torch.float64: abi.FLOAT64, torch.float16: abi.FLOAT16,
         torch.bfloat16: abi.BFLOAT16, torch.int32: abi.INT32, torch.int64: abi.INT64, torch.int8: abi.INT8,
         torch.uint8: abi.UINT8, torch.bool: abi.UINT8}
REDUCTIONS = ((ReduceOp.SUM, abi.SUM), (ReduceOp.AVG, abi.AVERAGE), (ReduceOp.MIN, abi.MIN), (ReduceOp.MAX, abi.MAX),
              (ReduceOp.PRODUCT, abi.PRODUCT), (ReduceOp.BAND, abi.BIT_AND), (ReduceOp.BOR, abi.BIT_OR),
              (ReduceOp.BXOR, abi.BIT_XOR))
OF_BITS = (abi.BIT_AND, abi.BIT_OR, abi.BIT_XOR)
OF_BOOLS = {abi.SUM: abi.MAX, abi.PRODUCT: abi.MIN}
FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

PADDING = 16  # the size of torch's largest element, complex128


def reduction_of(dtype: torch.dtype, options: Any, operation: str) -> int:
    """The library's reduction for `options` and this type. Raises TypeError if the type does not support it."""
    reduction = reduction_from(options, operation)
    if dtype not in TYPES:
        raise TypeError(f"{operation}: Spillway cannot add up or compare {dtype}, only move it. Convert the tensor "
                        "to a floating-point type, int8, uint8, int32, int64 or bool first")
    if reduction == abi.AVERAGE and dtype not in FLOATING:
        raise TypeError(f"{operation}: an average of {dtype} has no place in {dtype}. Use SUM, or convert the tensor "
                        "to a floating-point type")
    if reduction in OF_BITS and dtype in FLOATING:
        raise TypeError(f"{operation}: BAND, BOR and BXOR are of integers, not of {dtype}")
    return OF_BOOLS.get(reduction, reduction) if dtype == torch.bool else reduction


def reduction_from(options: Any, operation: str) -> int:
    """Reads torch's options struct or a ReduceOp itself; None is a sum."""
    wanted = ReduceOp.SUM if options is None else getattr(options, "reduceOp", options)
    for op, reduction in REDUCTIONS:
        if wanted == op:
            return reduction
    name = "PREMUL_SUM" if wanted == getattr(ReduceOp, "PREMUL_SUM", None) else wanted
    raise ValueError(f"{operation}: Spillway has no {name}; it has SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR and BXOR")
