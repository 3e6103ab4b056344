# SPDX-License-Identifier: Apache-2.0
"""A tensor whose memory on a GPU the library is handed: the GPU codes it, and only planes travel to the host; or, in an
exact all-reduce, the library copies it piece by piece, while others travel.

That is possible of contiguous tensors, where the library finds NVIDIA's driver and compiler: in exact all-reduces, and in
tolerant ones of planes without deadlines, and of thc, of float32, float16 and bfloat16. Everything else is copied to the
host as a whole (host_span.py).
SPILLWAY_GPU_CODING=0 turns all of it off. Each rank decides for itself: the bits are the same.
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
LEAST_COPIED_BYTES = 1 << 20  # in exact all-reduces: what is less is one piece or few
OF_TORCH = ("nvidia/cu*/lib/libnvrtc.so.*", "nvidia/cuda_nvrtc/lib/libnvrtc.so.*")  # where its packages have NVRTC


def load_nvrtc_of_torch() -> None:
    """The libnvrtc.so of torch's own packages, the newest: loaded, the library finds it by its name."""
    folder = os.path.dirname(os.path.dirname(torch.__file__))
    found = [path for pattern in OF_TORCH for path in glob.glob(os.path.join(folder, pattern))]
    newest = max((path for path in found if ".alt." not in path), default=None)
    if newest is not None:
        with contextlib.suppress(OSError):  # then the library says what is missing
            ctypes.CDLL(newest)


@functools.lru_cache(maxsize=None)
def is_coder(device: torch.device) -> bool:
    """Whether the device codes its tensors. Says why not, once."""
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
    """SPILLWAY_ALGORITHM makes of planes what switches can add: of more bits than thc has, blocks."""
    return (options.algorithm == 0 and options.precision > 8
            and abi.default_library().variable("SPILLWAY_ALGORITHM") == "switch")


def takes_device(options: abi.OperationOptions, tensor: torch.Tensor) -> bool:
    """Whether an all-reduce with these options may be of a device's memory."""
    if not options.tolerant:
        return tensor.dtype in TYPES and tensor.numel() * tensor.element_size() >= LEAST_COPIED_BYTES
    is_planes = (options.code == abi.CODES.index("planes") and options.least_contributors == 0.0
                 and not becomes_blocks(options))
    return tensor.dtype in CODED and (is_planes or options.code == abi.CODES.index("thc"))


def can_be_read(tensor: torch.Tensor) -> bool:
    """Whether it is on a device that codes, and lies there as the library reads it."""
    return (tensor.device.type == "cuda" and tensor.numel() > 0 and tensor.is_contiguous()
            and not tensor.is_conj() and not tensor.is_neg() and is_coder(tensor.device))


class DeviceSpan:
    """As a HostSpan of one tensor, but of the device's memory: there is nothing to bring, and nothing to take back."""

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
    """Of an operation with these options, which are told where the tensor is."""
    check_tensor(tensor, operation)
    if world < 2 or not takes_device(options, tensor) or not can_be_read(tensor):
        return HostSpan([tensor], operation)
    options.memory, options.device = abi.MEMORY_CUDA, tensor.device.index
    options.stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return DeviceSpan(tensor)
