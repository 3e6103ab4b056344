# SPDX-License-Identifier: Apache-2.0
"""The C interface (include/spillway/spillway.h) in ctypes: structs, constants and signatures, one to one. `Library`
is a loaded libspillway.so.

Every function declares argtypes and restype: ctypes' default int would truncate 64-bit handles. Calls release the
interpreter's lock while they run. The caller keeps callbacks and buffers alive until an operation has ended.
"""
import ctypes
import functools
import json
from ctypes import (POINTER, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64,
                    c_void_p)
from typing import Any, Dict, Optional, Sequence, Tuple

from .errors import SpillwayError, Status
from .library_path import load_library
from .version import check_library, lacking

LONGEST_VARIABLE = 256  # Bytes for a variable's value, with the terminating 0.

FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT32, INT64, INT8, UINT8 = range(8)
ELEMENT_BYTES = (4, 8, 2, 2, 4, 8, 1, 1)  # by type
SUM, AVERAGE, MIN, MAX, PRODUCT, BIT_AND, BIT_OR, BIT_XOR = range(8)

# By name, in the order of spillway_algorithm and spillway_codec.
ALGORITHMS = ("auto", "direct", "ring", "tree", "servers", "hierarchical", "switch")
CODECS = ("planes", "levels", "blocks", "entropy", "sketch")

MEMORY_HOST, MEMORY_CUDA = range(2)  # spillway_memory

ANY_RANK = 2**32 - 1
IMPORTANCE_BY_ENERGY = EXPENDABLE_AS_LOST = 2**32 - 1
MAX_TAG = 2**24 - 1

# spillway_callback. It runs on a library thread and takes the interpreter's lock there, which delays packets. The
# package waits for requests instead.
Callback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)

WAIT_SLICE_MS = 200  # waits are cut into pieces of this length, so that Ctrl-C is noticed between them

# A *_init function without a size argument writes the library's own struct, which may be larger than ours.
ROOM_FOR_NEWER_FIELDS = 1024


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", c_uint8 * 128)]


class Launch(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("rank", c_uint32), ("world", c_uint32), ("local_rank", c_int32),
                ("local_world", c_int32), ("port", c_uint32), ("launcher", c_char * 20), ("host", c_char * 256)]


class CommConfig(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("id", POINTER(UniqueId)), ("rank", c_int32), ("world", c_int32),
                ("name", c_char_p), ("link_rate", c_uint64), ("mtu", c_uint32), ("trim_bytes", c_int32),
                ("threads", c_int32), ("peer_timeout_ms", c_uint32), ("secret", c_char_p),
                ("secret_size", c_size_t), ("operation_timeout_ms", c_uint32),
                ("rendezvous_timeout_ms", c_uint32), ("servers", c_int32),
                ("trimmed_target_ppm", c_int32),
                ("room", c_uint8 * ROOM_FOR_NEWER_FIELDS)]


class OperationOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("priority", c_uint32), ("algorithm", c_uint32), ("tolerant", c_uint32),
                ("precision", c_uint32), ("gather_precision", c_uint32), ("loss_bound_ppm", c_uint32),
                ("min_planes", c_uint32), ("codec", c_uint32), ("feedback_tensor", c_uint64),
                ("least_contributors", c_double), ("callback", Callback), ("context", c_void_p), ("tag", c_uint32),
                ("timeout_ms", c_uint32), ("importance", c_uint32), ("expendable_ppm", c_uint32),
                ("predicts_scale", c_uint32), ("memory", c_uint32), ("device", c_uint32), ("reserved", c_uint32),
                ("stream", c_void_p), ("room", c_uint8 * ROOM_FOR_NEWER_FIELDS)]


