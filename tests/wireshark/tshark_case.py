# SPDX-License-Identifier: Apache-2.0
"""A test case that writes a capture and has tshark dissect it."""
import pathlib
import tempfile
import unittest

import packets
from harness.processes import environment_with, run

DISSECTOR = pathlib.Path(__file__).resolve().parents[2] / "tools/wireshark/spillway.lua"


def is_true(text):
    return text in ("1", "True")  # depends on tshark's version


class Captures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "capture.pcap"

    def tshark(self, *arguments, dissector=DISSECTOR):
        # A separate folder: a copy of the dissector among the user's plugins would interfere.
        environment = environment_with({"WIRESHARK_CONFIG_DIR": self.folder, "LC_ALL": "C.UTF-8"})
        command = ["tshark", "-n", "-X", f"lua_script:{dissector}", "-r", self.path, *arguments]
        done = run(command, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def fields(self, *names, only="", options=()):
        """One row per packet: a list of values per field. Names are the part after "spillway."; those of other
        protocols are given whole."""
        arguments = ["-T", "fields", "-E", "separator=|", "-E", "aggregator=,", *options]
        for name in names:
            is_foreign = name.split(".")[0] in ("frame", "ip", "_ws")
            arguments += ["-e", name if is_foreign else f"spillway.{name}"]
        done = self.tshark(*arguments, *(["-Y", only] if only else []))
        self.assertNotIn("Lua", done.stderr)
        return [[cell.split(",") if cell else [] for cell in line.split("|")]
                for line in done.stdout.splitlines()]

    def one(self, *names, **options):
        """For a capture of one packet: the first value of each field."""
        rows = self.fields(*names, **options)
        self.assertEqual(len(rows), 1)
        return [values[0] if values else None for values in rows[0]]

    def write(self, frames, **options):
        packets.write_capture(self.path, frames, **options)

    def count(self, display_filter):
        return len(self.tshark("-Y", display_filter).stdout.splitlines())
