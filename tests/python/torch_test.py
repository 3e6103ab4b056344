#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch backend, exact and tolerant, and the DDP hook, with three ranks. *_scenarios.py say what they do.

    tests/python/torch_test.py LIBRARY [unittest's arguments]

Without torch it skips: exit code 77.
"""
import os
import unittest
from unittest import mock

from torch_ranks import add_tests, prepare

WORLD = 3

prepare()

from spillway import abi
from spillway.torch.buckets import BucketNames
from spillway.torch.codecs import code_fields, exact_algorithm
from spillway.torch.layers import LayerPolicy, expendable_share, priority_of
from spillway.torch.mode import layers_from_environment, mode_from_environment


class Buckets(unittest.TestCase):
    def test_other_parameters_are_another_tensor(self):
        parameters = [object() for _ in range(6)]
        names = BucketNames(parameters, 0)
        whole, front, back = (names.feedback_tensor(some) for some in (parameters, parameters[:2], parameters[2:]))
        self.assertEqual(len({0, whole, front, back, BucketNames(parameters, 1).feedback_tensor(parameters)}), 5)
        self.assertEqual(whole, BucketNames(parameters, 0).feedback_tensor(parameters))

    def test_the_front_of_the_model_goes_first(self):
        self.assertEqual([priority_of(index, 3) for index in range(3)], [0, 3, 7])
        self.assertEqual([priority_of(index, 20) for index in (0, 19)], [0, 7])
        self.assertEqual(priority_of(0, 1), 7)


class Layers(unittest.TestCase):
    def options(self, policy, index, calls, **fields):
        options = abi.default_library().tolerant_options(loss_bound=0.1, **fields)
        policy.apply(options, index, calls)
        return options.priority, options.expendable_ppm

    def test_the_front_is_urgent_and_may_lose_more_than_the_back(self):
        self.assertEqual([self.options(LayerPolicy(), index, 3) for index in range(3)],
                         [(0, 40_000), (3, 70_000), (7, 100_000)])
        self.assertEqual((expendable_share(0, 1), expendable_share(0, 0)), (1.0, 1.0))

    def test_what_is_said_goes_before(self):
        self.assertEqual([self.options(LayerPolicy(5), index, 3, expendable=0.02) for index in (0, 2)], [(5, 20_000)] * 2)

    def test_exact_ones_lose_nothing_and_are_urgent_all_the_same(self):
        options = abi.default_library().options()
        LayerPolicy().apply(options, 1, 2)
        self.assertEqual((options.priority, options.expendable_ppm), (7, abi.EXPENDABLE_AS_LOST))

    def test_variables_say_so_for_all_layers(self):
        with mock.patch.dict(os.environ, {"SPILLWAY_PRIORITY": "2"}):
            self.assertEqual(self.options(layers_from_environment(), 2, 3)[0], 2)
        self.assertEqual(self.options(layers_from_environment(), 2, 3)[0], 7)


def mode_with(variables):
    with mock.patch.dict(os.environ, variables):
        return mode_from_environment()


class Modes(unittest.TestCase):
    def test_exact_unless_it_is_asked_for(self):
        for environment in ({}, {"SPILLWAY_MODE": ""}, {"SPILLWAY_MODE": "exact", "SPILLWAY_PRECISION": "12"}):
            self.assertIsNone(mode_with(environment))

    def test_tolerant_has_defaults(self):
        mode = mode_with({"SPILLWAY_MODE": "tolerant"})
        self.assertEqual(mode.least_bytes, 65536)
        options = mode.options()
        self.assertEqual((options.tolerant, options.precision, options.gather_precision, options.loss_bound_ppm,
                          options.least_contributors, options.feedback_tensor), (1, 5, 5, 10_000, 0.0, 0))
        self.assertEqual((options.importance, options.expendable_ppm), (abi.IMPORTANCE_BY_ENERGY, abi.EXPENDABLE_AS_LOST))

    def test_variables_say_how_tolerant(self):
        options = mode_with({"SPILLWAY_MODE": "tolerant", "SPILLWAY_PRECISION": "12", "SPILLWAY_LOSS_BOUND": "0",
                             "SPILLWAY_LEAST_CONTRIBUTORS": "0.75"}).options()
        self.assertEqual((options.precision, options.gather_precision, options.loss_bound_ppm, options.least_contributors),
                         (12, 12, 0, 0.75))
        options = mode_with({"SPILLWAY_MODE": "tolerant", "SPILLWAY_GATHER_PRECISION": "16"}).options()
        self.assertEqual((options.precision, options.gather_precision), (5, 16))
        options = mode_with({"SPILLWAY_MODE": "tolerant", "SPILLWAY_IMPORTANCE": "4", "SPILLWAY_EXPENDABLE": "0.2"}).options()
        self.assertEqual((options.importance, options.expendable_ppm), (4, 200_000))

    def test_a_bad_value_is_named_with_what_is_allowed(self):
        for name, value, allowed in [("SPILLWAY_MODE", "lossy", "exact or tolerant"),
                                     ("SPILLWAY_PRECISION", "33", "from 1 to 32"),
                                     ("SPILLWAY_GATHER_PRECISION", "x", "from 1 to 32"),
                                     ("SPILLWAY_LOSS_BOUND", "1%", "from 0 to 1"),
                                     ("SPILLWAY_LOSS_BOUND", "nan", "from 0 to 1"),
                                     ("SPILLWAY_IMPORTANCE", "8", "energy, 0, 1, 2, 3, 4, 5, 6 or 7"),
                                     ("SPILLWAY_EXPENDABLE", "1.5", "from 0 to 1"),
                                     ("SPILLWAY_LEAST_CONTRIBUTORS", "-0.1", "from 0 to 1"),
                                     ("SPILLWAY_TOLERANT_BYTES", "64k", "a whole number, 0 or more")]:
            with self.assertRaisesRegex(ValueError, f"^{name} is '{value}': it must be .*{allowed}"):
                mode_with({name: value})


    def test_a_codec_has_a_precision_of_its_own(self):
        def fields_with(**variables):
            options = mode_with({"SPILLWAY_MODE": "tolerant", **variables}).options()
            return abi.CODES[options.code], options.precision, options.algorithm

        self.assertEqual(fields_with(), ("planes", 5, 0))
        self.assertEqual(fields_with(SPILLWAY_CODEC="thc"), ("thc", 4, 0))
        self.assertEqual(fields_with(SPILLWAY_CODEC="THC", SPILLWAY_PRECISION="2"), ("thc", 2, 0))
        self.assertEqual(fields_with(SPILLWAY_CODEC="blocks")[0], "blocks")
        self.assertEqual(fields_with(SPILLWAY_CODEC="coded"), ("coded", 8, 0))
        self.assertEqual(fields_with(SPILLWAY_CODEC="sketch"), ("sketch", 8, 0))
        with self.assertRaisesRegex(ValueError, "coded numbers arrive whole"):
            fields_with(SPILLWAY_CODEC="coded", SPILLWAY_LOSS_BOUND="0.02")
        with self.assertRaisesRegex(ValueError, "precision 5 is not one of thc's, which are 2, 3, 4 and 8"):
            fields_with(SPILLWAY_CODEC="thc", SPILLWAY_PRECISION="5")
        with self.assertRaisesRegex(ValueError, "^SPILLWAY_CODEC is 'zip': it must be planes, thc, blocks, coded, sketch or auto"):
            mode_with({"SPILLWAY_CODEC": "zip"})


class Codecs(unittest.TestCase):
    def fields(self, codec, precision=None, algorithm="automatic", scale="exact", error_feedback=True):
        return code_fields(codec, precision, algorithm, scale, error_feedback)

    def test_codes_and_algorithms_are_the_librarys(self):
        self.assertEqual(self.fields("thc", algorithm="switch", scale="predicted"),
                         {"code": 1, "precision": 4, "algorithm": 6, "predicts_scale": 1})
        self.assertEqual(self.fields("blocks", 8), {"code": 2, "precision": 8, "algorithm": 0, "predicts_scale": 0})
        self.assertEqual(self.fields("coded", algorithm="ring", scale="predicted"),
                         {"code": 3, "precision": 8, "algorithm": 2, "predicts_scale": 1})
        self.assertEqual(self.fields("sketch", scale="predicted"),
                         {"code": 4, "precision": 8, "algorithm": 0, "predicts_scale": 1})
        self.assertEqual(self.fields("exact", algorithm="ring")["algorithm"], 2)
        self.assertEqual((exact_algorithm("ring"), exact_algorithm("switch")), (2, 0))

    def test_what_does_not_go_together_is_said(self):
        for words, arguments in [("a switch cannot add what is coded as 'planes'", ("planes", None, "switch")),
                                 ("a switch cannot add what is coded as 'exact'", ("exact", None, "switch")),
                                 ("codec 'planes' needs no scale", ("planes", None, "automatic", "predicted")),
                                 ("leave error_feedback on", ("thc", None, "automatic", "predicted", False)),
                                 ("leave error_feedback on", ("sketch", None, "automatic", "exact", False)),
                                 ("scale is 'old'; there are 'exact', 'predicted'", ("thc", 4, "switch", "old"))]:
            with self.assertRaisesRegex(ValueError, words):
                self.fields(*arguments)


class Tags(unittest.TestCase):
    def test_the_largest_is_the_librarys(self):
        library = abi.default_library()
        for tag, status in ((abi.MAX_TAG, 0), (abi.MAX_TAG + 1, 1)):
            if tag < 2**32:
                options = library.options()
                options.tag = tag
                self.assertEqual(library.lib.spillway_operation_options_check(options), status)


class Collectives(unittest.TestCase):
    pass


class Ddp(unittest.TestCase):
    pass


class Tolerant(unittest.TestCase):
    pass


class Switch(unittest.TestCase):
    pass


add_tests(Collectives, "collective_scenarios", WORLD)
add_tests(Ddp, "ddp_scenarios", WORLD)
add_tests(Tolerant, "tolerant_scenarios", WORLD)
add_tests(Switch, "switch_scenarios", WORLD)

if __name__ == "__main__":
    unittest.main()
