#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PyTorch backend, exact and tolerant, and the DDP hook, with three ranks. *_scenarios.py have the ranks' code.

    tests/python/torch_test.py LIBRARY [unittest's arguments]

Skips without torch: exit code 77.
"""
import ctypes
import os
import unittest
from unittest import mock

from torch_ranks import add_tests, prepare

WORLD = 3

prepare()

import torch

from spillway import abi
from spillway.communicator import Communicator
from spillway.job import Job
from spillway.torch.backend_codec import LEAST_BYTES, codec_from_environment
from spillway.torch.backward import LayerPolicy, expendable_share, priority_of
from spillway.torch.codecs import Blocks, Entropy, Levels, Planes, Sketch
from spillway.torch.ddp_hook import BucketNames


class Arguments(unittest.TestCase):
    """A communicator of one rank: refused arguments leave it unchanged."""

    def setUp(self):
        self.comm = Communicator(abi.default_library().unique_id(), rank=0, world=1)
        self.addCleanup(self.comm.close)

    def refused(self, error, says, operation, *arguments):
        with self.assertRaisesRegex(error, f"^{operation}{says}"):
            self.comm.run(operation, *arguments)
        self.comm.check_health()

    def test_only_memory_is_taken_for_memory(self):
        memory = (ctypes.c_float * 4)()
        for fit in (memory, ctypes.addressof(memory), ctypes.pointer(memory), ctypes.byref(memory)):
            self.comm.run("all_reduce", fit, memory, 4, abi.FLOAT32, abi.SUM)
        self.comm.run("all_reduce", None, None, 0, abi.FLOAT32, abi.SUM)
        for number, arguments in ((1, ("text", memory, 4, abi.FLOAT32, abi.SUM)),
                                  (2, (memory, b"bytes", 4, abi.FLOAT32, abi.SUM)),
                                  (2, (memory, [0.0] * 4, 4, abi.FLOAT32, abi.SUM)),
                                  (2, (memory, True, 4, abi.FLOAT32, abi.SUM)),
                                  (3, (memory, memory, -1, abi.FLOAT32, abi.SUM)),
                                  (3, (memory, memory, 4.0, abi.FLOAT32, abi.SUM))):
            self.refused(TypeError, f": argument {number} is ", "all_reduce", *arguments)

    def test_an_operation_that_does_not_exist_is_named(self):
        with self.assertRaisesRegex(ValueError, "there is no operation 'all_reduced'; there are all_reduce, "):
            self.comm.run("all_reduced")

    def test_too_few_and_too_many_arguments_are_counted(self):
        memory = (ctypes.c_float * 4)()
        self.refused(TypeError, " takes 5 arguments, not 4", "all_reduce", memory, memory, 4, abi.FLOAT32)
        self.refused(TypeError, " takes 5 arguments, not 6", "all_reduce", memory, memory, 4, abi.FLOAT32, abi.SUM, 0)
        self.refused(TypeError, " takes 0 arguments, not 1", "barrier", 1)

    def test_numbers_that_ctypes_would_cut_are_named(self):
        memory = (ctypes.c_float * 4)()
        for number, arguments in ((3, (memory, memory, 2**64, abi.FLOAT32, abi.SUM)),
                                  (4, (memory, memory, 4, 2**32, abi.SUM)),
                                  (5, (memory, memory, 4, abi.FLOAT32, 2**31))):
            self.refused(ValueError, f": argument {number} is ", "all_reduce", *arguments)
        self.refused(ValueError, ": argument 5 is 4294967296", "broadcast", memory, memory, 4, abi.FLOAT32, 2**32)

    def test_arrays_that_are_too_short_are_named(self):
        short, long = (ctypes.c_float * 3)(), (ctypes.c_float * 4)()
        says = ": argument {} is an array of 12 bytes; it must have at least 16"
        self.refused(ValueError, says.format(1), "all_reduce", short, long, 4, abi.FLOAT32, abi.SUM)
        self.refused(ValueError, says.format(2), "all_reduce", long, short, 4, abi.FLOAT32, abi.SUM)
        self.refused(ValueError, says.format(1), "send", short, 4, abi.FLOAT32, 0)
        self.comm.run("broadcast", long, long, 4, abi.FLOAT32, 0)

    def test_arrays_have_a_block_for_each_rank_where_the_operation_does(self):
        four = (ctypes.c_float * 4)()

        def check(operation, *arguments):
            abi.default_library().check_arguments(operation, arguments, 1, 3)

        check("gather", four, four, 4, abi.FLOAT32, 0)  # the root's memory is elsewhere
        for operation, root in (("gather", [1]), ("scatter", [1]), ("all_gather", []), ("all_to_all", []),
                                ("reduce_scatter", None)):
            behind = [abi.SUM] if root is None else root
            with self.assertRaisesRegex(ValueError, "an array of 16 bytes; it must have at least 48"):
                check(operation, four, four, 4, abi.FLOAT32, *behind)

    def test_fields_that_a_struct_has_no_room_for_are_named(self):
        for field, value in (("peer_timeout_ms", -1), ("peer_timeout_ms", 2**32), ("rank", 2**31), ("mtu", 1.5)):
            with self.assertRaisesRegex(ValueError, f"^{field} is .*: it is a whole number from "):
                Communicator(abi.default_library().unique_id(), **{field: value})
        for field in ("standbys", "min_ranks"):
            with self.assertRaisesRegex(ValueError, f"^{field} is -1: it is a whole number from 0 to 4294967295"):
                Job.found(self.comm, **{field: -1})
            with self.assertRaisesRegex(ValueError, f"^{field} is -1"):
                Job.join("ticket", **{field: -1})
        with self.assertRaisesRegex(TypeError, "spillway_comm_config has no field mtus"):
            Communicator(mtus=1)


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
        self.assertEqual([self.options(LayerPolicy(5), index, 3, expendable=0.02) for index in (0, 2)],
                         [(5, 20_000)] * 2)

    def test_exact_ones_lose_nothing_and_are_urgent_all_the_same(self):
        options = abi.default_library().options()
        LayerPolicy().apply(options, 1, 2)
        self.assertEqual((options.priority, options.expendable_ppm), (7, abi.EXPENDABLE_AS_LOST))

    def test_a_priority_that_is_given_is_that_of_all_layers(self):
        self.assertEqual([self.options(LayerPolicy(2), index, 3)[0] for index in (0, 2)], [2, 2])


def codec_with(**variables):
    with mock.patch.dict(os.environ, variables):
        return codec_from_environment()


class Variables(unittest.TestCase):
    def test_exact_unless_a_codec_is_asked_for(self):
        for variables in ({}, {"SPILLWAY_CODEC": ""}, {"SPILLWAY_CODEC": "exact", "SPILLWAY_BITS": "12"}):
            self.assertIsNone(codec_with(**variables))

    def test_a_codec_has_defaults(self):
        codec = codec_with(SPILLWAY_CODEC="planes")
        self.assertEqual(LEAST_BYTES, 65536)
        for size, expected in ((LEAST_BYTES - 4, False), (LEAST_BYTES, True)):
            for operation in ("all_reduce", "reduce_scatter"):
                self.assertEqual(codec.applies_to(operation, torch.float32, size, abi.SUM), expected)
        self.assertFalse(codec.applies_to("all_reduce", torch.int32, LEAST_BYTES, abi.SUM))
        self.assertFalse(codec.applies_to("all_reduce", torch.float32, LEAST_BYTES, abi.MAX))
        auto = codec_with(SPILLWAY_CODEC="auto")
        self.assertTrue(auto.applies_to("all_reduce", torch.float32, LEAST_BYTES, abi.SUM))
        self.assertFalse(auto.applies_to("reduce_scatter", torch.float32, LEAST_BYTES, abi.SUM))
        options = codec.options()
        self.assertEqual((options.tolerant, options.precision, options.gather_precision, options.loss_bound_ppm,
                          options.least_contributors, options.feedback_tensor), (1, 5, 5, 10_000, 0.0, 0))
        self.assertEqual((options.importance, options.expendable_ppm),
                         (abi.IMPORTANCE_BY_ENERGY, abi.EXPENDABLE_AS_LOST))

    def test_variables_say_how_much_may_be_lost(self):
        options = codec_with(SPILLWAY_CODEC="planes", SPILLWAY_BITS="12", SPILLWAY_LOSS_BOUND="0",
                             SPILLWAY_LEAST_CONTRIBUTORS="0.75").options()
        self.assertEqual((options.precision, options.gather_precision, options.loss_bound_ppm,
                          options.least_contributors), (12, 12, 0, 0.75))
        self.assertEqual(codec_with(SPILLWAY_CODEC="planes", SPILLWAY_LEAST_CONTRIBUTORS="1").options().loss_bound_ppm,
                         10_000)

    def test_a_bad_value_is_named_with_what_is_allowed(self):
        codecs = "exact, planes, levels, blocks, entropy, sketch or auto"
        for name, value, allowed in [("SPILLWAY_CODEC", "zip", codecs),
                                     ("SPILLWAY_BITS", "33", "from 1 to 32"),
                                     ("SPILLWAY_BITS", "x", "from 1 to 32"),
                                     ("SPILLWAY_LOSS_BOUND", "1%", "from 0 to 1"),
                                     ("SPILLWAY_LOSS_BOUND", "nan", "from 0 to 1"),
                                     ("SPILLWAY_LEAST_CONTRIBUTORS", "-0.1", "from 0 to 1")]:
            with self.assertRaisesRegex(ValueError, f"^{name} is '{value}': it must be .*{allowed}"):
                codec_with(**{name: value})

    def test_a_codec_has_bits_of_its_own(self):
        def fields_with(**variables):
            options = codec_with(**variables).options()
            return abi.CODECS[options.codec], options.precision, options.algorithm

        self.assertEqual(fields_with(SPILLWAY_CODEC="planes"), ("planes", 5, 0))
        self.assertEqual(fields_with(SPILLWAY_CODEC="levels"), ("levels", 4, 0))
        self.assertEqual(fields_with(SPILLWAY_CODEC="LEVELS", SPILLWAY_BITS="2"), ("levels", 2, 0))
        self.assertEqual(fields_with(SPILLWAY_CODEC="blocks")[0], "blocks")
        self.assertEqual(fields_with(SPILLWAY_CODEC="entropy"), ("entropy", 8, 0))
        self.assertEqual(fields_with(SPILLWAY_CODEC="sketch"), ("sketch", 8, 0))
        with self.assertRaisesRegex(ValueError, "all packets arrive whole"):
            fields_with(SPILLWAY_CODEC="entropy", SPILLWAY_LOSS_BOUND="0.02")
        with self.assertRaisesRegex(ValueError, "Levels: bits is 5; it is 2, 3, 4 or 8"):
            fields_with(SPILLWAY_CODEC="levels", SPILLWAY_BITS="5")


class Codecs(unittest.TestCase):
    def test_names_and_numbers_are_the_librarys(self):
        for codec, expected in ((Planes(5), (0, 5, 5, 0, 0)), (Planes(6, 16), (0, 6, 16, 0, 0)),
                                (Levels(2, predicted_scale=True), (1, 2, None, 0, 1)),
                                (Blocks(), (2, None, None, 0, 0)),
                                (Entropy(algorithm="ring", predicted_scale=True), (3, 8, None, 2, 1)),
                                (Sketch(10), (4, 10, None, 0, 0))):
            made = codec.options()
            found = (made.codec, made.precision, made.gather_precision, made.algorithm, made.predicts_scale)
            self.assertEqual([each for each, wanted in zip(found, expected) if wanted is not None],
                             [wanted for wanted in expected if wanted is not None], codec)
            self.assertEqual(made.loss_bound_ppm, 0 if codec.name in ("entropy", "sketch") else 10_000, codec)

    def test_bits_and_algorithms_are_those_of_the_librarys_table(self):
        def is_taken(codec, **fields):
            try:
                codec(**fields)
            except ValueError:
                return False
            return True

        rows = abi.default_library().capabilities
        self.assertEqual(set(rows), {*abi.CODECS, "exact"})
        for codec in (Planes, Levels, Entropy, Sketch):
            taken = [bits for bits in range(34) if is_taken(codec, bits=bits)]
            self.assertEqual(taken, rows[codec.name]["bits"], codec)
        for codec in (Entropy, Sketch):
            taken = [each for each in abi.ALGORITHMS if each != "auto" and is_taken(codec, algorithm=each)]
            self.assertEqual(taken, rows[codec.name]["algorithms"], codec)

    def test_the_hooks_default_is_the_variables(self):
        hook, variables = Planes().options(), codec_with(SPILLWAY_CODEC="planes").options()
        self.assertEqual(bytes(hook), bytes(variables))

    def test_a_codec_is_a_value(self):
        self.assertEqual(Planes(), Planes(bits=5))
        self.assertEqual(str(Entropy(10)), "Entropy(bits=10, predicted_scale=False, algorithm='auto')")


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
