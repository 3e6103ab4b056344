#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the quick tests repeatedly on a busy machine, and lists those that failed or became slow.

  scripts/stress_tests.py [--runs 10] [--busy 2] [-- CTEST ARGUMENTS]

The first run has the machine as it is. The others share it with `--busy` busy loops and one disk writer. A test is
listed if it failed in any run, or took more than a second plus three times its first run. Output goes to
build/release/stress. `./test.sh` must have built the tests. The exit code is 1 if a test failed.
"""
import argparse
import contextlib
import ctypes
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import count_tests

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "release" / "stress"
SLOW_TIMES = 3
SLOW_SECONDS = 1.0  # less is only process start
BUSY = "while True: pass"
PR_SET_PDEATHSIG = 1
# Rewrites one file, through to the disk, until it is killed.
DISK_WRITER = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        for _ in range(64):
            file.write(bytes(1 << 20))
        os.fsync(file.fileno())
"""


@contextlib.contextmanager
def load(busy_loops, folder):
    commands = [[sys.executable, "-c", BUSY]] * busy_loops
    commands.append([sys.executable, "-c", DISK_WRITER, str(pathlib.Path(folder, "written"))])
    libc, parent = ctypes.CDLL(None), os.getpid()

    def end_with_parent():
        """However this script ends, the kernel ends its load."""
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)

    processes = [subprocess.Popen(command, preexec_fn=end_with_parent) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def say_if_others_test():
    """run_tests waits for other runs, but says so in the log only."""
    with open(ROOT / "build" / "release" / ".testing", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another run of the tests of build/release to end", flush=True)


def run_tests(name, arguments):
    """Returns {name: test} of one run, and its total duration."""
    results, units = LOGS / f"{name}.xml", LOGS / f"{name}.units"
    # The unit tests' results are copied while this shell has the lock of run_tests: the next run removes them.
    script = (f'source "{ROOT}/scripts/common.sh"; run_tests "$@" "${{quick_tier[@]}}"; '
              f'rm -rf "{units}"; [[ ! -e $root/build/release/unit_tests ]] || '
              f'cp -r "$root/build/release/unit_tests" "{units}"')
    say_if_others_test()
    began = time.monotonic()
    with open(LOGS / f"{name}.log", "w", encoding="utf-8") as log:
        subprocess.run(["bash", "-c", script, "run_tests", str(results), *arguments],
                       check=False, stdout=log, stderr=subprocess.STDOUT)
    took = time.monotonic() - began
    tests = count_tests.read_tests(results, units)
    return {test.name: test for test in tests}, took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="on the busy machine")
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside the disk writer")
    parser.add_argument("arguments", nargs="*", help="behind --: for ctest, such as -R ranks")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the load ends, too
    LOGS.mkdir(parents=True, exist_ok=True)
    quiet, took = run_tests("quiet", options.arguments)
    failed = report("quiet", quiet, quiet, took)
    with tempfile.TemporaryDirectory() as folder, load(options.busy, folder):
        for number in range(1, options.runs + 1):
            name = f"busy-{number}"
            run, took = run_tests(name, options.arguments)
            failed += report(name, run, quiet, took)
    print(f"{failed} failures in {options.runs + 1} runs")
    return 1 if failed else 0


def report(name, run, quiet, took):
    """Prints a run's line and its problems; returns the number of failed tests."""
    broken = [test.name for test in run.values() if test.outcome == "failed"]
    print(f"{name}: {len(run) - len(broken)} passed or skipped, {len(broken)} failed, {took:.0f} s", flush=True)
    for test in broken:
        print(f"  failed: {test}", flush=True)
    for test in sorted(run.values(), key=lambda test: -test.seconds):
        before = quiet[test.name].seconds if test.name in quiet else 0.0
        if test.seconds > SLOW_TIMES * before + SLOW_SECONDS:
            print(f"  slow: {test.name} took {test.seconds:.1f} s, {before:.1f} s when quiet", flush=True)
    return len(broken)


if __name__ == "__main__":
    sys.exit(main())