class OperationReport(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("duration_ns", c_uint64), ("packets_whole", c_uint64),
                ("packets_trimmed", c_uint64), ("packets_missing", c_uint64), ("packets_sent", c_uint64),
                ("packets_repeated", c_uint64), ("wire_bytes_sent", c_uint64), ("contributors", c_uint32),
                ("empty_shards", c_uint32), ("peers", c_uint32),
                ("algorithm", c_uint32), ("source", c_uint32), ("codec", c_uint32),
                ("absent_elements", c_uint64), ("absent_ranges", c_uint32), ("shards", c_uint32),
                ("parts_added", c_uint64), ("parts_alone", c_uint64), ("chunks_flushed", c_uint64),
                ("values_clipped", c_uint64),
                ("entropy_values", c_uint64), ("entropy_bytes", c_uint64), ("entropy_tables", c_uint64),
                ("sketch_predicted", c_uint64), ("sketch_misses", c_uint64), ("sketch_unrecovered", c_uint64),
                ("encode_ns", c_uint64), ("to_host_ns", c_uint64), ("exchange_ns", c_uint64),
                ("to_device_ns", c_uint64), ("decode_ns", c_uint64), ("gpu_wait_ns", c_uint64),
                ("gpu_bytes", c_uint64)]


class PeerReport(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("packets_whole", c_uint64), ("packets_trimmed", c_uint64),
                ("packets_missing", c_uint64), ("late", c_uint32), ("reserved", c_uint32)]


class ShardReport(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("first", c_uint64), ("count", c_uint64), ("owner", c_uint32),
                ("contributors", c_uint32)]


class JobConfig(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("standbys", c_uint32), ("channels", c_uint32), ("may_shrink", c_uint32),
                ("min_ranks", c_uint32), ("silence_ms", c_uint32), ("park_limit_ms", c_uint32),
                ("straggler_percent", c_uint32), ("replace_stragglers", c_uint32),
                ("may_grow", c_uint32), ("reserved", c_uint32), ("ticket_file", c_char_p),
                ("comm", POINTER(CommConfig)), ("room", c_uint8 * ROOM_FOR_NEWER_FIELDS)]


class JobChange(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("ends", c_uint32), ("epoch", c_uint32), ("rank", c_int32), ("world", c_uint32),
                ("step", c_uint64), ("sources", c_uint32), ("is_done", c_uint32), ("interrupted_ns", c_int64),
                ("parked_ns", c_int64), ("decided_ns", c_int64), ("why", c_char * 512)]


class JobPosition(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("has_state", c_uint32), ("is_warm", c_uint32), ("step", c_uint64)]


# Argument types between comm and (options, request).
OPERATIONS = {
    "all_reduce": [c_void_p, c_void_p, c_size_t, c_int, c_int],
    "reduce_scatter": [c_void_p, c_void_p, c_size_t, c_int, c_int],
    "all_gather": [c_void_p, c_void_p, c_size_t, c_int],
    "broadcast": [c_void_p, c_void_p, c_size_t, c_int, c_uint32],
    "reduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_uint32],
    "gather": [c_void_p, c_void_p, c_size_t, c_int, c_uint32],
    "scatter": [c_void_p, c_void_p, c_size_t, c_int, c_uint32],
    "all_to_all": [c_void_p, c_void_p, c_size_t, c_int],
    "barrier": [],
    "send": [c_void_p, c_size_t, c_int, c_uint32],
    "receive": [c_void_p, c_size_t, c_int, c_uint32],
}

# Buffers of each operation, in blocks of `count` elements: one block, one per rank, or either at the root only. The
# root is then the last argument.
ONE, ALL, ROOTS, ROOTS_ALL = range(4)
BLOCKS = {
    "all_reduce": (ONE, ONE),
    "reduce_scatter": (ALL, ONE),
    "all_gather": (ONE, ALL),
    "broadcast": (ROOTS, ONE),
    "reduce": (ONE, ROOTS),
    "gather": (ONE, ROOTS_ALL),
    "scatter": (ROOTS_ALL, ONE),
    "all_to_all": (ALL, ALL),
    "barrier": (),
    "send": (ONE,),
    "receive": (ONE,),
}

