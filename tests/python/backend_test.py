#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The features that torch offers its own backends, with three ranks, without and with torch's DETAIL debug mode.

    tests/python/backend_test.py LIBRARY [unittest's arguments]

Skips without torch: exit code 77.
"""
import os
import unittest

from torch_ranks import add_tests, prepare

WORLD = 3

prepare()

import torch.distributed as dist

from spillway.torch.process_group import takes_backends


class Backend(unittest.TestCase):
    pass


@unittest.skipUnless(takes_backends(), "torch's debug mode wraps backends, and this release takes whole groups")
class DebuggedBackend(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()

    @classmethod
    def tearDownClass(cls):
        del os.environ["TORCH_DISTRIBUTED_DEBUG"]
        dist.set_debug_level_from_env()


add_tests(Backend, "backend_scenarios", WORLD)
add_tests(DebuggedBackend, "backend_scenarios", WORLD)

if __name__ == "__main__":
    unittest.main()
