# SPDX-License-Identifier: Apache-2.0
"""A rank's place in a group, over the C interface; independent of torch.

    with spillway.Communicator() as comm:                  # rank and world as the launcher set them
        comm.run("all_reduce", pointer, pointer, count, spillway.FLOAT32, spillway.SUM)
        comm.run("all_reduce", array, array, spillway.SUM)  # of NumPy, or anything that describes itself like it

Invariants: buffers in `keep` live until their operation has ended, even if the caller drops the request.
Communicators that are open when the interpreter exits are closed.

Threads: any thread may start operations; they begin in the order of the calls.
"""
import atexit
import ctypes
import threading
import weakref
from typing import Any, List, Optional

from . import abi
from .arrays import with_addresses
from .errors import SpillwayError, Status
from .request import Request


class Communicator:
    """Created from the environment or from an id; other keywords are fields of spillway_comm_config. `note` is
    appended to error messages."""

    def __init__(self, unique_id: Optional[abi.UniqueId] = None, *, library: Optional[abi.Library] = None,
                 note: str = "", **fields: Any) -> None:
        self.library = library or abi.default_library()
        self._note = f" ({note})" if note else ""
        self._begin(self._create(unique_id, fields))

    @classmethod
    def adopt(cls, library: abi.Library, handle: ctypes.c_void_p) -> "Communicator":
        """Wraps a communicator that the library has already created. Close it like any other."""
        made = cls.__new__(cls)
        made.library, made._note = library, ""
        made._begin(handle)
        return made

    def _begin(self, handle: ctypes.c_void_p) -> None:
        self._lock = threading.Lock()
        self._under_way: List[Request] = []
        self.handle: Optional[ctypes.c_void_p] = handle
        self.rank: int = self.library.lib.spillway_comm_rank(self.handle)
        self.world: int = self.library.lib.spillway_comm_world(self.handle)
        _open.add(self)

    def _create(self, unique_id: Optional[abi.UniqueId], fields: Any) -> ctypes.c_void_p:
        config = self.library.config()
        if unique_id is not None:
            config.id = ctypes.pointer(unique_id)
        abi.set_fields(config, "spillway_comm_config", fields)
        handle = ctypes.c_void_p()
        status = self.library.lib.spillway_comm_create(ctypes.byref(config), ctypes.byref(handle))
        if status != Status.OK:
            who = f"rank {config.rank} of {config.world}" if config.rank >= 0 else "this rank"
            raise SpillwayError(Status(status), f"{who} cannot join its group: {self.library.last_error()}{self._note}")
        return handle

    def options(self) -> abi.OperationOptions:
        return self.library.options()

    def start(self, operation: str, *given: Any, options: Optional[abi.OperationOptions] = None,
              keep: Any = None) -> Request:
        """Returns at once. `given` are the arguments of spillway_<operation> between comm and options; arrays stand for
        their addresses, count and type (arrays.py)."""
        arguments, arrays = with_addresses(operation, given, self.rank, self.world)
        self.library.check_arguments(operation, arguments, self.rank, self.world)
        function = getattr(self.library.lib, "spillway_" + operation)
        handle = ctypes.c_void_p()
        with self._lock:
            self._raise_if_closed(operation)
            status = function(self.handle, *arguments, options and ctypes.byref(options), ctypes.byref(handle))
            if status != Status.OK:
                raise SpillwayError(Status(status), f"{self._describe(operation)}: {self.library.last_error()}")
            request = Request(self.library, handle, self._describe(operation),
                              (arguments, options, keep, arrays))
            self._under_way = [other for other in self._under_way if not other.is_done()] + [request]
        return request

    def run(self, operation: str, *arguments: Any, options: Optional[abi.OperationOptions] = None) -> None:
        """Returns when the operation has ended."""
        self.start(operation, *arguments, options=options).wait()

    def abort(self, why: str) -> None:
        with self._lock:
            if self.handle is not None:
                self.library.check(self.library.lib.spillway_comm_abort(self.handle, why.encode()))

    def check_health(self) -> None:
        """Raises the error that broke the communicator, if any."""
        with self._lock:
            self._raise_if_closed("check_health")
            self.library.check(self.library.lib.spillway_comm_error(self.handle))

    def close(self) -> None:
        """Ends operations under way, here and, by a notice, at the other ranks. May be called again."""
        with self._lock:
            handle, self.handle = self.handle, None
        _open.discard(self)
        if handle is not None:
            self.library.lib.spillway_comm_free(handle)

    def _describe(self, operation: str) -> str:
        return f"{operation} at rank {self.rank} of {self.world}{self._note}"

    def _raise_if_closed(self, operation: str) -> None:
        if self.handle is None:
            raise SpillwayError(Status.INVALID_ARGUMENT, f"{self._describe(operation)}: the communicator is closed")

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            self.close()


_open: "weakref.WeakSet[Communicator]" = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    """Closes them before the interpreter exits, so that threads waiting for operations return while it still runs."""
    for communicator in list(_open):
        communicator.close()
