# SPDX-License-Identifier: Apache-2.0
"""The C interface of communicators for tests, through ctypes alone.

Every function has its argtypes and restype: a default int would cut 64-bit handles short. Callbacks
and buffers are the caller's to keep alive until an operation has ended.
"""
import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

(OK, INVALID_ARGUMENT, LIMIT_EXCEEDED, UNAVAILABLE, INTERNAL, PEER_FAILED, MISMATCH, TIMED_OUT, ABORTED,
 IN_PROGRESS) = range(10)
FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT32, INT64 = range(6)
SUM, AVERAGE, MIN, MAX = range(4)

Callback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 128)]


class CommConfig(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("id", POINTER(UniqueId)), ("rank", c_int32), ("world", c_int32),
                ("name", c_char_p), ("link_rate", c_uint64), ("mtu", c_uint32), ("trim_bytes", c_int32),
                ("threads", c_int32), ("peer_timeout_ms", c_uint32), ("secret", c_char_p),
                ("secret_size", c_size_t), ("operation_timeout_ms", c_uint32),
                ("rendezvous_timeout_ms", c_uint32)]


class OperationOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("priority", c_uint32), ("algorithm", c_uint32), ("tolerant", c_uint32),
                ("precision", c_uint32), ("gather_precision", c_uint32), ("loss_ppm", c_uint32),
                ("min_planes", c_uint32), ("lossy_gather", c_uint32), ("feedback_tensor", c_uint64),
                ("least_contributors", c_double), ("callback", Callback), ("context", c_void_p)]


class OperationReport(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("duration_ns", c_uint64), ("packets_whole", c_uint64),
                ("packets_trimmed", c_uint64), ("packets_missing", c_uint64), ("packets_sent", c_uint64),
                ("packets_repeated", c_uint64), ("wire_bytes_sent", c_uint64), ("contributors", c_uint32),
                ("empty_shards", c_uint32), ("drift", c_double), ("peers", c_uint32),
                ("algorithm", c_uint32)]


class PeerReport(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("packets_whole", ctypes.c_uint64), ("packets_trimmed", ctypes.c_uint64),
                ("packets_missing", ctypes.c_uint64), ("late", c_uint32), ("reserved", c_uint32)]


# Arguments behind (comm) and before (options, request).
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

SIGNATURES = {
    "spillway_last_error": (c_char_p, []),
    "spillway_status_name": (c_char_p, [c_int]),
    "spillway_unique_id_create": (c_int, [POINTER(UniqueId)]),
    "spillway_comm_config_init": (None, [POINTER(CommConfig)]),
    "spillway_comm_create": (c_int, [POINTER(CommConfig), POINTER(c_void_p)]),
    "spillway_comm_free": (None, [c_void_p]),
    "spillway_comm_rank": (c_uint32, [c_void_p]),
    "spillway_comm_world": (c_uint32, [c_void_p]),
    "spillway_comm_abort": (c_int, [c_void_p, c_char_p]),
    "spillway_comm_error": (c_int, [c_void_p]),
    "spillway_operation_options_init": (None, [POINTER(OperationOptions)]),
    "spillway_request_wait": (c_int, [c_void_p, c_int64]),
    "spillway_request_test": (c_int, [c_void_p]),
    "spillway_request_status": (c_int, [c_void_p]),
    "spillway_request_message": (c_char_p, [c_void_p]),
    "spillway_request_report": (c_int, [c_void_p, POINTER(OperationReport)]),
    "spillway_request_peer_report": (c_int, [c_void_p, c_uint32, POINTER(PeerReport)]),
    "spillway_request_free": (None, [c_void_p]),
}


class SpillwayError(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))
        for name, (result, arguments) in SIGNATURES.items():
            self._declare(name, result, arguments)
        for name, arguments in OPERATIONS.items():
            self._declare("spillway_" + name, c_int,
                          [c_void_p, *arguments, POINTER(OperationOptions), POINTER(c_void_p)])

    def _declare(self, name, result, arguments):
        function = getattr(self.lib, name)
        function.restype, function.argtypes = result, arguments

    def check(self, status):
        if status != OK:
            raise SpillwayError(status, self.lib.spillway_last_error().decode())

    def options(self):
        options = OperationOptions()
        self.lib.spillway_operation_options_init(ctypes.byref(options))
        return options

    def unique_id(self):
        made = UniqueId()
        self.check(self.lib.spillway_unique_id_create(ctypes.byref(made)))
        return made


class Request:
    def __init__(self, library, handle, *keep):
        self.library, self.handle, self.keep = library, handle, keep

    def wait(self, timeout_ms=-1):
        """False when the time was up; raises when the operation failed."""
        status = self.library.lib.spillway_request_wait(self.handle, timeout_ms)
        if status == IN_PROGRESS:
            return False
        self.library.check(status)
        return True

    def is_done(self):
        return bool(self.library.lib.spillway_request_test(self.handle))

    def report(self):
        report = OperationReport(size=ctypes.sizeof(OperationReport))
        self.library.check(self.library.lib.spillway_request_report(self.handle, ctypes.byref(report)))
        return report

    def peer_report(self, rank):
        report = PeerReport(size=ctypes.sizeof(PeerReport))
        self.library.check(self.library.lib.spillway_request_peer_report(self.handle, rank, ctypes.byref(report)))
        return report

    def __del__(self):
        self.library.lib.spillway_request_free(self.handle)


class Communicator:
    """From the environment, or by an id; other keywords are fields of the config."""

    def __init__(self, library, unique_id=None, **fields):
        self.library = library
        config = CommConfig()
        library.lib.spillway_comm_config_init(ctypes.byref(config))
        if unique_id is not None:
            config.id = ctypes.pointer(unique_id)
        for name, value in fields.items():
            setattr(config, name, value)
        self.handle = c_void_p()
        library.check(library.lib.spillway_comm_create(ctypes.byref(config), ctypes.byref(self.handle)))
        self.rank = library.lib.spillway_comm_rank(self.handle)
        self.world = library.lib.spillway_comm_world(self.handle)

    def run(self, operation, *arguments, options=None):
        """Returns when the operation has ended."""
        function = getattr(self.library.lib, "spillway_" + operation)
        self.library.check(function(self.handle, *arguments, options and ctypes.byref(options), None))

    def start(self, operation, *arguments, options=None):
        function = getattr(self.library.lib, "spillway_" + operation)
        handle = c_void_p()
        self.library.check(function(self.handle, *arguments, options and ctypes.byref(options),
                                    ctypes.byref(handle)))
        return Request(self.library, handle, arguments, options)

    def abort(self, why):
        self.library.check(self.library.lib.spillway_comm_abort(self.handle, why.encode()))

    def check_health(self):
        self.library.check(self.library.lib.spillway_comm_error(self.handle))

    def close(self):
        self.library.lib.spillway_comm_free(self.handle)
        self.handle = None
