# SPDX-License-Identifier: Apache-2.0
"""Errors of operations that were started during a backward pass reach the caller of backward() as they are.

DDP looks at its Futures at the end of the backward pass and makes "cannot cast ... to Tensor" of an error
in one. Callbacks of the autograd engine run in the order in which they were queued, and DDP queues its own
behind its last bucket: one that waits for an operation and raises its error comes before that.
"""
from typing import Callable

import torch


def before_backward_ends(callback: Callable[[], None]) -> bool:
    """False, and nothing queued, outside of a backward pass."""
    try:
        torch.autograd.Variable._execution_engine.queue_callback(callback)
    except RuntimeError:
        return False
    return True
