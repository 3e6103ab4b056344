# SPDX-License-Identifier: Apache-2.0
"""The package's errors.

Loss is not an error: reports count it. A `SpillwayError` is a wrong call, a limit, or the end of a communicator. Its
message names the operation, the rank that raised it, and the cause.
"""
import enum


class Status(enum.IntEnum):
    """spillway_status of the C interface. A communicator that returned PEER_FAILED to ABORTED cannot be used any
    more."""

    OK = 0
    INVALID_ARGUMENT = 1
    LIMIT_EXCEEDED = 2
    UNAVAILABLE = 3
    INTERNAL = 4
    PEER_FAILED = 5
    MISMATCH = 6
    TIMED_OUT = 7
    ABORTED = 8
    IN_PROGRESS = 9


class BackendError(RuntimeError):
    """Stands for torch's DistBackendError, which `import spillway.torch` puts in its place."""


class SpillwayError(BackendError):
    """A failed operation; `status` is the kind of failure. With torch, `except DistBackendError` catches it, too."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class LibraryVersionError(ImportError):
    """The library is older than this package, or of another major version; the message names both."""


class LibraryNotFoundError(ImportError):
    """libspillway.so was not found; the message says where the package looked and what to do."""
