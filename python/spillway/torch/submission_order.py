# SPDX-License-Identifier: Apache-2.0
"""Operations of one communicator reach the library in the order in which they were called, also where some
must wait for values to arrive from a device first.

An operation that is ready, with none before it still waiting, begins in its caller's thread. All others
queue, and one thread begins them in turn.
"""
import collections
import threading
from typing import Callable, Deque, Optional, Tuple

from .waiters import waiters

Ready = Optional[Callable[[], None]]  # blocks until the operation may begin; None: it may


class SubmissionOrder:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: Deque[Tuple[Ready, Callable[[], None]]] = collections.deque()

    def submit(self, ready: Ready, begin: Callable[[], None]) -> None:
        """`begin` must not raise."""
        with self._lock:
            if ready is None and not self._queue:
                begin()
                return
            self._queue.append((ready, begin))
            if len(self._queue) == 1:
                waiters.run(self._begin_all)

    def _begin_all(self) -> None:
        while True:
            ready, begin = self._queue[0]
            if ready is not None:
                ready()
            begin()
            with self._lock:
                self._queue.popleft()
                if not self._queue:
                    return
