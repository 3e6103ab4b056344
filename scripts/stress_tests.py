#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the quick tests again and again on a busy machine, and lists those that failed or became slow.

  scripts/stress_tests.py [--runs 10] [--busy 2] [-- CTEST ARGUMENTS]

First comes one run on the machine as it is. Then, while so many busy loops and one disk writer are at work, come the
others. A test is listed when it failed in any run, or took more than thrice the time of the first run and a second
more. `./test.sh` must have built the tests. The exit code is 1 when a test failed.
"""
import argparse
import contextlib
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
SLOW_TIMES = 3
SLOW_SECONDS = 1.0  # less is the start of a process
BUSY = "while True: pass"
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
    processes = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_tests(results, arguments):
    """{test: (outcome, seconds)} of one run, and how long all of it took."""
    script = f'source "{ROOT}/scripts/common.sh"; run_tests "$@" "${{quick_tier[@]}}"'
    began = time.monotonic()
    subprocess.run(["bash", "-c", script, "run_tests", str(results), *arguments],
                   check=False, stdout=subprocess.DEVNULL)
    took = time.monotonic() - began
    cases = ElementTree.parse(results).getroot().iter("testcase")
    return {case.get("name"): (case.get("status"), float(case.get("time") or 0)) for case in cases}, took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="on the busy machine")
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside the disk writer")
    parser.add_argument("arguments", nargs="*", help="behind --: for ctest, such as -R ranks")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        quiet, took = run_tests(pathlib.Path(folder, "quiet.xml"), options.arguments)
        failed += report("quiet", quiet, quiet, took)
        with load(options.busy, folder):
            for number in range(1, options.runs + 1):
                run, took = run_tests(pathlib.Path(folder, f"{number}.xml"), options.arguments)
                failed += report(f"busy {number}", run, quiet, took)
    print(f"{failed} failures in {options.runs + 1} runs")
    return 1 if failed else 0


def report(name, run, quiet, took):
    """Prints a run's line and what is wrong with it; returns how many tests failed."""
    broken = [test for test, (status, _) in run.items() if status == "fail"]
    print(f"{name}: {len(run) - len(broken)} passed or skipped, {len(broken)} failed, {took:.0f} s", flush=True)
    for test in broken:
        print(f"  failed: {test}", flush=True)
    for test, (_, seconds) in sorted(run.items(), key=lambda item: -item[1][1]):
        before = quiet.get(test, ("", 0.0))[1]
        if seconds > SLOW_TIMES * before + SLOW_SECONDS:
            print(f"  slow: {test} took {seconds:.1f} s, {before:.1f} s when quiet", flush=True)
    return len(broken)


if __name__ == "__main__":
    sys.exit(main())
