# SPDX-License-Identifier: Apache-2.0
"""Waiting in tests: for conditions, never for durations. A limit only ends a hung test, and grows with how slow this
machine is right now (slowdown.h). ctest names the program that measures it in SPILLWAY_TEST_SLOWDOWN.
"""
import os
import subprocess
import threading
import time

HANGS_S = 60  # ample on a quiet machine for anything that a test waits for
LOOKS_EVERY_S = 0.01
MEASUREMENTS = 5  # before a test fails: a single one may hit a quiet moment


def slowdown():
    """At least 1. Without ctest's variable, as when a test is run by hand: 1."""
    program = os.environ.get("SPILLWAY_TEST_SLOWDOWN")
    if not program:
        return 1.0
    return float(subprocess.run([program], capture_output=True, text=True, check=True).stdout)


def patience(quiet_seconds=HANGS_S):
    """The limit, in seconds, of a wait for which `quiet_seconds` are ample on a quiet machine."""
    return quiet_seconds * slowdown()


class Limit:
    """The end of a wait. The machine's speed is measured only after the quiet machine's limit."""

    def __init__(self, quiet_seconds=HANGS_S):
        self.quiet_seconds = quiet_seconds
        self.began = time.monotonic()
        self.end = self.began + quiet_seconds

    def left(self):
        """Seconds until the limit; 0 once it is over for good."""
        if time.monotonic() >= self.end:
            slowest = max(slowdown() for _ in range(MEASUREMENTS))
            self.end = max(self.end, self.began + self.quiet_seconds * slowest)
        return max(0.0, self.end - time.monotonic())


def wait_until(condition, what, quiet_seconds=HANGS_S):
    """Returns the first true value of condition(). Fails at the limit, and says that `what` did not come."""
    limit = Limit(quiet_seconds)
    while not (value := condition()):
        if limit.left() == 0:
            raise AssertionError(f"{what}: not in {quiet_seconds:g} s of a quiet machine")
        time.sleep(LOOKS_EVERY_S)
    return value


class StallWatch:
    """Records how long this process did not get a processor. A stalled machine is not the fault of a silent peer."""

    PERIOD_S = 0.01

    def __enter__(self):
        self.longest_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _watch(self):
        before = time.monotonic()
        while not self._over.wait(self.PERIOD_S):
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - before - self.PERIOD_S)
            before = now
