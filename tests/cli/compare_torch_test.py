#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway lab compare` of an unmodified PyTorch script: it sees steps, chooses backends and registers hooks.

    tests/cli/compare_torch_test.py PATH_TO_SPILLWAY

Run by the Python that has torch. Skips without torch or namespaces: exit code 77.
"""
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from harness.processes import STEADY, python, run

try:
    import compare_script
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
SCRIPT = pathlib.Path(compare_script.__file__).resolve()
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith("SPILLWAY_") and name != "PYTHONPATH"} | STEADY
GRADIENT_BYTES = 4 * compare_script.WIDTH * compare_script.WIDTH


def notes_on_scripts(report):
    # Ignores notes that the machine was too slow for the run.
    return [note for note in report["notes"] if "fell behind" not in note and "hypervisor took" not in note]


class Scripts(unittest.TestCase):
    def compare(self, transports, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            result = run([TOOL, "lab", "compare", "--preset", "clean", "--hosts", "2", "--allow-late", "--transports",
                          transports, "--json", "--out", folder, "--", *python(SCRIPT, *arguments)], quiet_seconds=240,
                         env=ENVIRONMENT)
            printed = {path.stem: path.read_text() for path in pathlib.Path(folder).glob("*.txt")}
        self.assertEqual(result.returncode, 0, (result.stderr, printed))
        report = json.loads(result.stdout)
        return report, {run["transport"]: run for run in report["runs"]}, printed

    def test_steps_are_seen_backends_chosen_and_hooks_put_in(self):
        report, runs, printed = self.compare("tcp,tcp-fp16,tcp-powersgd,spillway-exact")
        for name, run in runs.items():
            self.assertEqual((run["steps"], run["steps_from"]), (compare_script.STEPS, "optimizer"), name)
            for metric in ("step_p50_ms", "step_p99_ms", "step_first_ms"):
                self.assertGreater(run["metrics"][metric], 0, name)
            self.assertEqual(printed[name].count(f"backend {run['backend']}"), 2, printed[name])
        self.assertEqual(notes_on_scripts(report), [])
        self.assertEqual([share["transport"] for share in report["split"]["shares"]], list(runs)[1:])
        # Two hosts: per step a gradient crosses two links each way; the model does so once.
        wire = {name: run["metrics"]["wire_bytes"] for name, run in runs.items()}
        self.assertGreater(wire["tcp"], 2 * compare_script.STEPS * GRADIENT_BYTES)
        self.assertLess(wire["tcp-fp16"], 0.65 * wire["tcp"])
        self.assertGreater(wire["tcp-fp16"], 0.4 * wire["tcp"])
        self.assertLess(wire["tcp-powersgd"], 0.4 * wire["tcp"])

    def test_a_scripts_own_hook_stays_and_the_report_says_so(self):
        report, runs, _ = self.compare("tcp-fp16", "own-hook")
        self.assertEqual(runs["tcp-fp16"]["steps"], compare_script.STEPS)
        notes = notes_on_scripts(report)
        self.assertEqual(len(notes), 1, notes)
        self.assertIn("has a hook of its own, which stays", notes[0])


def can_isolate():
    return run([TOOL, "lab", "run", "--hosts", "2", "--isolation", "root", "--allow-late", "--quiet", "--",
                "true"]).returncode == 0


if __name__ == "__main__":
    if not can_isolate():
        print("network namespaces need root: skipped")
        sys.exit(77)
    unittest.main()
