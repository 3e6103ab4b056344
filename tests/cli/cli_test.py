#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command-line tool as its users meet it: help, exit codes, files, JSON.

    tests/cli/cli_test.py PATH_TO_SPILLWAY
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
GRADIENT = pathlib.Path(__file__).parents[1] / "data" / "gradients" / "conv_step300.f32"


def run(*arguments, cwd=None):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True, cwd=cwd, timeout=300)


class Help(unittest.TestCase):
    def test_every_command_has_help_with_an_example(self):
        for command in ([], ["codec"], ["codec", "tour"], ["bench"], ["bench", "codec"]):
            result = run(*command, "--help")
            self.assertEqual(result.returncode, 0, command)
            self.assertIn("Example", result.stdout, command)

    def test_version_is_a_version(self):
        self.assertRegex(run("--version").stdout, r"^spillway \d+\.\d+\.\d+\n$")

    def test_wrong_usage_exits_with_2(self):
        for command in ([], ["nonsense"], ["codec", "tour", "--precision", "9"], ["bench", "codec", "--part", "x"]):
            self.assertEqual(run(*command).returncode, 2, command)


class Tour(unittest.TestCase):
    def test_prints_a_table_and_writes_a_page(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("codec", "tour", "--gradient", GRADIENT, "--out", "tour", cwd=folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("cut to (bytes)", result.stdout)
            page = (pathlib.Path(folder) / "tour" / "tour.html").read_text()
            self.assertEqual(page.count("<polyline"), 5)
            self.assertNotIn("http-equiv", page)
            self.assertNotIn("src=", page)  # opens without network
            self.assertEqual(result.stderr, "")  # no progress bar without a terminal

    def test_json_shows_that_cutting_beats_dropping(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("codec", "tour", "--gradient", GRADIENT, "--json", cwd=folder)
            tour = json.loads(result.stdout)
        cuts = {cut["cut_bytes"]: cut for cut in tour["cuts"]}
        self.assertLess(cuts[206]["nmse_tenth_cut"], 0.5 * cuts[206]["nmse_tenth_dropped"])
        errors = [cut["nmse_all_cut"] for cut in tour["cuts"]]
        self.assertEqual(errors, sorted(errors))  # smaller cuts, larger error

    def test_bad_input_gets_a_sentence_and_exit_code_1(self):
        with tempfile.TemporaryDirectory() as folder:
            odd = pathlib.Path(folder) / "odd.f32"
            odd.write_bytes(b"12345")
            for arguments, sentence in (
                (["--gradient", "missing.f32"], "cannot open"),
                (["--gradient", str(odd)], "whole number of 4-byte floats"),
                (["--mtu", "100"], "MTU 100"),
                (["--out", "/proc/nowhere"], "--out"),
            ):
                result = run("codec", "tour", *arguments, cwd=folder)
                self.assertEqual(result.returncode, 1, arguments)
                self.assertIn(sentence, result.stderr)

    def test_a_gradient_with_a_nan_is_reported_not_hidden(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "nan.f32"
            path.write_bytes(struct.pack("<3f", 1.0, float("nan"), 2.0))
            result = run("codec", "tour", "--gradient", path, "--out", folder)
            self.assertEqual(result.returncode, 1)
            self.assertIn("not finite", result.stderr)


class Bench(unittest.TestCase):
    def test_error_figures_meet_their_bars(self):
        result = run("bench", "codec", "--part", "error", "--quick", "--json", "--gradients", GRADIENT.parent)
        self.assertEqual(result.returncode, 0, result.stderr)
        error = json.loads(result.stdout)["error"]
        samples = {row["sample"] for row in error["by_planes"]}
        self.assertTrue({"gaussian", "lognormal", "sparse-1%", "conv_step300", "fc_step1"} <= samples)
        for row in error["by_planes"]:
            if row["planes"] <= 4:
                self.assertLess(row["of_eden"], 1.10, row)
        for row in error["paper_encodings"]:
            if row["encoding"] == "rht":
                self.assertAlmostEqual(row["nmse"] / (0.5708 * row["trimmed_fraction"]), 1.0, delta=0.05)

    def test_speed_figures_are_ratios_to_memcpy(self):
        result = run("bench", "codec", "--part", "speed", "--quick", "--json")
        speed = json.loads(result.stdout)["speed"]
        self.assertGreater(speed["memcpy_gb_per_s"], 0)
        targets = {row["target"] for row in speed["codecs"]}
        self.assertTrue({"scalar", "reference"} <= targets)
        for row in speed["codecs"]:
            self.assertAlmostEqual(
                row["encode_of_memcpy"], row["encode_gb_per_s"] / speed["memcpy_gb_per_s"], places=6
            )


if __name__ == "__main__":
    unittest.main()
