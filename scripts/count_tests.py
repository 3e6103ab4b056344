#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints `N passed, M failed` for a JUnit file written by ctest, after a line for each skipped test.

A GoogleTest program counts with each of its tests, which it lists in unit_tests/NAME.xml of the build folder. A test
that could not be started counts as failed, and so does a program that ended without a list. A test that skipped
itself or is disabled counts as neither. Exits with 1 if a test failed or none passed.
"""

import collections
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

Test = collections.namedtuple("Test", "name outcome seconds")  # outcome: passed, failed or skipped


def read_tests(results, unit_results):
    """Every test of ctest's JUnit file; tests of GoogleTest programs come from their own files in `unit_results`."""
    tests = []
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        name, outcome = case.get("name"), classify(case)
        listed = pathlib.Path(unit_results, f"{name}.xml")
        units = read_unit_tests(listed) if listed.exists() else []
        tests += units
        # A crashed program has failed, although none of its tests says so.
        if not units or (outcome == "failed" and all(unit.outcome != "failed" for unit in units)):
            tests.append(Test(name, outcome, float(case.get("time") or 0)))
    return tests


def classify(case):
    """The outcome of a <testcase> of ctest."""
    status = case.get("status")
    if status == "run":
        return "passed"
    if status == "disabled":
        return "skipped"
    # ctest writes "notrun" both for a test that skipped itself and for one it could not start.
    skipped = case.find("skipped")
    if skipped is not None and skipped.get("message", "").startswith("SKIP_"):
        return "skipped"
    return "failed"


def read_unit_tests(listed):
    tests = []
    for case in ElementTree.parse(listed).getroot().iter("testcase"):
        if case.find("failure") is not None:
            outcome = "failed"
        else:
            outcome = {"completed": "passed"}.get(case.get("result"), "skipped")
        name = f"{listed.stem}: {case.get('classname')}.{case.get('name')}"
        tests.append(Test(name, outcome, float(case.get("time"))))
    return tests


def main():
    results = pathlib.Path(sys.argv[1])
    tests = read_tests(results, results.parent / "unit_tests")
    for test in tests:
        if test.outcome == "skipped":
            print(f"skipped: {test.name}")
    counts = collections.Counter(test.outcome for test in tests)
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 0 if counts["passed"] > 0 and counts["failed"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
