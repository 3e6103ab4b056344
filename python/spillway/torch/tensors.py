# SPDX-License-Identifier: Apache-2.0
"""Tensors as the library sees them: element types, and the memory of one side of an operation, a span.

Types: those that the library can add travel as themselves. All others (int16, complex, ...) can only be moved: they
travel as 32-bit words, padded to whole blocks of PADDING bytes. A bool is a byte, 0 or 1, and stays one: its sum is
"any" and its product "all", so that nothing becomes 2.

HostSpan: equal parts in a row in host memory, one per rank or only one. It is the tensor's own memory if possible: one
contiguous CPU tensor of a type that the library has, whose values are what its memory says (torch conjugates and
negates lazily). Otherwise it is a copy, pinned if a tensor is on a CUDA device. `bring()` fills it, and `take_back()`
writes it to the tensors. An operation that reads values brings them. One that writes values takes them back, and calls
order_behind_caller() when it starts.

DeviceSpan: a tensor that the library reads in GPU memory. The GPU codes it, and only planes travel to the host. In an
exact all-reduce the library copies it piece by piece, while other pieces travel. This takes a contiguous tensor, and a
library that finds NVIDIA's driver and compiler. It works for exact all-reduces, and for tolerant ones that wait for all
ranks, with the codecs and types that the library's capabilities name. Each rank decides for itself: the bits are the
same.

Copies between a device and the host run on a separate stream. A copy to the host waits, on the device, for the work
that the caller's stream has so far; the caller's thread goes on. A copy back records an event, and the streams of all
waiters are made to wait for it. Any thread may use a span; one operation at a time.
"""
import contextlib
import ctypes
import functools
import glob
import os
import warnings
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Tuple, Union

import torch
from torch.distributed import ReduceOp

from .. import abi

# ---- Element types ----

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
    if reduction == abi.AVERAGE and dtype == torch.bool:
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


# ---- Copies from and to a device ----

Pairs = Iterable[Tuple[torch.Tensor, torch.Tensor]]  # (to, from)


class Copy:
    """Started copies; `end` is the event behind them."""

    def __init__(self, stream: "torch.cuda.Stream", pairs: Pairs) -> None:
        self._begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            self._begin.record(stream)
            for to, source in pairs:
                to.copy_(source, non_blocking=True)
                for tensor in (to, source):
                    if tensor.device.type == "cuda":
                        tensor.record_stream(stream)
            self.end.record(stream)

    def wait(self) -> None:
        self.end.synchronize()

    def seconds(self) -> float:
        """Duration by the device's clock; waits for the end."""
        self.end.synchronize()
        return self._begin.elapsed_time(self.end) / 1e3


@functools.lru_cache(maxsize=None)
def copy_stream(device: torch.device) -> "torch.cuda.Stream":
    return torch.cuda.Stream(device=device)


def wait_for_caller(device: torch.device) -> None:
    """Orders later copies behind the work that the caller's stream has so far."""
    copy_stream(device).wait_stream(torch.cuda.current_stream(device))


def to_host(device: torch.device, pairs: Pairs) -> Copy:
    """Copies behind the work that the caller's stream has so far."""
    wait_for_caller(device)
    return Copy(copy_stream(device), pairs)


def to_device(device: torch.device, pairs: Pairs) -> Copy:
    return Copy(copy_stream(device), pairs)


def let_current_stream_wait(device: torch.device, event: "torch.cuda.Event") -> None:
    torch.cuda.current_stream(device).wait_event(event)


@contextlib.contextmanager
def on_copy_streams(devices: Sequence[torch.device]) -> Iterator[None]:
    """Makes the devices' copy streams the current ones."""
    with contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.cuda.stream(copy_stream(device)))
        yield


# ---- Host memory ----

def check_tensor(tensor: torch.Tensor, operation: str) -> None:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"{operation}: Spillway moves dense tensors; this one is {tensor.layout}, {tensor.dtype}. "
                        "Call to_dense() or dequantize() first")
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{operation}: Spillway moves tensors of the CPU and of CUDA devices, not of "
                        f"{tensor.device.type}. Copy it to the CPU first")
    if tensor.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{operation} cannot be captured in a CUDA graph, because it goes through the host: capture "
                           "what is before and behind it, and call it between the replays")


def check_alike(tensors: Sequence[torch.Tensor], operation: str) -> None:
    first = tensors[0]
    for tensor in tensors:
        check_tensor(tensor, operation)
        if (tensor.numel(), tensor.dtype, tensor.device) != (first.numel(), first.dtype, first.device):
            raise ValueError(f"{operation}: its tensors must be alike; one is {tuple(first.shape)} {first.dtype} on "
                             f"{first.device}, another {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}")


def is_aligned(tensor: torch.Tensor) -> bool:
    return tensor.data_ptr() % 4 == 0


