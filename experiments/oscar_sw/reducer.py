# SPDX-License-Identifier: Apache-2.0
"""All-reduces of integer gradients that are mostly zero (reducer.h from Python). Tensors are int32, one row per
rank."""
import ctypes
import pathlib
from typing import NamedTuple, Tuple

import torch

from common.channel import DEFAULT_LIBRARY, check

LIMIT = 127  # of a rank's magnitudes: 8 bits


class Reduction(NamedTuple):
    """Costs of a step: bits of a rank's part and of the sum, and the number of values of each kind."""
    part_bits: int
    sum_bits: int
    nonzero: int
    predicted: int
    misses: int
    unused: int

    def bits(self) -> float:
        """Bits in one direction: the mean of both."""
        return (self.part_bits + self.sum_bits) / 2


class _Reduction(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in Reduction._fields]


class Library:
    def __init__(self, file: pathlib.Path = DEFAULT_LIBRARY) -> None:
        if not file.is_file():
            raise SystemExit(f"{file} is missing. Build it (cmake --build build/release --target experiment_channel), "
                             "or say with --library where it is")
        loaded = ctypes.CDLL(str(file))
        self.open, self.reduce, self.close = (loaded.experiment_reducer_open, loaded.experiment_reduce,
                                              loaded.experiment_reducer_close)
        self.open.restype = self.reduce.restype = ctypes.c_char_p
        self.close.restype = None
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.open.argtypes = [ctypes.c_char_p, size, size, ctypes.c_uint, ctypes.c_int32, ctypes.POINTER(pointer)]
        self.reduce.argtypes = [pointer, ctypes.c_uint64, pointer, pointer, pointer, ctypes.POINTER(_Reduction)]
        self.close.argtypes = [pointer]


class Reducer:
    """One scheme, with its state from step to step."""

    def __init__(self, library: Library, scheme: str, size: int, length: int, ranks: int) -> None:
        self._library, self._handle = library, ctypes.c_void_p()
        check(library.open(scheme.encode(), size, length, ranks, LIMIT, ctypes.byref(self._handle)))

    def __del__(self) -> None:
        if self._handle:
            self._library.close(self._handle)

    def reduce(self, seed: int, parts: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, Reduction]:
        """The sum, which values of which rank are in it, and its costs."""
        source, total = parts.contiguous(), torch.empty(parts.shape[1], dtype=torch.int32)
        is_used, found = torch.empty(parts.shape, dtype=torch.bool), _Reduction()
        check(self._library.reduce(self._handle, seed, source.data_ptr(), total.data_ptr(), is_used.data_ptr(),
                                   ctypes.byref(found)))
        return total, is_used, Reduction(*(getattr(found, name) for name in Reduction._fields))
