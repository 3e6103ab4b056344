# SPDX-License-Identifier: Apache-2.0
"""Copies between a CUDA device and pinned host memory, on a stream of their own.

A copy to the host waits, on the device, for what the caller's stream has been given so far; the caller's
thread goes on. A copy back is followed by an event that the streams of whoever waits are made to wait for.
"""
import contextlib
import functools
from typing import Callable, Iterable, Iterator, Sequence, Tuple

import torch

Pairs = Iterable[Tuple[torch.Tensor, torch.Tensor]]  # (to, from)


@functools.lru_cache(maxsize=None)
def copy_stream(device: torch.device) -> "torch.cuda.Stream":
    return torch.cuda.Stream(device=device)


def wait_for_caller(device: torch.device) -> None:
    """Copies that start from now on come behind what the caller's stream has been given so far."""
    copy_stream(device).wait_stream(torch.cuda.current_stream(device))


def to_host(device: torch.device, pairs: Pairs) -> Callable[[], None]:
    """Starts the copies; returns what blocks until they are there."""
    stream = copy_stream(device)
    wait_for_caller(device)
    with torch.cuda.stream(stream):
        for host, tensor in pairs:
            host.copy_(tensor, non_blocking=True)
            tensor.record_stream(stream)
        done = stream.record_event()
    return done.synchronize


def to_device(device: torch.device, pairs: Pairs) -> "torch.cuda.Event":
    """Starts the copies; returns the event behind them."""
    stream = copy_stream(device)
    with torch.cuda.stream(stream):
        for tensor, host in pairs:
            tensor.copy_(host, non_blocking=True)
            tensor.record_stream(stream)
        return stream.record_event()


def let_current_stream_wait(device: torch.device, event: "torch.cuda.Event") -> None:
    torch.cuda.current_stream(device).wait_event(event)


@contextlib.contextmanager
def on_copy_streams(devices: Sequence[torch.device]) -> Iterator[None]:
    """Within it, the devices' copy streams are the current ones."""
    with contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.cuda.stream(copy_stream(device)))
        yield
