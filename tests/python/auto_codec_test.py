#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""codec="auto": the chooser's decisions on synthetic times and errors, and two ranks that go through trials
(auto_scenarios.py).

    tests/python/auto_codec_test.py LIBRARY [unittest's arguments]

Skips without torch: exit code 77.
"""
import os
import random
import unittest
from unittest import mock

from torch_ranks import add_tests, prepare

WORLD = 2

prepare()

import torch

from spillway import abi
from spillway.torch import auto_codec, codec_chooser
from spillway.torch.auto_codec import ErrorSample, StepClock, tolerances_of
from spillway.torch.backend_codec import codec_from_environment, window_of
from spillway.torch.codec_chooser import EXACT, Candidate, CodecChooser, Purpose, Seen, fitting_precision

PLANES_5, PLANES_8, PLANES_16 = (Candidate("planes", bits) for bits in (5, 8, 16))
LEVELS, ENTROPY, SKETCH = Candidate("levels", 4), Candidate("entropy", 8), Candidate("sketch", 8)
ALL = (PLANES_5, LEVELS, ENTROPY, SKETCH, PLANES_8, PLANES_16, EXACT)


class World:
    """Steps whose time follows from the code's bits on a link, with some noise, and whose error is the code's."""

    def __init__(self, coding=None, error=None, bits=None, step=1.0, per_bit=0.0, zeros=0.0, noise=0.0, seed=1):
        self.coding, self.errors, self.bits = coding or {}, {ENTROPY: 0.05, **(error or {})}, {LEVELS: 7, **(bits or {})}
        self.step, self.per_bit, self.zeros, self.noise = step, per_bit, zeros, noise
        self._dice = random.Random(seed)
        self.spent = 0.0

    def seconds(self, candidate):
        bits = self.bits.get(candidate, candidate.precision)
        return (self.step + self.per_bit * bits + self.coding.get(candidate, 0.0)) * self._dice.uniform(1, 1 + self.noise)

    def run(self, chooser, candidate, purpose, units):
        seconds = self.seconds(candidate)
        self.spent += units * seconds
        if not chooser.is_measured:
            return Seen(seconds)
        return Seen(seconds, self.errors.get(candidate, 0.0), self.zeros)

    def choose(self, chooser, most=200):
        """Runs until the choice changes; returns the trials, unit by unit."""
        before, tried = chooser.choice, []
        while chooser.choice is before:
            tried.append((chooser.candidate, chooser.purpose))
            chooser.note(self.run(chooser, chooser.candidate, chooser.purpose, chooser.units))
            if len(tried) > most:
                raise AssertionError("there is no end to it")
        return tried


def chosen_in(world, **arguments):
    chooser = CodecChooser(ALL, max_error=0.1, **arguments)
    tried = world.choose(chooser)
    return chooser, tried


class Choosing(unittest.TestCase):
    def outcome(self, chooser, candidate):
        return next(trial.outcome for trial in chooser.choice.trials if trial.candidate == candidate)

    def test_fewer_bits_win_where_the_link_is_the_limit(self):
        chooser, tried = chosen_in(World(per_bit=1.0))
        self.assertEqual(chooser.choice.candidate, PLANES_5)
        self.assertEqual(chooser.purpose, Purpose.USE)
        self.assertIn("the shortest, 6000 ms", str(chooser.choice))
        self.assertEqual(tried[:2], [(PLANES_5, Purpose.SETTLE), (PLANES_5, Purpose.TIME)])

    def test_exact_wins_where_coding_is_the_limit(self):
        coding = {candidate: 2.0 for candidate in ALL if candidate != EXACT}
        chooser, _ = chosen_in(World(coding, per_bit=0.001))
        self.assertEqual(chooser.choice.candidate, EXACT)
        self.assertIn("times the shortest", self.outcome(chooser, PLANES_5))

    def test_of_equals_the_one_that_errs_least_is_taken(self):
        chooser, _ = chosen_in(World({EXACT: 0.02}, {PLANES_5: 0.01, PLANES_8: 0.001, PLANES_16: 1e-6, LEVELS: 0.05},
                                     noise=0.001))
        self.assertEqual(chooser.choice.candidate, EXACT)
        self.assertIn("and errs less", chooser.choice.why)

    def test_what_errs_too_much_is_dropped_whatever_it_takes(self):
        coarse = {candidate: 0.2 for candidate in (PLANES_5, LEVELS, ENTROPY, Candidate("entropy", 9))}
        chooser, _ = chosen_in(World(per_bit=1.0, error=coarse))
        self.assertEqual(chooser.choice.candidate, PLANES_8)
        self.assertEqual(self.outcome(chooser, PLANES_5), "errs more than 0.1")

    def test_exact_is_what_remains(self):
        everything = {candidate: 0.5 for candidate in (*ALL, Candidate("entropy", 10))}
        chooser, _ = chosen_in(World(per_bit=1.0, error=everything))
        self.assertEqual(chooser.choice.candidate, EXACT)

    def test_what_cannot_win_is_not_tried(self):
        chooser = CodecChooser(ALL, 0.1)
        chooser.hint_exact(33.0)
        tried = World(per_bit=1.0).choose(chooser)
        self.assertEqual({candidate for candidate, _ in tried}, {PLANES_5, LEVELS, ENTROPY})
        self.assertIn("not tried", self.outcome(chooser, EXACT))

    def test_what_is_far_behind_gets_one_unit(self):
        _, tried = chosen_in(World({LEVELS: 100.0}, per_bit=1.0))
        self.assertEqual([purpose for candidate, purpose in tried if candidate == LEVELS], [Purpose.SETTLE])

    def test_trials_cost_little_where_the_link_is_the_limit(self):
        world = World(per_bit=1.0, step=0.5, noise=0.1)
        chooser = CodecChooser(ALL, 0.1)
        chooser.hint_exact(world.seconds(EXACT))
        tried = world.choose(chooser)
        shortest = 0.5 + 5
        self.assertLess(world.spent, shortest * (len(tried) + 4))

    def test_a_precision_that_fits_is_found(self):
        self.assertEqual(fitting_precision(8, error=0.2, max_error=0.1), 9)
        self.assertEqual(fitting_precision(8, error=0.8, max_error=0.1), 10)
        self.assertEqual(fitting_precision(8, error=0.001, max_error=0.1), 6)
        ten = Candidate("entropy", 10)
        chooser, tried = chosen_in(World(per_bit=1.0, bits={ENTROPY: 0.5, ten: 2.0}, error={ENTROPY: 0.8, ten: 0.05}))
        self.assertEqual(chooser.choice.candidate, ten)
        self.assertEqual({candidate.precision for candidate, _ in tried if candidate.codec == "entropy"}, {8, 10})

    def test_sketches_are_tried_where_there_are_zeros(self):
        for zeros, expected in ((0.2, PLANES_5), (0.9, SKETCH)):
            chooser, _ = chosen_in(World(per_bit=1.0, bits={SKETCH: 1.0}, zeros=zeros))
            self.assertEqual(chooser.choice.candidate, expected)
        chooser, _ = chosen_in(World(per_bit=1.0, zeros=0.2))
        self.assertEqual(self.outcome(chooser, SKETCH), "not tried: 20 % of the gradient are zeros")

    def test_ranks_that_note_the_same_choose_the_same(self):
        for seed in range(20):
            choosers = [CodecChooser(ALL, 0.1) for _ in range(2)]
            world = World(per_bit=0.1, noise=0.5, seed=seed)
            for _ in range(300):
                first, second = choosers
                self.assertEqual((first.candidate, first.purpose, first.units, first.choice),
                                 (second.candidate, second.purpose, second.units, second.choice))
                seen = world.run(first, first.candidate, first.purpose, 1)
                for chooser in choosers:
                    chooser.note(seen)

    def test_noise_costs_little(self):
        """Over many worlds, the choice takes little longer than the best one would have."""
        lost = []
        for seed in range(40):
            world = World({PLANES_5: 0.3, LEVELS: 0.1, ENTROPY: 0.8}, per_bit=0.2, noise=0.2, seed=seed)
            chooser, _ = chosen_in(world)
            quiet = World(world.coding, per_bit=0.2)
            lost.append(quiet.seconds(chooser.choice.candidate) / min(quiet.seconds(each) for each in ALL[:3]))
        self.assertLess(sorted(lost)[len(lost) * 9 // 10], 1.08)


class LookingAgain(unittest.TestCase):
    def looks(self, chooser, world, count):
        """The purposes of the next `count` notes."""
        seen = []
        for _ in range(count):
            seen.append(chooser.purpose)
            chooser.note(world.run(chooser, chooser.candidate, chooser.purpose, chooser.units))
        return seen

    def test_it_stays_while_nothing_changes(self):
        world = World(per_bit=1.0, noise=0.05)
        chooser, _ = chosen_in(world)
        self.assertEqual(set(self.looks(chooser, world, 50)), {Purpose.USE})
        self.assertEqual(chooser.units, codec_chooser.LOOK_EVERY)

    def test_a_link_that_got_slow_is_noticed(self):
        coding = {candidate: 2.0 for candidate in ALL if candidate != EXACT}
        chooser, _ = chosen_in(World(coding, per_bit=0.001))
        self.assertEqual(chooser.choice.candidate, EXACT)
        self.looks(chooser, World(coding, per_bit=0.001), 2)
        slow = World(coding, per_bit=1.0)
        tried = slow.choose(chooser)
        self.assertEqual(tried[:2], [(EXACT, Purpose.USE), (EXACT, Purpose.TIME)])  # it need not settle
        self.assertEqual(chooser.choice.candidate, PLANES_5)

    def test_gradients_that_got_coarse_are_noticed(self):
        chooser, _ = chosen_in(World(per_bit=1.0))
        coarse = World(per_bit=1.0, error={PLANES_5: 0.3, LEVELS: 0.01})
        coarse.choose(chooser)
        self.assertEqual(chooser.choice.candidate, LEVELS)

    def test_one_look_with_a_large_error_says_little(self):
        world = World(per_bit=1.0)
        chooser, _ = chosen_in(world)
        chooser.note(Seen(6.0, error=5.0))
        self.assertEqual(set(self.looks(chooser, world, 5)), {Purpose.USE})

    def test_what_is_in_use_stays_if_it_is_close(self):
        world = World(per_bit=1.0)
        chooser, _ = chosen_in(world)
        self.looks(chooser, world, 2)
        World({LEVELS: -2.3}, per_bit=1.0, step=4.0).choose(chooser)  # levels 8.7, planes 9
        self.assertEqual(chooser.choice.candidate, PLANES_5)
        self.assertIn("in use, and within 5 %", chooser.choice.why)

    def test_now_and_then_the_best_few_are_tried_anyway(self):
        world = World(per_bit=1.0)
        chooser, _ = chosen_in(world)
        tried = world.choose(chooser)
        self.assertEqual(tried[:100], [(PLANES_5, Purpose.USE)] * codec_chooser.LOOKS_TO_RETRY)
        self.assertEqual(len({candidate for candidate, _ in tried}), codec_chooser.FEW)

    def test_a_change_that_comes_and_goes_costs_less_and_less(self):
        """Times jump at every look, but the choice stays right."""
        chooser, units = CodecChooser(ALL, 0.1), {True: 0, False: 0}
        for note in range(1000):
            world = World(per_bit=1.0, step=4.0 * (note % 2))
            units[chooser.purpose is Purpose.USE] += chooser.units
            chooser.note(world.run(chooser, chooser.candidate, chooser.purpose, 1))
        self.assertLess(units[False], 0.02 * units[True])

    def test_a_run_that_goes_on_tries_nothing(self):
        chooser = CodecChooser(ALL, 0.1, chosen=Candidate.parse("levels 4"))
        self.assertEqual((chooser.candidate, chooser.purpose), (LEVELS, Purpose.USE))
        self.assertEqual([Candidate.parse(str(each)) for each in ALL], list(ALL))


class Steps(unittest.TestCase):
    def test_pauses_are_left_out_of_a_steps_time(self):
        now = 0.0
        clock = StepClock(lambda: now)
        times = []
        for gap in (0.0, 2.0, 2.0, 2.0, 100.0, 2.0):
            now += gap
            clock.begin()
            now += 1.0
            times.append(clock.end())
            clock.rest()
        self.assertEqual(times, [1.0, 3.0, 3.0, 3.0, 3.0, 3.0])

    def test_samples_stand_for_their_buckets(self):
        """A small bucket that is exact, and a large one that is off by half."""
        small, large = torch.ones(100), torch.ones(20 * auto_codec.SAMPLED)
        sample = ErrorSample()
        for bucket in (small, large):
            sample.add(bucket)
        large *= 0.5
        with mock.patch.object(auto_codec, "average"):
            error, zeros = sample.error_and_zeros(None)
        self.assertAlmostEqual(error, 0.25 * large.numel() / (large.numel() + small.numel()), places=4)
        self.assertEqual(zeros, 0.0)

    def test_windows_are_whole_backward_passes(self):
        self.assertEqual([window_of(calls) for calls in (0, 1, 3, 8, 20)], [8, 8, 9, 8, 20])


class Candidates(unittest.TestCase):
    def test_what_does_not_go_with_the_arguments_is_left_out(self):
        def make(codec, precision):
            return abi.default_library().tolerant_options(codec=abi.CODECS.index(codec), precision=precision,
                                                          gather_precision=precision, loss_bound=0.0, min_planes=6)

        self.assertEqual([candidate for candidate in tolerances_of((PLANES_5, PLANES_8, PLANES_16, EXACT), make)],
                         [PLANES_8, PLANES_16, EXACT])
        with self.assertRaises(ValueError):
            tolerances_of(ALL, lambda codec, precision: abi.default_library().tolerant_options(loss_bound=3.0))

    def test_variables_leave_the_bits_to_auto(self):
        with mock.patch.dict(os.environ, {"SPILLWAY_CODEC": "auto"}):
            self.assertIsNotNone(codec_from_environment().auto)
            with mock.patch.dict(os.environ, {"SPILLWAY_BITS": "8"}):
                with self.assertRaisesRegex(ValueError, "unset SPILLWAY_BITS"):
                    codec_from_environment()


class Ranks(unittest.TestCase):
    pass


add_tests(Ranks, "auto_scenarios", WORLD)

if __name__ == "__main__":
    unittest.main()
