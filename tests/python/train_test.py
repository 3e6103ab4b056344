#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/train.py: on both backends, its log, its checkpoints, and its messages if data is missing.

    tests/python/train_test.py LIBRARY [unittest's arguments]

Skips without torch: exit code 77. Tests that need a dataset skip if it is not installed.
"""
import contextlib
import gzip
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

from torch_ranks import HERE, PACKAGE, prepare

from harness.forked_ranks import run_ranks
from harness.processes import free_port, run
from harness.tiers import TierLoader, long_tier

EXAMPLES = HERE.parents[1] / "examples"
BACKENDS = ("gloo", "spillway")
CLASSES, IMAGES, TEST_IMAGES = 10, 96, 40

prepare()
sys.path.insert(0, str(EXAMPLES))

import torch
import train

import spillway.torch  # once for all ranks that are forked from here

needs_fashion_mnist = unittest.skipUnless(train.FASHION_MNIST.is_dir(),
                                          "dataset-fashion-mnist is not installed; scripts/packages-run.txt names it")
needs_bible = unittest.skipUnless(shutil.which(train.WHOLE_BIBLE[0]),
                                  "bible-kjv is not installed; scripts/packages-run.txt names it")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run_main(say, arguments, has_terminal):
    """Runs the script at one rank; says its standard output and standard error."""
    output, errors = io.StringIO(), Terminal() if has_terminal else io.StringIO()
    with mock.patch.object(sys, "argv", ["train.py", *arguments]), contextlib.redirect_stdout(output), \
            contextlib.redirect_stderr(errors):
        train.main()
    say([output.getvalue(), errors.getvalue()])


def write_idx(path, array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, array.dim()]) + sizes + array.numpy().tobytes(), compresslevel=1))


def write_images(folder):
    """Writes Fashion-MNIST's format: a class is a bright band, which is learned quickly."""
    for name, count in (("train", IMAGES), ("t10k", TEST_IMAGES)):
        labels = torch.arange(count, dtype=torch.uint8) % CLASSES
        images = torch.randint(0, 60, (count, 28, 28), generator=torch.Generator().manual_seed(count)).byte()
        for image, label in zip(images, labels):
            image[2 * int(label):2 * int(label) + 4] = 250
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", labels)


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.log = self.folder / "log"

    def train(self, *arguments, world=2, has_terminal=False):
        """The ranks' output, and the log's events."""
        given = [*map(str, arguments), "--log", str(self.log)]
        said = run_ranks(world, run_main, given, has_terminal)
        self.assertNotIn(None, said, f"a rank failed: train.py {' '.join(given)}")
        return said, [json.loads(line) for line in self.log.read_text().splitlines()]

    def parameters(self, folder):
        return torch.load(folder / train.CHECKPOINT)["model"]

    def events(self, log, kind):
        return [event for event in log if event["event"] == kind]


@long_tier
class WithTheDatasets(Case):
    def check_log(self, log, steps):
        self.assertEqual([event["event"] for event in log], ["step"] * steps + ["evaluation", "end"])
        for number, event in enumerate(log[:steps], 1):
            self.assertEqual(set(event), {"event", "step", "seconds", "step_ms", "loss"})
            self.assertEqual(event["step"], number)
            self.assertGreater(event["step_ms"], 0)
        self.assertEqual(set(log[-2]), {"event", "step", "seconds", "epoch", "accuracy"})
        self.assertTrue(0 <= log[-2]["accuracy"] <= 1)
        self.assertEqual((log[-1]["reason"], log[-1]["step"], log[-1]["world"]), ("steps", steps, 2))
        times = [event["seconds"] for event in log]
        self.assertEqual(times, sorted(times))

    @needs_fashion_mnist
    def test_both_backends_learn_the_same_images(self):
        losses = {}
        for backend in BACKENDS:
            said, log = self.train("--backend", backend, "--steps", 4, "--batch", 64, "--test-samples", 100)
            self.check_log(log, 4)
            self.assertEqual((log[-1]["backend"], log[-1]["model"]), (backend, "cnn"))
            self.assertTrue(1e6 <= log[-1]["parameters"] <= 4e6)
            self.assertIn("4 steps", said[0][0])
            self.assertEqual([errors for _, errors in said] + [said[1][0]], ["", "", ""])
            losses[backend] = [event["loss"] for event in self.events(log, "step")]
        for ours, reference in zip(losses["spillway"], losses["gloo"]):
            self.assertAlmostEqual(ours, reference, places=4)

    @needs_bible
    def test_both_backends_learn_the_same_text(self):
        for backend in BACKENDS:
            _, log = self.train("--backend", backend, "--model", "charlm", "--steps", 4, "--batch", 8,
                                "--test-samples", 8)
            self.check_log(log, 4)
            steps = self.events(log, "step")
            self.assertLess(steps[-1]["loss"], steps[0]["loss"])

    @needs_fashion_mnist
    def test_a_tolerant_run_needs_nothing_but_the_variable(self):
        arguments = ["--steps", 4, "--batch", 64, "--test-samples", 100, "--checkpoint"]
        with mock.patch.dict(os.environ, {"SPILLWAY_CODEC": "planes"}):
            _, tolerant = self.train(*arguments, self.folder / "tolerant")
        _, exact = self.train(*arguments, self.folder / "exact")
        self.assertEqual(tolerant[0]["loss"], exact[0]["loss"])
        self.assertAlmostEqual(tolerant[3]["loss"], exact[3]["loss"], delta=0.2)
        ours, reference = self.parameters(self.folder / "tolerant"), self.parameters(self.folder / "exact")
        self.assertTrue(any(not torch.equal(ours[name], values) for name, values in reference.items()))


class WithASmallDataset(Case):
    """Three steps make an epoch."""

    def setUp(self):
        super().setUp()
        write_images(self.folder)
        self.arguments = ["--data", self.folder, "--batch", IMAGES // 3]

    def test_a_resumed_run_continues_bit_for_bit(self):
        """Stopped within its second epoch. Three ranks, because sums of three depend on their order, and DDP's
        buckets after a resumption differ from those before."""
        whole, parts = self.folder / "whole", self.folder / "parts"
        _, log = self.train(*self.arguments, "--batch", 30, "--steps", 8, "--checkpoint", whole, world=3)
        self.train(*self.arguments, "--batch", 30, "--steps", 4, "--checkpoint", parts, world=3)
        said, resumed = self.train(*self.arguments, "--batch", 30, "--steps", 8, "--checkpoint", parts, "--resume",
                                   world=3)
        self.assertIn("resumed after step 4", said[0][0])
        self.assertEqual([(event["step"], event["loss"]) for event in self.events(resumed, "step")],
                         [(event["step"], event["loss"]) for event in self.events(log, "step")])
        expected, actual = self.parameters(whole), self.parameters(parts)
        self.assertEqual(set(expected), set(actual))
        for name, values in expected.items():
            self.assertTrue(torch.equal(values, actual[name]), name)

    def test_overlap_changes_no_bit_of_any_model(self):
        """The second half of the overlapped run begins from a checkpoint."""
        for model in ("cnn", "deep", "vgg"):
            usual, overlapped = self.folder / model, self.folder / f"{model}-overlapped"
            arguments = ["--backend", "spillway", *self.arguments, "--batch", 30, "--model", model]
            self.train(*arguments, "--steps", 6, "--checkpoint", usual, world=3)
            for steps in (3, 6):
                self.train(*arguments, "--overlap", "--steps", steps, "--checkpoint", overlapped, "--resume", world=3)
            expected, actual = self.parameters(usual), self.parameters(overlapped)
            for name, values in expected.items():
                self.assertTrue(torch.equal(values, actual[name]), f"{model}: {name}")

    def test_epochs_are_evaluated_and_saved(self):
        said, log = self.train(*self.arguments, "--epochs", 2, "--checkpoint", self.folder / "kept")
        self.assertEqual([(event["step"], event["epoch"]) for event in self.events(log, "evaluation")],
                         [(3, 1), (6, 2)])
        self.assertEqual((log[-1]["reason"], log[-1]["step"]), ("epochs", 6))
        self.assertIn("epoch 2: accuracy", said[0][0])
        self.assertEqual(torch.load(self.folder / "kept" / train.CHECKPOINT)["step"], 6)

    def test_a_link_in_the_place_of_a_part_is_not_followed(self):
        kept = self.folder / "kept"
        kept.mkdir()
        victim = self.folder / "victim"
        victim.write_text("kept")
        (kept / train.CHECKPOINT).with_suffix(".unfinished").symlink_to(victim)
        self.train(*self.arguments, "--steps", 1, "--checkpoint", kept)
        self.assertEqual(victim.read_text(), "kept")
        self.assertEqual([path.name for path in kept.iterdir()], [train.CHECKPOINT])

    def test_a_checkpoint_runs_no_code(self):
        kept, touched = self.folder / "kept", self.folder / "touched"
        kept.mkdir()
        torch.save({"step": Touch(str(touched))}, kept / train.CHECKPOINT)
        given = [*map(str, self.arguments), "--steps", "1", "--checkpoint", str(kept), "--resume"]
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(run_ranks(2, run_main, given, False), [None, None])
        self.assertFalse(touched.exists())

    def test_a_run_stops_when_it_is_good_enough(self):
        said, log = self.train(*self.arguments, "--epochs", 200, "--lr", 0.02, "--target-accuracy", 0.9,
                               "--evaluate-every", 2)
        self.assertEqual(log[-1]["reason"], "target")
        self.assertGreaterEqual(log[-1]["accuracy"], 0.9)
        self.assertIn(f"reached after {log[-1]['step']} steps", said[0][0])

    def test_progress_is_shown_on_a_terminal_by_rank_0(self):
        said, _ = self.train(*self.arguments, "--steps", 2, has_terminal=True)
        self.assertIn("[###############...............] step 1 of 2", said[0][1])
        self.assertEqual(said[1][1], "")

    @long_tier
    @unittest.skipIf(shutil.which("mpirun") is None, "mpirun is not installed")
    def test_under_mpirun_with_gloo(self):
        """The script must read that launcher's variables itself."""
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MASTER_PORT": str(free_port())}
        done = run(["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", "--host", "localhost:2", sys.executable,
                    EXAMPLES / "train.py", "--backend", "gloo", "--steps", "1", "--log", self.log, *self.arguments],
                   env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(self.log.read_text().splitlines()[-1])["world"], 2)


class WhatIsWrong(Case):
    def refusal(self, *arguments, **environment):
        with mock.patch.object(sys, "argv", ["train.py", *arguments]), mock.patch.dict(os.environ, environment), \
                contextlib.redirect_stderr(io.StringIO()) as errors, self.assertRaises(SystemExit) as caught:
            train.main()
        return f"{caught.exception} {errors.getvalue()}"

    def test_missing_data_names_the_package(self):
        self.assertIn("apt-get install dataset-fashion-mnist", self.refusal("--data", str(self.folder)))
        self.assertIn("apt-get install bible-kjv", self.refusal("--model", "charlm", PATH=str(self.folder)))

    def test_a_resumption_needs_a_checkpoint(self):
        self.assertIn("--resume needs --checkpoint", self.refusal("--resume"))


if __name__ == "__main__":
    unittest.main(testLoader=TierLoader())
