#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spillway env`, docs/environment.md, and the equal wording of refusals everywhere.

    tests/cli/env_test.py PATH_TO_SPILLWAY [PATH_TO_LIBSPILLWAY] [unittest's arguments]

Without the library, the C interface and Python are not tested.
"""
import ctypes
import json
import os
import pathlib
import re
import sys
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("lib", "switch", "sim", "lab", "emulate", "tools")
TOOL = pathlib.Path(sys.argv.pop(1)).resolve()
LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 and ".so" in sys.argv[1] else None
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}
INVALID_ARGUMENT = 1

sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]

import spillway
from harness.processes import run

REFUSED = [
    ("SPILLWAY_MTU", "70000", "a whole number from 576 to 65536"),
    ("SPILLWAY_LINK_RATE", "10gbit", "a whole number, 1000 or more"),
    ("SPILLWAY_PEER_TIMEOUT", "2s", "a number of seconds from 0.1 to 86400, such as 5 or 0.5"),
    ("SPILLWAY_LOSS_BOUND", "1%", "a share from 0 to 1, such as 0.01"),
    ("SPILLWAY_CODEC", "sloppy", "exact, planes, levels, blocks, entropy, sketch or auto"),
    ("SPILLWAY_SIMD", "sse9", "scalar, neon, avx2, avx512 or simd"),
    ("SPILLWAY_ENCRYPT", "off", "0 or 1"),
    ("SPILLWAY_TRIM_BYTES", "20000", "a whole number from 0 to 9000"),
    ("SPILLWAY_DEBUG", "LOUD", "NONE, VERSION, WARN, INFO or TRACE"),
    ("SPILLWAY_DEBUG_SUBSYS", "NET,MOON", "a list of INIT, BOOTSTRAP, ENV, NET, COLL, CODEC, METRICS or ALL, with ^ in "
     "front for all but these"),
    ("SPILLWAY_METRICS_LISTEN", "http", "a port, or an address and a port, such as 9400, 10.0.0.1:9400 or "
     "[fd00::1]:9400"),
    ("SPILLWAY_COMM_ID", "here", "a host and a port, such as 10.0.0.1:29517"),
    ("SPILLWAY_LISTEN", "here:7", "an address and a port, such as 10.0.0.1:7077 or [fd00::1]:7077"),
    ("SPILLWAY_RANK", "-1", "a whole number from 0 to 4095"),
]


def tool(*arguments, **variables):
    return run([TOOL, *arguments], env={**ENVIRONMENT, **variables})


def in_force(**variables):
    return json.loads(tool("env", "--json", **variables).stdout)


class Table(unittest.TestCase):
    def test_the_document_is_what_the_tool_prints(self):
        printed = tool("env", "--markdown").stdout
        self.assertEqual((ROOT / "docs" / "environment.md").read_text(encoding="utf-8"), printed,
                         "run: spillway env --markdown > docs/environment.md")

    def test_nothing_reads_a_variable_around_the_table(self):
        table = (ROOT / "lib" / "base" / "variables.h").read_text(encoding="utf-8")
        known = set(re.findall(r'\.name = "(SPILLWAY_[A-Z_]+)"', table))
        read_by_python = {"library_path.py"}  # before the library is loaded
        for source in sorted([*(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.cc")),
                              *ROOT.glob("python/**/*.py")]):
            if source.stem.endswith("_test"):
                continue
            text = source.read_text(encoding="utf-8")
            self.assertNotRegex(text, r'getenv\(\s*"SPILLWAY_', source)
            if source.name not in read_by_python:
                self.assertNotRegex(text, r'environ(\.get\(|\[)\s*"SPILLWAY_', source)
            named = set(re.findall(r'(?:number|optional_number|number_of|seconds|flag|text|checked_text|get|get_or|has|'
                                   r'variable|variable_if_set)\(\s*"(SPILLWAY_[A-Z_]+)"', text))
            self.assertLessEqual(named, known, source)

    def test_text_has_every_variable_with_its_value_and_where_it_is_from(self):
        result = tool("env", SPILLWAY_MTU="9000", SPILLWAY_DEBUG="info", SPILLWAY_THREADS="")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"(?m)^  SPILLWAY_MTU +set +9000\n +bytes of the longest IP packet")
        self.assertRegex(result.stdout, r"(?m)^  SPILLWAY_DEBUG +set +INFO$")
        self.assertRegex(result.stdout, r"(?m)^  SPILLWAY_THREADS +default +a rank's processors minus one, at most 4$")
        self.assertRegex(result.stdout, r"(?m)^  SPILLWAY_PEER_TIMEOUT +default +1.4$")
        for variable in in_force()["variables"]:
            self.assertIn(f"  {variable['name']} ", result.stdout)

    def test_json(self):
        out = in_force(SPILLWAY_TRIM_BYTES="256", SPILLWAY_THREADS="many")
        self.assertEqual(set(out), {"variables", "unknown"})
        self.assertEqual(out["unknown"], [])
        for variable in out["variables"]:
            self.assertEqual(set(variable), {"name", "topic", "value", "from", "default", "allowed", "meaning",
                                             "read_by", "error"}, variable)
            self.assertIn(variable["from"], ("set", "default"))
            self.assertLessEqual(set(variable["read_by"]), {"library", "PyTorch", "Python", "tool", "lab sets it"})
        by_name = {variable["name"]: variable for variable in out["variables"]}
        trim, mtu = by_name["SPILLWAY_TRIM_BYTES"], by_name["SPILLWAY_MTU"]
        self.assertEqual((trim["value"], trim["from"], trim["default"]), ("256", "set", "0"))
        self.assertEqual((mtu["value"], mtu["from"], mtu["default"]), (None, "default", "the interface's"))
        self.assertEqual(by_name["SPILLWAY_THREADS"]["error"],
                         "SPILLWAY_THREADS is 'many': it must be a whole number from 0 to 64")

    def test_names_that_nothing_reads_are_named_with_the_nearest(self):
        result = tool("env", SPILLWAY_TRIM_BYTE="256")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("SPILLWAY_TRIM_BYTE\n      is set, but nothing reads it; the nearest name is "
                      "SPILLWAY_TRIM_BYTES\n", result.stdout)
        self.assertEqual(in_force(SPILLWAY_TRIM_BYTE="256")["unknown"],
                         [{"name": "SPILLWAY_TRIM_BYTE", "nearest": "SPILLWAY_TRIM_BYTES"}])

    def test_other_commands_warn_of_names_that_nothing_reads(self):
        result = tool("doctor", SPILLWAY_TRIM_BYTE="256")
        self.assertEqual(result.stderr, "spillway: SPILLWAY_TRIM_BYTE is set, but nothing reads it; the nearest name "
                                        "is SPILLWAY_TRIM_BYTES\n")

    def test_private_variables_are_neither_listed_nor_unknown(self):
        out = in_force(SPILLWAY_STAGE="/nowhere", SPILLWAY_LAB_ID="x")
        self.assertEqual(out["unknown"], [])
        self.assertFalse({"SPILLWAY_STAGE", "SPILLWAY_LAB_ID"} & {variable["name"] for variable in out["variables"]})

    def test_a_secret_is_not_shown(self):
        for secret in ("correct horse battery staple", "too short"):
            for arguments in ((), ("--json",)):
                result = tool("env", *arguments, SPILLWAY_SECRET=secret)
                self.assertNotIn(secret, result.stdout + result.stderr)


class Refused(unittest.TestCase):
    def test_by_the_tool(self):
        for name, value, allowed in REFUSED:
            sentence = f"{name} is '{value}': it must be {allowed}"
            for command in (["doctor"], ["server", "--workers", "1"], ["env"], ["env", "--json"]):
                result = tool(*command, **{name: value})
                self.assertEqual((result.returncode, result.stderr), (2, f"spillway: {sentence}\n"), command)

    def test_help_and_version_are_there_all_the_same(self):
        for arguments in (["--version"], ["--help"], ["doctor", "--help"], ["env", "--markdown"]):
            self.assertEqual(tool(*arguments, SPILLWAY_MTU="x").returncode, 0, arguments)

    @unittest.skipUnless(LIBRARY, "no library was given")
    def test_by_the_c_interface(self):
        library = ctypes.CDLL(str(LIBRARY))
        library.spillway_last_error.restype = ctypes.c_char_p
        text, comm = ctypes.create_string_buffer(256), ctypes.c_void_p()
        for name, value, allowed in REFUSED:
            sentence = f"{name} is '{value}': it must be {allowed}"
            with mock.patch.dict(os.environ, {name: value}):
                self.assertEqual(library.spillway_comm_create(None, ctypes.byref(comm)), INVALID_ARGUMENT)
                self.assertEqual(library.spillway_last_error().decode(), sentence)
                self.assertEqual(library.spillway_variable(name.encode(), text, ctypes.c_size_t(len(text)), None),
                                 INVALID_ARGUMENT)
                self.assertEqual(library.spillway_last_error().decode(), sentence)

    @unittest.skipUnless(LIBRARY, "no library was given")
    def test_by_python(self):
        library = spillway.Library(LIBRARY)
        for name, value, allowed in REFUSED:
            sentence = f"{name} is '{value}': it must be {allowed}"
            with mock.patch.dict(os.environ, {name: value}):
                with self.assertRaises(ValueError) as refused:
                    library.variable(name)
                self.assertEqual(str(refused.exception), sentence)
                with self.assertRaises(spillway.SpillwayError) as refused:
                    spillway.Communicator(library=library)
                self.assertEqual(str(refused.exception), f"this rank cannot join its group: {sentence}")


if __name__ == "__main__":
    unittest.main()
