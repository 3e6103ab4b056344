# SPDX-License-Identifier: Apache-2.0
"""A tensor that the library reads in GPU memory. The GPU codes it, and only planes travel to the host. In an exact
all-reduce the library copies it piece by piece, while other pieces travel.

This takes a contiguous tensor, and a library that finds NVIDIA's driver and compiler. It works for exact all-reduces,
and for tolerant ones of float32, float16 and bfloat16: planes without deadlines, and thc. Everything else is copied
to the host as a whole (host_span.py). SPILLWAY_GPU_CODING=0 turns it off. Each rank decides for itself: the bits are
the same.
"""
import contextlib
import ctypes
import functools
import glob
import os
import warnings
from typing import Union

import torch

from .. import abi
from .element_types import TYPES
from .host_span import HostSpan, check_tensor

CODED = (torch.float32, torch.float16, torch.bfloat16)
LEAST_COPIED_BYTES = 1 << 20  # in exact all-reduces; smaller tensors are one or few pieces
OF_TORCH = ("nvidia/cu*/lib/libnvrtc.so.*", "nvidia/cuda_nvrtc/lib/libnvrtc.so.*")  # NVRTC in torch's packages


def load_nvrtc_of_torch() -> None:
    """Loads the newest libnvrtc.so of torch's packages; the library then finds it by its name."""
    folder = os.path.dirname(os.path.dirname(torch.__file__))
    found = [path for pattern in OF_TORCH for path in glob.glob(os.path.join(folder, pattern))]
    newest = max((path for path in found if ".alt." not in path), default=None)
    if newest is not None:
        with contextlib.suppress(OSError):  # then the library reports what is missing
            ctypes.CDLL(newest)


@functools.lru_cache(maxsize=None)
def is_coder(device: torch.device) -> bool:
    """True if the device codes its tensors. Warns once if it cannot."""
    library = abi.default_library()
    if library.variable("SPILLWAY_GPU_CODING") == "0":
        return False
    if library.variable_if_set("SPILLWAY_NVRTC") is None:
        load_nvrtc_of_torch()
    number = device.index if device.index is not None else torch.cuda.current_device()
    reason = library.why_not_cuda(number)
    if reason is not None:
        warnings.warn(f"Spillway: tensors of {device} are coded by the CPU: {reason}", stacklevel=2)
    return reason is None


def becomes_blocks(options: abi.OperationOptions) -> bool:
    """True if SPILLWAY_ALGORITHM turns planes into blocks, which switches can add: at more bits than thc has."""
    return (options.algorithm == 0 and options.precision > 8
            and abi.default_library().variable("SPILLWAY_ALGORITHM") == "switch")


def takes_device(options: abi.OperationOptions, tensor: torch.Tensor) -> bool:
    """True if an all-reduce with these options may use device memory."""
    if not options.tolerant:
        return tensor.dtype in TYPES and tensor.numel() * tensor.element_size() >= LEAST_COPIED_BYTES
    is_planes = (options.code == abi.CODES.index("planes") and options.least_contributors == 0.0
                 and not becomes_blocks(options))
    return tensor.dtype in CODED and (is_planes or options.code == abi.CODES.index("thc"))


def can_be_read(tensor: torch.Tensor) -> bool:
    """True if the tensor is on a device that codes, in a layout that the library can read."""
    return (tensor.device.type == "cuda" and tensor.numel() > 0 and tensor.is_contiguous()
            and not tensor.is_conj() and not tensor.is_neg() and is_coder(tensor.device))


class DeviceSpan:
    """Like a HostSpan of one tensor, but in device memory: nothing is copied to the host or back."""

    is_direct = True
    brought = taken_back = None

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor.detach()
        self.dtype, self.device = tensor.dtype, tensor.device
        self.type, self.count, self.pointer = TYPES[tensor.dtype], tensor.numel(), tensor.data_ptr()

    def bring(self) -> None:
        return None

    def order_behind_caller(self) -> None:
        """The library puts an event on the caller's stream."""

    def take_back(self) -> None:
        return None


Span = Union[HostSpan, DeviceSpan]


def span_of(tensor: torch.Tensor, operation: str, options: abi.OperationOptions, world: int) -> Span:
    """The span for an operation with these options; writes the tensor's location into them."""
    check_tensor(tensor, operation)
    if world < 2 or not takes_device(options, tensor) or not can_be_read(tensor):
        return HostSpan([tensor], operation)
    options.memory, options.device = abi.MEMORY_CUDA, tensor.device.index
    options.stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return DeviceSpan(tensor)
