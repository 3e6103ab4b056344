#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The urgency of all-reduces in a backward pass. Separate from the tests with ranks: those are forked, which torch 2
does not allow once this process has run a backward pass.

    tests/python/backward_order_test.py LIBRARY [unittest's arguments]

Skips without torch: exit code 77.
"""
import unittest
from unittest import mock

from torch_ranks import prepare

prepare()

import torch

from spillway.torch import backward
from spillway.torch.backward import priority_of


class BackwardOrder(unittest.TestCase):
    def priorities(self, order, calls):
        """Priorities of so many calls in one backward pass."""
        said = []
        tensor = torch.ones(1, requires_grad=True)
        tensor.register_hook(lambda _: said.extend(priority_of(*order.next_place()) for _ in range(calls)))
        tensor.sum().backward()
        return said

    def test_what_comes_later_in_a_backward_pass_is_more_urgent(self):
        order = backward.BackwardOrder()
        self.priorities(order, 3)
        self.assertEqual(self.priorities(order, 3), [0, 3, 7])
        self.assertEqual(self.priorities(order, 3), [0, 3, 7])

    def test_outside_of_one_there_is_no_order(self):
        self.assertIsNone(backward.BackwardOrder().next_place())

    def test_a_pass_that_failed_does_not_disturb_for_ever(self):
        order = backward.BackwardOrder()
        with mock.patch.object(backward, "before_backward_ends", lambda callback: True):
            order.next_place()  # its pass never ends
        self.priorities(order, 2)
        self.priorities(order, 2)
        self.assertEqual(self.priorities(order, 2), [0, 7])


if __name__ == "__main__":
    unittest.main()