SIGNATURES = {
    "spillway_version": (c_char_p, []),
    "spillway_last_error": (c_char_p, []),
    "spillway_status_name": (c_char_p, [c_int]),
    "spillway_variable": (c_int, [c_char_p, c_char_p, c_size_t, POINTER(c_int)]),
    "spillway_launch_read": (c_int, [POINTER(Launch)]),
    "spillway_unique_id_create": (c_int, [POINTER(UniqueId)]),
    "spillway_unique_id_discard": (None, [POINTER(UniqueId)]),
    "spillway_comm_config_init": (None, [POINTER(CommConfig)]),
    "spillway_comm_create": (c_int, [POINTER(CommConfig), POINTER(c_void_p)]),
    "spillway_comm_free": (None, [c_void_p]),
    "spillway_comm_rank": (c_uint32, [c_void_p]),
    "spillway_comm_world": (c_uint32, [c_void_p]),
    "spillway_comm_abort": (c_int, [c_void_p, c_char_p]),
    "spillway_comm_error": (c_int, [c_void_p]),
    "spillway_operation_options_init": (None, [POINTER(OperationOptions)]),
    "spillway_operation_options_check": (c_int, [POINTER(OperationOptions)]),
    "spillway_cuda_check": (c_int, [c_uint32]),
    "spillway_capabilities": (c_char_p, []),
    "spillway_request_wait": (c_int, [c_void_p, c_int64]),
    "spillway_request_test": (c_int, [c_void_p]),
    "spillway_request_status": (c_int, [c_void_p]),
    "spillway_request_message": (c_char_p, [c_void_p]),
    "spillway_request_report": (c_int, [c_void_p, POINTER(OperationReport)]),
    "spillway_request_peers": (c_int, [c_void_p, POINTER(PeerReport), c_uint32, POINTER(c_uint32)]),
    "spillway_request_shard_report": (c_int, [c_void_p, c_uint32, POINTER(ShardReport)]),
    "spillway_request_absent_range": (c_int, [c_void_p, c_uint32, POINTER(c_uint64), POINTER(c_uint64)]),
    "spillway_request_free": (None, [c_void_p]),
    "spillway_job_config_init_sized": (None, [POINTER(JobConfig), c_size_t]),
    "spillway_job_found": (c_int, [c_void_p, POINTER(JobConfig), POINTER(c_void_p)]),
    "spillway_job_join": (c_int, [c_char_p, POINTER(JobConfig), POINTER(c_void_p)]),
    "spillway_job_free": (None, [c_void_p]),
    "spillway_job_ticket": (c_int, [c_void_p, c_char_p, c_size_t]),
    "spillway_job_first_change": (c_int, [c_void_p, POINTER(JobChange)]),
    "spillway_job_step": (c_int, [c_void_p, c_uint64, c_uint64, POINTER(c_int)]),
    "spillway_job_interrupted": (c_int, [c_void_p]),
    "spillway_job_park": (c_int, [c_void_p, POINTER(JobPosition), c_uint32, POINTER(JobChange)]),
    "spillway_job_sources": (c_int, [c_void_p, POINTER(c_uint32), c_uint32]),
    "spillway_job_comm": (c_int, [c_void_p, c_uint32, POINTER(c_uint32), c_uint32, POINTER(c_void_p)]),
    "spillway_job_finish": (c_int, [c_void_p, c_uint32, POINTER(c_int)]),
    "spillway_job_leave": (c_int, [c_void_p]),
    "spillway_job_ask": (c_int, [c_void_p, c_char_p, c_uint32, c_char_p, c_size_t]),
}


# Accepted besides plain addresses. ctypes has no public names for the types of pointer() and byref().
MEMORY_TYPES = (c_void_p, ctypes.Array, POINTER(c_char).__mro__[1], type(ctypes.byref(c_int())))


# size_t is c_uint64 or c_ulong, depending on the platform.
WHOLE_TYPES = (c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64)


def share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value!r}: it is a share, from 0 to 1")
    return value


def per_million(name: str, value: Any) -> int:
    return round(share(name, value) * 1_000_000)


def set_fields(struct: ctypes.Structure, what: str, fields: Dict[str, Any]) -> None:
    """Sets fields with a range check, because ctypes would truncate silently. `what` names the struct in messages."""
    types = dict(struct._fields_)  # type: ignore[arg-type, misc]
    for name, value in fields.items():
        if name not in types:
            raise TypeError(f"{what} has no field {name}; see include/spillway/spillway.h")
        if types[name] in WHOLE_TYPES:
            value = fitting(name, value, types[name])
        setattr(struct, name, value)


