#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 with shard(), with four ranks. shard_scenarios.py has the ranks' code.

    tests/python/shard_test.py LIBRARY [unittest's arguments]

Skips without torch: exit code 77. Debian 12's torch has no FSDP2: run it with a newer one's Python to see the ranks.
"""
import unittest

from torch_ranks import add_tests, prepare

prepare()

import spillway.torch
from spillway.torch.sharded_model import fsdp_module

try:
    fsdp_module()
    WHY_NOT = ""
except RuntimeError as error:
    WHY_NOT = str(error)


class WithoutFsdp2(unittest.TestCase):
    @unittest.skipUnless(WHY_NOT, "this torch has FSDP2")
    def test_one_sentence_says_what_to_do(self):
        with self.assertRaisesRegex(RuntimeError, "needs FSDP2 .* install a newer torch, or set SPILLWAY_CODEC"):
            spillway.torch.shard(spillway.torch.torch.nn.Linear(2, 2))


@unittest.skipIf(WHY_NOT, WHY_NOT)
class FourRanks(unittest.TestCase):
    pass


add_tests(FourRanks, "shard_scenarios", 4)

if __name__ == "__main__":
    unittest.main()
