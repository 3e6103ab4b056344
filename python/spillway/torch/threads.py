# SPDX-License-Identifier: Apache-2.0
"""The package's own threads, so that the library's threads never wait for the interpreter's lock.

Waiters wait for operations. A job gets an idle thread or a new one, so a waiting job never blocks another. There are
at most MAX_THREADS; further jobs wait for a free one. The threads end with the process.

SubmissionOrder: operations of one communicator reach the library in call order, even if some must first wait for
values from a device. An operation that is ready, with none before it still waiting, begins in its caller's thread.
All others queue, and one thread begins them in turn.
"""
import collections
import os
import queue
import threading
from typing import Callable, Deque, Optional, Tuple

MAX_THREADS = 512


class Waiters:
    def __init__(self) -> None:
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)  # a child has none of its parent's threads

    def _begin_anew(self) -> None:
        self._jobs: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._threads = 0

    def run(self, job: Callable[[], None]) -> None:
        """`job` must not raise."""
        self._jobs.put(job)
        if self._idle.acquire(blocking=False):
            return
        with self._lock:
            if self._threads < MAX_THREADS:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"spillway-wait-{self._threads}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._jobs.get()()
            self._idle.release()


waiters = Waiters()

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
