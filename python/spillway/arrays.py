# SPDX-License-Identifier: Apache-2.0
"""Arrays as memory of an operation: anything with NumPy's __array_interface__, or with DLPack's __dlpack__.

    comm.run("all_reduce", sent, received, spillway.SUM)      # instead of addresses, count and type

An operation whose memory is given as arrays takes neither count nor type: the arrays have both. Arrays are contiguous,
of one type, in host memory, and used in place. NumPy is not needed: an array describes itself.

Limits: the types of the library; no bool, because a sum of bools is none. Any thread may read arrays.
"""
import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p, py_object
from typing import Any, List, Optional, Sequence, Tuple

from . import abi

TYPES = {"f4": abi.FLOAT32, "f8": abi.FLOAT64, "f2": abi.FLOAT16, "i4": abi.INT32, "i8": abi.INT64, "i1": abi.INT8,
         "u1": abi.UINT8}
KINDS = {0: "i", 1: "u", 2: "f"}  # of DLPack
BFLOAT_KIND, ON_HOST = 4, (1, 3)  # of DLPack; the latter is pinned memory


class DlTensor(ctypes.Structure):
    """DLTensor of DLPack's C header; a managed tensor begins with it."""

    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("dimensions", c_int32),
                ("kind", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class Array:
    """`owner` keeps the memory alive."""

    def __init__(self, address: int, count: int, type_number: int, is_writable: bool, owner: Any) -> None:
        self.address, self.count, self.type, self.is_writable, self.owner = (address, count, type_number, is_writable,
                                                                             owner)


def is_array(value: Any) -> bool:
    return hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")


def product(numbers: Sequence[int]) -> int:
    count = 1
    for number in numbers:
        count *= number
    return count


def is_contiguous(shape: Sequence[int], strides: Optional[Sequence[int]], unit: int) -> bool:
    """`strides` in units; None if the array is known to be contiguous."""
    if strides is None or 0 in shape:
        return True
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != unit:
            return False
        unit *= extent
    return True


def array_from(value: Any, place: str) -> Array:
    """`place` begins error messages."""
    if hasattr(value, "__array_interface__"):
        return from_interface(value, place)
    return from_dlpack(value, place)


def from_interface(value: Any, place: str) -> Array:
    told = value.__array_interface__
    name, shape = told["typestr"], told["shape"]
    if name[1:] not in TYPES or name[0] == ">":
        raise refused_type(place, name)
    if told.get("data") is None:
        raise TypeError(f"{place} does not say where its memory is")
    if not is_contiguous(shape, told.get("strides"), int(name[2:])):
        raise refused_layout(place)
    address, is_read_only = told["data"]
    return Array(address, product(shape), TYPES[name[1:]], not is_read_only, value)


def from_dlpack(value: Any, place: str) -> Array:
    if value.__dlpack_device__()[0] not in ON_HOST:
        raise TypeError(f"{place} is not in host memory: copy it there first, or use spillway.torch")
    capsule = value.__dlpack__()  # frees the tensor when it goes
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = c_void_p, [py_object, c_char_p]
    tensor = DlTensor.from_address(pointer_of(capsule, b"dltensor"))
    shape = tensor.shape[:tensor.dimensions]
    strides = tensor.strides[:tensor.dimensions] if tensor.strides else None
    number = TYPES.get(f"{KINDS.get(tensor.kind)}{tensor.bits // 8}")
    if tensor.kind == BFLOAT_KIND and tensor.bits == 16:
        number = abi.BFLOAT16
    if number is None or tensor.lanes != 1:
        raise refused_type(place, f"DLPack kind {tensor.kind} of {tensor.bits} bits")
    if not is_contiguous(shape, strides, 1):
        raise refused_layout(place)
    return Array((tensor.data or 0) + tensor.byte_offset, product(shape), number, True, (value, capsule))


def refused_type(place: str, name: str) -> TypeError:
    return TypeError(f"{place} has the type {name}; Spillway adds up float32, float64, float16, bfloat16, int32, int64, "
                     "int8 and uint8 in the machine's byte order. Convert it first")


def refused_layout(place: str) -> ValueError:
    return ValueError(f"{place} is not contiguous: use numpy.ascontiguousarray(), or another contiguous copy")


def with_addresses(operation: str, arguments: Sequence[Any], rank: int, world: int) -> Tuple[List[Any], List[Array]]:
    """Replaces arrays by addresses, count and type. Leaves arguments without arrays as they are."""
    blocks = abi.BLOCKS.get(operation, ())
    if not any(map(is_array, arguments[:len(blocks)])):
        return list(arguments), []
    expected = len(abi.OPERATIONS[operation]) - 2
    if len(arguments) != expected:
        raise TypeError(f"{operation} of arrays takes {expected} arguments, not {len(arguments)}: count and type are "
                        "those of the arrays")
    arrays: List[Array] = []
    addresses: List[Optional[int]] = []
    sizes = set()
    for number, (block, value) in enumerate(zip(blocks, arguments), 1):
        place = f"{operation}: argument {number}"
        if value is None:
            addresses.append(None)
            continue
        if not is_array(value):
            raise TypeError(f"{place} is {value!r:.40}; it must be an array, like the other one, or None")
        array = array_from(value, place)
        if (number == len(blocks) and operation != "send") and not array.is_writable:
            raise ValueError(f"{place} is read-only, and the result goes there")
        parts = world if block in (abi.ALL, abi.ROOTS_ALL) else 1
        if array.count % parts:
            raise ValueError(f"{place} has {array.count} elements, which cannot be divided among {parts} ranks")
        arrays.append(array)
        addresses.append(array.address)
        sizes.add((array.count // parts, array.type))
    if len(sizes) != 1:
        told = " and ".join(f"{count} elements of type {kind} per rank" for count, kind in sorted(sizes))
        raise ValueError(f"{operation}: its arrays must fit each other; they have {told}")
    return [*addresses, *sizes.pop(), *arguments[len(blocks):]], arrays
