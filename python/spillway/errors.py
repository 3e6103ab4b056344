# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as Python sees it.

Loss is no error: reports count it. A `SpillwayError` is a wrong call, a limit, or the end of a
communicator; its message names the operation, the rank that raised it, and the cause.
"""
import enum


class Status(enum.IntEnum):
    """spillway_status of the C interface. A communicator that gave one of PEER_FAILED to ABORTED is of
    no use any more."""

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


class SpillwayError(RuntimeError):
    """An operation that failed. `status` says of which kind."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class LibraryVersionError(ImportError):
    """The library is older than this package, or of another major version; the message names both."""


class LibraryNotFoundError(ImportError):
    """libspillway.so is nowhere; the message says where it was looked for and what to do."""
