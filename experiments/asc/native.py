# SPDX-License-Identifier: Apache-2.0
"""Coded all-reduces from Python (hops.h and group.h). Tensors have a row per rank."""
import ctypes
import pathlib
from typing import Any, Dict, List, NamedTuple, Sequence

import torch

from common.channel import DEFAULT_LIBRARY, check

RULES = ("equal", "balanced", "striped")
WORKS = ("encode", "decode", "learn")


class _Way(ctypes.Structure):
    _fields_ = [("code", ctypes.c_char_p), ("precision", ctypes.c_uint), ("tensor", ctypes.c_uint64),
                ("is_ring", ctypes.c_int)]


class _Outcome(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_double), ("wire_bytes", ctypes.c_uint64), ("tables", ctypes.c_uint64)]


class Library:
    def __init__(self, file: pathlib.Path = DEFAULT_LIBRARY) -> None:
        if not file.is_file():
            raise SystemExit(f"{file} is missing. Build it (cmake --build build/release --target experiment_channel), "
                             "or say with --library where it is")
        self.lib = ctypes.CDLL(str(file))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        for name, arguments in (("hop_coders", []), ("hops_open", [ctypes.c_uint, size, ctypes.POINTER(pointer)]),
                                ("hops_step", [pointer] * 5),
                                ("group_open", [ctypes.c_uint, ctypes.c_uint64, ctypes.c_char_p,
                                                ctypes.POINTER(pointer)]),
                                ("group_mean", [pointer, ctypes.POINTER(_Way), pointer, size, pointer,
                                                ctypes.POINTER(_Outcome)])):
            function = getattr(self.lib, f"experiment_{name}")
            function.argtypes, function.restype = arguments, ctypes.c_char_p
        for name in ("hops_close", "group_close"):
            function = getattr(self.lib, f"experiment_{name}")
            function.argtypes, function.restype = [pointer], None

    def coders(self) -> List[str]:
        return str(self.lib.experiment_hop_coders().decode()).split(",")


class HopStep(NamedTuple):
    bits: Dict[str, List[float]]                  # per value, by coder and ranks in the sum
    seconds: Dict[str, List[float]]               # processor time per value, by coder: to encode, decode, learn
    imbalance: Dict[str, List[float]]             # by rule: for a rank's own numbers, for the sum


def by_name(names: Sequence[str], rows: torch.Tensor) -> Dict[str, List[float]]:
    return {name: row.tolist() for name, row in zip(names, rows)}


class Hops:
    """Measures what hops carry, with coders that learn from step to step."""

    def __init__(self, library: Library, ranks: int, length: int) -> None:
        self._lib, self._ranks, self._names, self._handle = library.lib, ranks, library.coders(), ctypes.c_void_p()
        check(self._lib.experiment_hops_open(ranks, length, ctypes.byref(self._handle)))

    def __del__(self) -> None:
        if self._handle:
            self._lib.experiment_hops_close(self._handle)

    def step(self, integers: torch.Tensor) -> HopStep:
        parts = integers.int().contiguous()
        bits = torch.zeros(len(self._names), self._ranks, dtype=torch.float64)
        seconds = torch.zeros(len(self._names), len(WORKS), dtype=torch.float64)
        imbalance = torch.zeros(len(RULES), 2, dtype=torch.float64)
        check(self._lib.experiment_hops_step(self._handle, parts.data_ptr(), bits.data_ptr(), seconds.data_ptr(),
                                             imbalance.data_ptr()))
        return HopStep(by_name(self._names, bits), by_name(self._names, seconds), by_name(RULES, imbalance))


class Way(NamedTuple):
    """A gradient's code: fp32, fp16, planes, levels or entropy."""
    code: str
    precision: int = 0
    tensor: int = 0
    is_ring: bool = False


class Outcome(NamedTuple):
    mean: torch.Tensor
    seconds: float
    bits: float   # on the wire, per value and hop
    tables: int


class Group:
    """Ranks around one simulated switch; codecs take no time."""

    def __init__(self, library: Library, ranks: int, rate: float, chunks: str = "striped") -> None:
        self._lib, self._handle = library.lib, ctypes.c_void_p()
        check(self._lib.experiment_group_open(ranks, int(rate), chunks.encode(), ctypes.byref(self._handle)))

    def __del__(self) -> None:
        if self._handle:
            self._lib.experiment_group_close(self._handle)

    def mean(self, way: Way, gradients: torch.Tensor) -> Outcome:
        parts, found = gradients.float().contiguous(), _Outcome()
        ranks, length = parts.shape
        mean = torch.empty(length)
        request = _Way(way.code.encode(), way.precision, way.tensor, int(way.is_ring))
        check(self._lib.experiment_group_mean(self._handle, ctypes.byref(request), parts.data_ptr(), length,
                                              mean.data_ptr(), ctypes.byref(found)))
        crossings: Any = 2 * (ranks - 1) * length
        return Outcome(mean, found.seconds, 8 * found.wire_bytes / crossings, found.tables)
