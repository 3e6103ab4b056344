# SPDX-License-Identifier: Apache-2.0
"""Copies between a CUDA device and pinned host memory, on a separate stream.

A copy to the host waits, on the device, for the work that the caller's stream has so far; the caller's thread goes
on. A copy back records an event, and the streams of all waiters are made to wait for it.
"""
import contextlib
import functools
from typing import Iterable, Iterator, Sequence, Tuple

import torch

Pairs = Iterable[Tuple[torch.Tensor, torch.Tensor]]  # (to, from)


class Copy:
    """Started copies; `end` is the event behind them."""

    def __init__(self, stream: "torch.cuda.Stream", pairs: Pairs) -> None:
        self._begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            self._begin.record(stream)
            for to, source in pairs:
                to.copy_(source, non_blocking=True)
                for tensor in (to, source):
                    if tensor.device.type == "cuda":
                        tensor.record_stream(stream)
            self.end.record(stream)

    def wait(self) -> None:
        self.end.synchronize()

    def seconds(self) -> float:
        """Duration by the device's clock; waits for the end."""
        self.end.synchronize()
        return self._begin.elapsed_time(self.end) / 1e3


@functools.lru_cache(maxsize=None)
def copy_stream(device: torch.device) -> "torch.cuda.Stream":
    return torch.cuda.Stream(device=device)


def wait_for_caller(device: torch.device) -> None:
    """Orders later copies behind the work that the caller's stream has so far."""
    copy_stream(device).wait_stream(torch.cuda.current_stream(device))


def to_host(device: torch.device, pairs: Pairs) -> Copy:
    """Copies behind the work that the caller's stream has so far."""
    wait_for_caller(device)
    return Copy(copy_stream(device), pairs)


def to_device(device: torch.device, pairs: Pairs) -> Copy:
    return Copy(copy_stream(device), pairs)


def let_current_stream_wait(device: torch.device, event: "torch.cuda.Event") -> None:
    torch.cuda.current_stream(device).wait_event(event)


@contextlib.contextmanager
def on_copy_streams(devices: Sequence[torch.device]) -> Iterator[None]:
    """Makes the devices' copy streams the current ones."""
    with contextlib.ExitStack() as stack:
        for device in devices:
            stack.enter_context(torch.cuda.stream(copy_stream(device)))
        yield
