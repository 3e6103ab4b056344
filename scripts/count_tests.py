#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints `N passed, M failed` for a JUnit file written by ctest, after a line for each skipped test.

Exits with 1 when a test failed or none passed. A test that could not be started counts as failed;
one that skipped itself or is disabled counts as neither.
"""

import sys
import xml.etree.ElementTree as ElementTree


def classify(case):
    """`passed`, `failed` or `skipped`, for a <testcase>."""
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


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        outcome = classify(case)
        counts[outcome] += 1
        if outcome == "skipped":
            print(f"skipped: {case.get('name')}")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 0 if counts["passed"] > 0 and counts["failed"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
