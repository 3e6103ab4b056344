# SPDX-License-Identifier: Apache-2.0
"""Waiting in tests: for conditions, never for durations. A limit only ends a hung test, and grows with how slow this
machine is right now (slowdown.h). ctest names the program that measures it in TEST_SLOWDOWN.
"""
import glob
import os
import pathlib
import subprocess
import threading
import time

HANGS_S = 60  # ample on a quiet machine for anything that a test waits for
LOOKS_EVERY_S = 0.01
MEASUREMENTS = 5  # before a test fails: a single one may hit a quiet moment


def slowdown():
    """At least 1. Without ctest's variable, as when a test is run by hand: 1."""
    program = os.environ.get("TEST_SLOWDOWN")
    if not program:
        return 1.0
    return float(subprocess.run([program], capture_output=True, text=True, check=True).stdout)


def slowest():
    """The largest of several measurements of slowdown()."""
    return max(slowdown() for _ in range(MEASUREMENTS))


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
            self.end = max(self.end, self.began + self.quiet_seconds * slowest())
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
    """Records for how long this process, or one that watch() was told of, did not get a processor. A rank that had none
    is silent without a fault. Load may have gone when a failed test looks for it, so this looks all the time.
    """

    PERIOD_S = 0.02

    def __init__(self):
        self.longest_s = 0.0
        self._processes = ()
        self._waited_s = {}  # by thread, in all

    def watch(self, processes):
        """Also looks at the threads of these processes from now on."""
        self._processes = [process.pid for process in processes]

    def __enter__(self):
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
            self._look_at_others(now - before)
            before = now

    def _look_at_others(self, since_s):
        """The kernel counts a wait when it ends. Waiting time beyond the time since the last look is of one
        long wait; a thread that merely shares its processor has waited for less than that time."""
        for process in self._processes:
            for thread in glob.glob(f"/proc/{process}/task/*/schedstat"):
                try:
                    waited_s = int(pathlib.Path(thread).read_text(encoding="ascii").split()[1]) / 1e9
                except (OSError, IndexError):  # it has ended meanwhile, or this kernel does not count
                    continue
                stalled_s = waited_s - self._waited_s.get(thread, waited_s) - since_s
                self._waited_s[thread] = waited_s
                self.longest_s = max(self.longest_s, stalled_s)