class HostSpan:
    """One part per tensor, or one tensor divided into `parts`."""

    def __init__(self, tensors: Sequence[torch.Tensor], operation: str, parts: Optional[int] = None) -> None:
        check_alike(tensors, operation)
        self._tensors = [tensor.detach() for tensor in tensors]
        self._parts = len(tensors) if parts is None else parts
        first = self._tensors[0]
        self.dtype, self.device = first.dtype, first.device
        numel = first.numel() * len(tensors)
        if numel % self._parts:
            raise ValueError(f"{operation}: {numel} elements cannot be divided among {self._parts} ranks")
        self._part_bytes = numel // self._parts * first.element_size()
        self._is_native = self.dtype in TYPES
        self._stride = self._part_bytes if self._is_native else -(-self._part_bytes // PADDING) * PADDING
        self.is_direct = self._may_be_direct()
        self._memory = first if self.is_direct else self._allocate()
        # Started copies, for tensors on a CUDA device.
        self.brought: Optional[Copy] = None
        self.taken_back: Optional[Copy] = None

    def _may_be_direct(self) -> bool:
        if self._part_bytes == 0:
            return True  # nothing to copy
        first = self._tensors[0]
        return (len(self._tensors) == 1 and self.device.type == "cpu" and first.is_contiguous()
                and not first.is_conj() and not first.is_neg()
                and self._stride == self._part_bytes and (self._is_native or is_aligned(first)))

    def _allocate(self) -> torch.Tensor:
        # A padded span has zeros behind its parts: no other process memory may travel with them.
        make = torch.empty if self._is_native else torch.zeros
        return make(self._parts * self._stride, dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    @property
    def type(self) -> int:
        return TYPES.get(self.dtype, abi.INT32)

    @property
    def count(self) -> int:
        """Elements per part, as the library counts them."""
        size = self._tensors[0].element_size() if self._is_native else 4
        return self._stride // size

    @property
    def pointer(self) -> int:
        return self._memory.data_ptr()

    @property
    def memory(self) -> torch.Tensor:
        return self._memory

    def bring(self) -> Optional[Callable[[], None]]:
        """Fills the span from its tensors. Returns a function that blocks until it is filled, or None if it is."""
        if self.is_direct:
            return None
        if self.device.type == "cuda":
            self.brought = to_host(self.device, self._outgoing())
            return self.brought.wait
        for host, tensor in self._outgoing():
            host.copy_(tensor)
        return None

    def order_behind_caller(self) -> None:
        """Orders take_back() behind the work that the caller's stream still has on the tensors."""
        if self.device.type == "cuda":
            wait_for_caller(self.device)

    def take_back(self) -> Optional["torch.cuda.Event"]:
        """Writes the span to its tensors, unless they share memory. Returns the event on their device after which
        they have the values, or None if they have them now."""
        if self.is_direct:
            return None
        if self.device.type == "cuda":
            self.taken_back = to_device(self.device, self._incoming())
            return self.taken_back.end
        for tensor, host in self._incoming():
            tensor.copy_(host)
        return None

    def _parts_in_memory(self) -> torch.Tensor:
        """One row per part."""
        rows = self._memory.view(self._parts, self._stride)
        return rows[:, :self._part_bytes].view(self.dtype)

    def _outgoing(self) -> Pairs:
        """Destinations in the span, and their source tensors."""
        rows = self._parts_in_memory()
        if len(self._tensors) == self._parts:
            return [(row.view(tensor.shape), tensor) for row, tensor in zip(rows, self._tensors)]
        return [(rows, self._tensors[0].reshape(rows.shape))]

    def _incoming(self) -> Pairs:
        """Destination tensors, and their values in the span."""
        rows = self._parts_in_memory()
        if len(self._tensors) == self._parts:
            return [(tensor, row.view(tensor.shape)) for tensor, row in zip(self._tensors, rows)]
        return [(self._tensors[0], rows.reshape(self._tensors[0].shape))]


# ---- Device memory ----

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


_gpu_may_code = True


def allow_gpu_coding(is_allowed: bool) -> None:
    """Without it, tensors of devices are copied to the host as a whole from now on."""
    global _gpu_may_code
    _gpu_may_code = is_allowed


def is_coder(device: torch.device) -> bool:
    """True if the device codes its tensors."""
    return _gpu_may_code and _can_code(device)


@functools.lru_cache(maxsize=None)
def _can_code(device: torch.device) -> bool:
    """Warns once if the device cannot code."""
    library = abi.default_library()
    if library.variable_if_set("SPILLWAY_NVRTC") is None:
        load_nvrtc_of_torch()
    number = device.index if device.index is not None else torch.cuda.current_device()
    reason = library.why_not_cuda(number)
    if reason is not None:
        warnings.warn(f"Spillway: tensors of {device} are coded by the CPU: {reason}", stacklevel=2)
    return reason is None


def becomes_blocks(options: abi.OperationOptions, library: abi.Library) -> bool:
    """True if SPILLWAY_ALGORITHM turns planes into blocks, which switches can add: at more bits than levels have."""
    return (options.codec == abi.CODECS.index("planes") and options.algorithm == 0
            and options.precision > max(library.capabilities["levels"]["bits"])
            and library.variable("SPILLWAY_ALGORITHM") == "switch")


def takes_device(options: abi.OperationOptions, tensor: torch.Tensor) -> bool:
    """True if an all-reduce with these options may use device memory."""
    if not options.tolerant:
        return tensor.dtype in TYPES and tensor.numel() * tensor.element_size() >= LEAST_COPIED_BYTES
    library = abi.default_library()
    codec = "blocks" if becomes_blocks(options, library) else abi.CODECS[options.codec]
    types = library.capabilities[codec]["device_types"]
    return options.least_contributors == 0.0 and str(tensor.dtype).removeprefix("torch.") in types


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
