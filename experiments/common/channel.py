# SPDX-License-Identifier: Apache-2.0
"""A gradient through a modelled network (channel.h from Python). Tensors are flat and float32; nothing is changed in
place. One process may have any number of channels.
"""
import ctypes
import pathlib
from typing import NamedTuple, Tuple

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT_LIBRARY = ROOT / "build/release/lib/libexperiment_channel.so"
PLANES = "planes"
PAPERS_CODES = ("sign-magnitude", "sq", "sd", "rht")


class Delivery(NamedTuple):
    """Packet counts; bytes are those of Ethernet frames."""
    packets: int = 0
    hit: int = 0
    bytes_sent: int = 0
    bytes_arrived: int = 0

    def plus(self, other: "Delivery") -> "Delivery":
        return Delivery(*(mine + its for mine, its in zip(self, other)))


class _Delivery(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in Delivery._fields]

    def value(self) -> Delivery:
        return Delivery(*(getattr(self, name) for name in Delivery._fields))


def gradient_seed(seed: int, step: int, worker: int) -> int:
    """A distinct seed for every gradient of every run."""
    return seed << 40 | step << 8 | worker


class Channel:
    def __init__(self, library: pathlib.Path = DEFAULT_LIBRARY) -> None:
        if not library.is_file():
            raise SystemExit(f"{library} is missing. Build it (cmake --build build/release --target experiment_channel), "
                             "or say with --library where it is")
        loaded = ctypes.CDLL(str(library))
        self._trim, self._lose = loaded.experiment_trim, loaded.experiment_lose
        self._trim.restype = self._lose.restype = ctypes.c_char_p
        pointer, share, seed, length = ctypes.c_void_p, ctypes.c_double, ctypes.c_uint64, ctypes.c_size_t
        delivery = ctypes.POINTER(_Delivery)
        self._trim.argtypes = [ctypes.c_char_p, share, seed, pointer, length, pointer, delivery]
        self._lose.argtypes = [share, seed, ctypes.c_int, pointer, length, pointer, pointer, delivery]

    def trim(self, code: str, share: float, seed: int, gradient: torch.Tensor) -> Tuple[torch.Tensor, Delivery]:
        """Estimates the gradient after `share` of its packets were trimmed."""
        source, estimate, delivery = gradient.contiguous(), torch.empty_like(gradient), _Delivery()
        check(self._trim(code.encode(), share, seed, source.data_ptr(), source.numel(), estimate.data_ptr(),
                         ctypes.byref(delivery)))
        return estimate, delivery.value()

    def lose(self, share: float, seed: int, rescaled: bool,
             gradient: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, Delivery]:
        """Estimates the gradient after `share` of Spillway's packets were lost. Also returns, per value, whether
        anything of its row arrived."""
        source, estimate, delivery = gradient.contiguous(), torch.empty_like(gradient), _Delivery()
        has_come = torch.empty(gradient.shape, dtype=torch.bool)
        check(self._lose(share, seed, rescaled, source.data_ptr(), source.numel(), estimate.data_ptr(),
                         has_come.data_ptr(), ctypes.byref(delivery)))
        return estimate, has_come, delivery.value()


def check(sentence: bytes) -> None:
    if sentence is not None:
        raise ValueError(sentence.decode())