def fitting(name: str, value: Any, kind: Any) -> int:
    """Checks that `value` is a whole number that the C type can hold."""
    least, most = range_of(kind)
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is {value!r:.40}: it is a whole number from {least} to {most}")
    return int(value)


def range_of(kind: Any) -> Tuple[int, int]:
    bits = 8 * ctypes.sizeof(kind)
    is_signed = kind(-1).value < 0
    return (-2**(bits - 1), 2**(bits - 1) - 1) if is_signed else (0, 2**bits - 1)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def whole(name: str, value: Any) -> int:
    """Checks a 32-bit field, because ctypes would truncate silently."""
    if not is_whole(value) or value >= 2**32:
        raise ValueError(f"{name} is {value!r}: it is a whole number, 0 or more")
    return value


class Library:
    """A loaded library; `lib` has the C functions. Without a path, library_path finds it."""

    def __init__(self, path: Optional[Any] = None) -> None:
        self.lib = load_library() if path is None else ctypes.CDLL(str(path))
        self._declare("spillway_version", *SIGNATURES["spillway_version"])
        check_library(self.version(), self.lib._name)
        for name, (result, arguments) in SIGNATURES.items():
            self._declare(name, result, arguments)
        for name, arguments in OPERATIONS.items():
            self._declare("spillway_" + name, c_int,
                          [c_void_p, *arguments, POINTER(OperationOptions), POINTER(c_void_p)])

    def _declare(self, name: str, result: Any, arguments: Any) -> None:
        function = getattr(self.lib, name, None)
        if function is None:
            raise lacking(name, self.lib._name)
        function.restype, function.argtypes = result, arguments

    def version(self) -> str:
        return self.lib.spillway_version().decode()

    def last_error(self) -> str:
        return self.lib.spillway_last_error().decode(errors="replace")

    def check(self, status: int) -> None:
        """Raises the calling thread's last error unless `status` is OK."""
        if status != Status.OK:
            raise SpillwayError(status, self.last_error())

    def variable(self, name: str) -> str:
        """The value of a variable of docs/environment.md, or its default. Raises ValueError, in the library's words,
        if the value is not allowed."""
        return self._read_variable(name)[0]

    def variable_if_set(self, name: str) -> Optional[str]:
        """Like variable(), but None if the variable is not set."""
        text, is_set = self._read_variable(name)
        return text if is_set else None

    def _read_variable(self, name: str) -> Tuple[str, bool]:
        text, is_set = ctypes.create_string_buffer(LONGEST_VARIABLE), c_int()
        if self.lib.spillway_variable(name.encode(), text, len(text), ctypes.byref(is_set)) != Status.OK:
            raise ValueError(self.last_error())
        return text.value.decode(), bool(is_set.value)

    @functools.cached_property
    def capabilities(self) -> Dict[str, Dict[str, Any]]:
        """By codec, "exact" included: the library's table of what goes with it (docs/algorithms.md). Keys of a row:
        operations, algorithms, types, reductions, device_types, bits, ranks, values, servers, encryption, losses,
        least_contributors, error_feedback, packet_bytes."""
        return {row["codec"]: row for row in json.loads(self.lib.spillway_capabilities())}

    def why_not_cuda(self, device: int) -> Optional[str]:
        """Why this GPU cannot code tensors, as a sentence; None if it can. The first call loads what coding needs."""
        return None if self.lib.spillway_cuda_check(device) == Status.OK else self.last_error()

    def launch(self) -> Optional[Launch]:
        """The launcher's settings of this process. None without a launcher, or if its variables make no sense."""
        made = Launch(size=ctypes.sizeof(Launch))
        return made if self.lib.spillway_launch_read(ctypes.byref(made)) == Status.OK else None

    def config(self) -> CommConfig:
        """With the library's defaults."""
        return self._with_defaults(CommConfig(), "spillway_comm_config_init")

    def options(self) -> OperationOptions:
        """With the library's defaults."""
        return self._with_defaults(OperationOptions(), "spillway_operation_options_init")

    def tolerant_options(self, *, loss_bound: float, expendable: Optional[float] = None,
                         least_contributors: float = 0.0, **fields: int) -> OperationOptions:
        """Options of an operation that may lose something: the defaults with these fields.

        `loss_bound`, `expendable` and `least_contributors` are shares, from 0 to 1. A value out of range raises a
        ValueError that names the argument, in the library's words where the library knows the range."""
        made = self.options()
        made.tolerant = 1
        made.loss_bound_ppm = per_million("loss_bound", loss_bound)
        if expendable is not None:
            made.expendable_ppm = per_million("expendable", expendable)
        made.least_contributors = share("least_contributors", least_contributors)
        for name, value in fields.items():
            setattr(made, name, whole(name, value))
        if self.lib.spillway_operation_options_check(ctypes.byref(made)) != Status.OK:
            raise ValueError(self.last_error())
        return made

    def check_arguments(self, operation: str, arguments: Sequence[Any], rank: int, world: int) -> None:
        """Raises TypeError for an argument that is not memory: ctypes would make a pointer of a str. Raises
        ValueError for a number that ctypes would truncate, and for a ctypes array that is too short."""
        if operation not in OPERATIONS:
            raise ValueError(f"there is no operation {operation!r}; there are {', '.join(OPERATIONS)}")
        wanted_types = OPERATIONS[operation]
        if len(arguments) != len(wanted_types):
            raise TypeError(f"{operation} takes {len(wanted_types)} arguments, not {len(arguments)}; see "
                            "include/spillway/spillway.h")
        for number, (wanted, value) in enumerate(zip(wanted_types, arguments), 1):
            if wanted is c_void_p:
                is_fit = value is None or is_whole(value) or isinstance(value, MEMORY_TYPES)
                needed = "an address (such as tensor.data_ptr()), a ctypes array or pointer, or None"
            else:
                is_fit, needed = is_whole(value), "a whole number, 0 or more"
            if not is_fit:
                raise TypeError(f"{operation}: argument {number} is {value!r:.40}; it must be {needed}")
            if wanted is not c_void_p:
                fitting(f"{operation}: argument {number}", value, wanted)
        self._check_arrays(operation, arguments, rank, world)

    @staticmethod
    def _check_arrays(operation: str, arguments: Sequence[Any], rank: int, world: int) -> None:
        """Checks that ctypes arrays have room for what the operation reads and writes."""
        blocks = BLOCKS[operation]
        if not blocks or arguments[len(blocks) + 1] >= len(ELEMENT_BYTES):
            return  # the library reports an unknown type
        count, element = arguments[len(blocks)], ELEMENT_BYTES[arguments[len(blocks) + 1]]
        for number, (block, value) in enumerate(zip(blocks, arguments), 1):
            is_used = block not in (ROOTS, ROOTS_ALL) or arguments[-1] == rank
            needed = count * element * (world if block in (ALL, ROOTS_ALL) else 1)
            if is_used and isinstance(value, ctypes.Array) and ctypes.sizeof(value) < needed:
                raise ValueError(f"{operation}: argument {number} is an array of {ctypes.sizeof(value)} bytes; it must "
                                 f"have at least {needed}")

    def _with_defaults(self, made: Any, initialiser: str) -> Any:
        """Passes our struct's size if the library has a *_init_sized function."""
        sized = initialiser + "_sized"
        if hasattr(self.lib, sized):
            self._declare(sized, None, [POINTER(type(made)), c_size_t])
            getattr(self.lib, sized)(ctypes.byref(made), type(made).room.offset)
        else:
            getattr(self.lib, initialiser)(ctypes.byref(made))
        return made

    def unique_id(self) -> UniqueId:
        made = UniqueId()
        self.check(self.lib.spillway_unique_id_create(ctypes.byref(made)))
        return made


@functools.lru_cache(maxsize=None)
def default_library() -> Library:
    """The process's library; the first call loads it."""
    return Library()
