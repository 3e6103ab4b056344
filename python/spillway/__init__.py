# SPDX-License-Identifier: Apache-2.0
"""Spillway moves gradients between training workers over ordinary, lossy Ethernet.

    import spillway.torch                                   # the PyTorch backend and DDP hook
    torch.distributed.init_process_group("spillway")

This package is pure Python over libspillway.so's C interface; `import spillway` loads neither the library nor torch.
docs/pytorch.md is the tutorial.
"""
from .abi import (ANY_RANK, AVERAGE, BFLOAT16, BIT_AND, BIT_OR, BIT_XOR, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, INT64,
                  MAX, MAX_TAG, MIN, PRODUCT, SUM, UINT8, Library, OperationOptions, UniqueId, default_library)
from .communicator import Communicator
from .errors import LibraryNotFoundError, LibraryVersionError, SpillwayError, Status
from .job import Change, Job
from .request import OperationReport, PeerReport, Request
from .version import VERSION as __version__

__all__ = ["ANY_RANK", "AVERAGE", "BFLOAT16", "BIT_AND", "BIT_OR", "BIT_XOR", "FLOAT16", "FLOAT32", "FLOAT64", "INT8",
           "INT32", "INT64", "MAX", "MAX_TAG", "MIN", "PRODUCT", "SUM", "UINT8", "Change", "Communicator", "Job",
           "Library", "LibraryNotFoundError", "LibraryVersionError", "OperationOptions", "OperationReport",
           "PeerReport", "Request", "SpillwayError", "Status", "UniqueId", "__version__", "default_library"]
