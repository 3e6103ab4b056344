# SPDX-License-Identifier: Apache-2.0
"""Threads that wait for operations, so that the library's own never wait for the interpreter's lock.

A job gets a thread that is idle, or a new one: a job that waits, also for another job, holds up none. At
most MOST_THREADS; what comes beyond them waits for one to be free. The threads end with the process.
"""
import os
import queue
import threading
from typing import Callable

MOST_THREADS = 512


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
            if self._threads < MOST_THREADS:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"spillway-wait-{self._threads}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._jobs.get()()
            self._idle.release()


waiters = Waiters()
