#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training whose next forward pass overlaps with gradients, with two and four ranks. overlap_scenarios.py has the
ranks' code.

    tests/python/overlap_test.py LIBRARY [unittest's arguments]

Skips without torch: exit code 77.
"""
import unittest

from torch_ranks import add_tests, prepare

from harness.tiers import TierLoader, long_tier

prepare()


class TwoRanks(unittest.TestCase):
    pass


@long_tier
class FourRanks(unittest.TestCase):
    pass


add_tests(TwoRanks, "overlap_scenarios", 2)
add_tests(FourRanks, "overlap_scenarios", 4)

if __name__ == "__main__":
    unittest.main(testLoader=TierLoader())
