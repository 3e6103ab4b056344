#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch backend and the DDP hook with tensors of a CUDA device; cuda_scenarios.py has the ranks' code.

    tests/python/cuda_test.py LIBRARY [unittest's arguments]

Skips without torch, or without such a device: exit code 77.
"""
import os
import sys
import unittest

from torch_ranks import SKIPPED, add_tests, prepare

WORLD = 3

prepare()

import torch

# Asking torch itself would start CUDA in this process, which forks the ranks.
if torch.version.cuda is None or not os.path.exists("/dev/nvidiactl"):
    print("skipped: there is no CUDA device")
    sys.exit(SKIPPED)


class Cuda(unittest.TestCase):
    pass


add_tests(Cuda, "cuda_scenarios", WORLD)

if __name__ == "__main__":
    unittest.main()
