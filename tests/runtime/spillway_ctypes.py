# SPDX-License-Identifier: Apache-2.0
"""The Python package's binding of the C interface, for the tests in this folder, with the library given as an
argument instead of searched for.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import spillway
from spillway import (AVERAGE, BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, MAX, MIN, SUM, Library,
                      OperationOptions, SpillwayError, UniqueId)
from spillway.abi import ALGORITHMS, CODECS, Callback

(OK, INVALID_ARGUMENT, LIMIT_EXCEEDED, UNAVAILABLE, INTERNAL, PEER_FAILED, MISMATCH, TIMED_OUT, ABORTED,
 IN_PROGRESS) = spillway.Status


# The harness ends a hung test; slow starts of ranks are waited for.
MEETING_TIMEOUT_MS = 600_000


class Communicator(spillway.Communicator):
    def __init__(self, library, unique_id=None, **fields):
        super().__init__(unique_id, library=library, **{"rendezvous_timeout_ms": MEETING_TIMEOUT_MS, **fields})
