#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The experiments that train: what their channel does to gradients, and a few steps of each.

    tests/experiments/experiments_test.py LIBRARY [unittest's arguments]

Without torch or Fashion-MNIST it skips: exit code 77.
"""
import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[2] / "experiments"
LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve()
SKIPPED = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def load(experiment):
    spec = importlib.util.spec_from_file_location(experiment, EXPERIMENTS / experiment / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


try:
    trim_accuracy, loss_tolerance = load("trim_accuracy"), load("loss_tolerance")
except ImportError as error:
    skip(error)

import torch
from common import channel, training

if not training.example.FASHION_MNIST.is_dir():
    skip("dataset-fashion-mnist is not installed; scripts/packages.txt names it")

CHANNEL = channel.Channel(LIBRARY)
LENGTH = 40_000


def gaussian(seed, length=LENGTH):
    return torch.randn(length, generator=torch.Generator().manual_seed(seed))


def gain(estimate, truth):
    """1 for an estimate that is right on average."""
    return float(estimate @ truth / (truth @ truth))


class Trimming(unittest.TestCase):
    def error(self, code, share, length=4 * 32768):
        gradient = gaussian(1, length)
        estimate, delivery = CHANNEL.trim(code, share, 7, gradient)
        self.assertGreater(delivery.packets, 100)
        return training.relative_error(estimate, gradient), delivery

    def test_untrimmed_values_come_back_to_the_precision_of_their_code(self):
        for code, precision in (("planes", 1e-8), ("sign-magnitude", 0.0), ("sq", 1e-12), ("sd", 1e-12), ("rht", 1e-12)):
            error, delivery = self.error(code, 0.0)
            self.assertLessEqual(error, precision, code)
            self.assertEqual((delivery.hit, delivery.bytes_arrived), (0, delivery.bytes_sent), code)

    def test_one_bit_heads_have_the_errors_of_the_literature(self):
        for code, expected in (("sign-magnitude", 0.404), ("sq", 5.28), ("sd", 2.08), ("rht", 0.571)):
            error, delivery = self.error(code, 1.0)
            self.assertAlmostEqual(error / expected, 1.0, delta=0.05, msg=code)
            self.assertEqual(delivery.hit, delivery.packets)
            self.assertAlmostEqual(delivery.bytes_arrived / delivery.packets, 87, delta=1)

    def test_spillways_heads_hold_more_than_one_plane(self):
        error, delivery = self.error("planes", 1.0)
        self.assertAlmostEqual(error, 0.41, delta=0.03)  # 1.36 planes: between 0.571 of one and 0.138 of two
        self.assertLessEqual(delivery.bytes_arrived / delivery.packets, 206)

    def test_the_share_that_is_asked_for_is_trimmed(self):
        for code in trim_accuracy.CODES:
            mean = trim_accuracy.TrimmedMean(CHANNEL, code, 0.25, 1)
            for step in range(10):
                mean(step, [gaussian(worker) for worker in range(4)])
            deviation = (0.25 * 0.75 / mean.delivery.packets) ** 0.5
            self.assertAlmostEqual(mean.delivery.hit / mean.delivery.packets, 0.25, delta=4 * deviation, msg=code)

    def test_what_makes_no_sense_is_refused(self):
        with self.assertRaisesRegex(ValueError, "sign-magnitude, sq, sd, rht"):
            CHANNEL.trim("huffman", 0.5, 1, gaussian(1))
        with self.assertRaisesRegex(ValueError, "from 0 to 1"):
            CHANNEL.trim("planes", 1.5, 1, gaussian(1))
        with self.assertRaisesRegex(SystemExit, "--target experiment_channel"):
            channel.Channel(pathlib.Path("/nonexistent.so"))


class Losing(unittest.TestCase):
    def mean_of_means(self, pattern, share, rescaled, seeds=60):
        """Over many seeds, of four workers that have the same gradient."""
        gradient, total, delivery = gaussian(1), torch.zeros(LENGTH), channel.Delivery()
        for seed in range(seeds):
            mean = loss_tolerance.LossyMean(CHANNEL, loss_tolerance.worker_shares(pattern, share), rescaled, seed)
            total += mean(0, [gradient] * 4)
            delivery = delivery.plus(mean.delivery)
        return total / seeds, gradient, delivery

    def test_rescaled_means_are_right_on_average_and_others_shrink_by_what_is_lost(self):
        for pattern in (loss_tolerance.EVEN, loss_tolerance.ONE):
            estimate, gradient, delivery = self.mean_of_means(pattern, 0.2, rescaled=True)
            self.assertAlmostEqual(gain(estimate, gradient), 1.0, delta=0.01, msg=pattern)
            self.assertAlmostEqual(delivery.hit / delivery.packets, 0.2, delta=0.02, msg=pattern)
            estimate, gradient, _ = self.mean_of_means(pattern, 0.2, rescaled=False)
            self.assertAlmostEqual(gain(estimate, gradient), 0.8, delta=0.02, msg=pattern)

    def test_a_worker_of_which_nothing_came_is_not_in_the_mean(self):
        gradients = [gaussian(worker) for worker in range(4)]
        shares = loss_tolerance.worker_shares(loss_tolerance.ONE, 0.30)
        self.assertEqual(shares, [1.0, 0.0, 0.0, 0.0])
        for rescaled, parts in ((True, 3), (False, 4)):
            mean = loss_tolerance.LossyMean(CHANNEL, shares, rescaled, seed=1)(0, gradients)
            self.assertLess(training.relative_error(mean, torch.stack(gradients[1:]).sum(0) / parts), 1e-8)

    def test_rows_are_reported_as_missing_only_where_nothing_came(self):
        estimate, has_come, delivery = CHANNEL.lose(0.95, 3, True, gaussian(1))
        self.assertTrue(0 < int(has_come.sum()) < LENGTH)
        self.assertEqual(int(torch.count_nonzero(estimate[~has_come])), 0)
        self.assertGreater(int(torch.count_nonzero(estimate[has_come])), int(has_come.sum()) // 2)
        self.assertLess(delivery.bytes_arrived, delivery.bytes_sent)


class Runs(unittest.TestCase):
    """Whole experiments, of a few steps."""

    def records(self, experiment, *shares):
        """What it notes of its runs, and its tables. It says nothing beside: there is no terminal."""
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            tables, numbers = pathlib.Path(folder) / "result.md", pathlib.Path(folder) / "runs.json"
            arguments = ["--library", str(LIBRARY), "--steps", "5", "--test-images", "200", "--seeds", "1", "--shares",
                         *shares, "--out", str(tables), "--json", str(numbers)]
            with mock.patch.object(sys, "argv", ["run.py", *arguments]):
                experiment.main()
            self.assertEqual(said.getvalue(), "")
            return [json.loads(line) for line in numbers.read_text().splitlines()], tables.read_text()

    def test_training_with_planes_that_arrive_whole_is_training_without_them(self):
        records, tables = self.records(trim_accuracy, "0", "50")
        self.assertEqual(len(records), 1 + 2 * len(trim_accuracy.CODES))
        baseline = records[0]
        self.assertEqual((baseline["code"], baseline["error"]), (None, 0.0))
        for record in records[1:]:
            if record["share"] == 0:
                self.assertLess(record["error"], 1e-8, record["code"])
                self.assertAlmostEqual(record["loss"], baseline["loss"], delta=1e-3, msg=record["code"])
                self.assertAlmostEqual(record["accuracy"], baseline["accuracy"], delta=1.0, msg=record["code"])
            else:
                self.assertTrue(0.3 < record["hit"] / record["packets"] < 0.7, record)
                self.assertGreater(record["error"], 0.01)
        for name in trim_accuracy.NAMES.values():
            self.assertIn(name.replace("none (baseline)", "Without any code"), tables)

    def test_training_goes_on_when_packets_are_lost(self):
        records, tables = self.records(loss_tolerance, "30")
        self.assertEqual(len(records), 1 + 4)
        lost = {(record["pattern"], record["rescaled"]): record["hit"] / record["packets"] for record in records[1:]}
        for rescaled in (True, False):
            self.assertAlmostEqual(lost[loss_tolerance.EVEN, rescaled], 0.3, delta=0.05)
            self.assertEqual(lost[loss_tolerance.ONE, rescaled], 0.25)  # all of one worker's, and no more
        self.assertIn("| one worker | zero |", tables)

    def test_a_run_is_a_function_of_its_seed(self):
        data = training.example.fashion_mnist(None)
        schedule = training.Schedule(steps=3, test_images=100)
        first, again, other = (trim_accuracy.run_one(CHANNEL, data, schedule, "planes", 50.0, seed) for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first["loss"], other["loss"])


if __name__ == "__main__":
    unittest.main()
