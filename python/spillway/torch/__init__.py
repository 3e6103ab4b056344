# SPDX-License-Identifier: Apache-2.0
"""Spillway for PyTorch: importing this makes "spillway" a backend.

    import spillway.torch
    torch.distributed.init_process_group("spillway")        # under torchrun, mpirun, srun or plain variables
    model = DistributedDataParallel(model)                   # exact
    hook = spillway.torch.attach(model)                      # gradients may lose a bounded share
    model, optimizer = spillway.torch.overlap(model, optimizer)   # instead: the next forward pass does not wait

Under launchers that do not set RANK and the like (mpirun, srun), init_process_group() derives them from what those do
set.
docs/pytorch.md is the tutorial.
"""
import sys

try:
    import torch
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    raise ModuleNotFoundError(
        f"spillway.torch needs PyTorch, which {sys.executable} has not. Install it there, or run the Python that has "
        "it (Debian: apt install python3-torch, and /usr/bin/python3)", name="torch") from None

import torch.distributed

if not torch.distributed.is_available():
    raise ImportError("this build of torch has no torch.distributed; install one that has")

from ..errors import LibraryNotFoundError, LibraryVersionError, SpillwayError, Status
from .codecs import Auto, Blocks, Codec, Entropy, Exact, Levels, Planes, Sketch
from .collectives import BACKEND
from .ddp_hook import DdpHook, StepReport, attach
from .elastic_job import ElasticJob, JobEnded, elastic
from .gradient_transfers import OverlapReport
from .overlapped_model import OverlappedModel, overlap
from .partition import Partition, partition
from .process_group import monitored_barrier
from .registration import register
from .sharded_model import ShardHook, shard

register()
if hasattr(torch.distributed, "DistBackendError"):
    SpillwayError.__bases__ = (torch.distributed.DistBackendError,)

__all__ = ["Auto", "BACKEND", "Blocks", "Codec", "DdpHook", "ElasticJob", "Entropy", "Exact", "JobEnded", "Levels",
           "LibraryNotFoundError", "LibraryVersionError", "OverlapReport", "OverlappedModel", "Partition", "Planes",
           "ShardHook", "Sketch", "SpillwayError", "Status", "StepReport", "attach", "elastic", "monitored_barrier",
           "overlap", "partition", "shard"]
