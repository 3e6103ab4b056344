# SPDX-License-Identifier: Apache-2.0
"""Selects the tests of a file to run: those of the quick tier, of the long one or, if run by hand, all of them.

A file with tests of both tiers marks the long ones, @long_tier, and ends in `unittest.main(testLoader=TierLoader())`.
ctest starts it once for each tier (BOTH_TIERS in tests/CMakeLists.txt) and names the tier in TEST_TIER.
"""
import os
import unittest


def long_tier(test):
    """Marks a test, or all tests of a class."""
    test.is_long = True
    return test


class TierLoader(unittest.TestLoader):
    def getTestCaseNames(self, case):
        tier = os.environ.get("TEST_TIER")
        names = super().getTestCaseNames(case)
        if tier is None:
            return names
        return [name for name in names if self.is_long(case, name) == (tier == "long")]

    @staticmethod
    def is_long(case, name):
        return getattr(case, "is_long", False) or getattr(getattr(case, name), "is_long", False)
